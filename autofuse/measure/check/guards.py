"""Memory between pages that nobody may touch.

A check zone of bytes only tells of writes, and only of near ones. Pages without any right
(`mprotect`, as Electric Fence has it; Perens 1987) end a program at the very access, be it a read.
Arrays start at multiples of 64 bytes, as kernels are promised, and stand flush against the page
after them or the one before; what is left in between, at most a page, has a pattern that must be
found again. A handler says which array an access lies next to before the process ends.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache

import numpy as np

from autofuse.backends.base import ALIGNMENT, ArrayType, Program, Source
from autofuse.backends.ccompiler import compile_program

_NO_RIGHT = 0  # PROT_NONE
_PATTERN = 0x5C
_NAME_BYTES = 48
_LARGE_BYTES = 4 << 20
_TEXT = """
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
typedef struct { uintptr_t before, start, end, after; char name[48]; } af_range;
static const af_range *ranges;
static int64_t count;
static void said(const char *text) { if (write(2, text, strlen(text)) < 0) _exit(1); }
static void met(int number, siginfo_t *info, void *context) {
  const uintptr_t at = (uintptr_t)info->si_addr;
  (void)context;
  for (int64_t i = 0; i < count; i++)
    if (at >= ranges[i].before && at < ranges[i].after) {
      said("\\nan access ");
      said(at < ranges[i].start ? "before the start of " : "beyond the end of ");
      said(ranges[i].name);
      said("\\n");
      break;
    }
  signal(number, SIG_DFL);
  /* An access happens again; what somebody sent does not. */
  if (info->si_code <= 0) raise(number);
}
void autofuse_guard(const af_range *given, int64_t n) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = met;
  action.sa_flags = SA_SIGINFO;
  ranges = given, count = n;
  sigaction(SIGSEGV, &action, 0);
  sigaction(SIGBUS, &action, 0);
}
"""


class _Range(ctypes.Structure):
    _fields_ = [
        ("before", ctypes.c_size_t),
        ("start", ctypes.c_size_t),
        ("end", ctypes.c_size_t),
        ("after", ctypes.c_size_t),
        ("name", ctypes.c_char * _NAME_BYTES),
    ]


class GuardedBlock:
    """`bytes` between two forbidden pages: flush against the one after, or (`at_start`) the one
    before. Its memory lives as long as the last view of it. Raises OSError."""

    def __init__(self, count: int, name: str, *, at_start: bool = False) -> None:
        page, size = mmap.PAGESIZE, -(-count // ALIGNMENT) * ALIGNMENT
        body = max(page, -(-size // page) * page)
        memory = np.frombuffer(_mapped(body + 2 * page), np.uint8)
        self._base = int(memory.ctypes.data)
        for side in (self._base, self._base + page + body):
            _forbid(side, page)
        start = page if at_start else page + body - size
        self.name, self._start, self._size = name, start, count
        self._after = self._base + body + 2 * page
        self.bytes = memory[start : start + count]
        self._slack = (memory[page:start], memory[start + count : page + body])

    def arm(self) -> None:
        """Reset the pattern around the bytes."""
        for slack in self._slack:
            slack.fill(_PATTERN)

    def intact(self) -> bool:
        return all(bool(np.all(slack == _PATTERN)) for slack in self._slack)

    def array(self, type_: ArrayType) -> np.ndarray:
        return self.bytes.view(type_.dtype.numpy).reshape(type_.shape)

    @property
    def range(self) -> _Range:
        start = self._base + self._start
        name = self.name.encode()[: _NAME_BYTES - 1]
        return _Range(self._base, start, start + self._size, self._after, name)


class Guards:
    """The guarded blocks of one run."""

    def __init__(self, *, at_start: bool) -> None:
        self._at_start, self._blocks = at_start, list[GuardedBlock]()
        self._ranges: ctypes.Array[_Range] | None = None

    def block(self, count: int, name: str) -> GuardedBlock:
        self._blocks.append(GuardedBlock(count, name, at_start=self._at_start))
        return self._blocks[-1]

    def copy(self, array: np.ndarray, type_: ArrayType, name: str) -> np.ndarray:
        made = self.block(type_.nbytes, name).array(type_)
        made[...] = array
        return made

    def memory(self, count: int) -> np.ndarray:
        """So many bytes that belong to the program itself, and that nobody has written: NaN in
        floats."""
        made = self.block(count, "the program's own memory").bytes
        made.fill(0xFF)
        return made

    def arm(self) -> None:
        """Reset what is around all blocks; from now on a crash is told by their names."""
        for block in self._blocks:
            block.arm()
        self._ranges = (_Range * len(self._blocks))(*(block.range for block in self._blocks))
        _handler()(self._ranges, len(self._blocks))

    def disarm(self) -> None:
        """Before the blocks go."""
        _handler()(None, 0)

    def spoiled(self) -> Sequence[str]:
        """Names of blocks next to which something was written."""
        return tuple(block.name for block in self._blocks if not block.intact())


def _mapped(count: int) -> mmap.mmap:
    """Fresh memory; of large arrays in large pages: else most of a check goes to page faults."""
    made = mmap.mmap(-1, count, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if count >= _LARGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without them
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


def _forbid(address: int, count: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    if library.mprotect(address, count, _NO_RIGHT) != 0:
        raise OSError(ctypes.get_errno(), "a page cannot be protected")


@lru_cache(maxsize=1)
def _handler() -> Callable[..., None]:
    """Built once per machine and never unloaded."""
    source = Source("guards", _TEXT, ("-O2",))
    built = compile_program(Program((source,), "autofuse_guard", (), ()))
    function = ctypes.CDLL(str(built.artifact.path)).autofuse_guard
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_int64], None
    found: Callable[..., None] = function
    return found
