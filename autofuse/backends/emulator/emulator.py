"""Runs CUDA kernels on the host, to see whether they are right; nothing here is ever timed.

Accesses are checked as they happen: bounds, alignment, writes to inputs, and races on outputs. A
launch is repeated with the threads in several orders and must give the same bits each time, so a
missing barrier shows. Shared memory is poisoned, differently each time.
"""

from __future__ import annotations

import _ctypes
import ctypes
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.cache import BuildCache
from autofuse.backends.emulator.build import Head, build
from autofuse.ops.types import AutofuseError

MOST_THREADS = 1024
MOST_SHARED_BYTES = 227 * 1024
MESSAGE_BYTES = 1024
LIMIT_S = 30.0
ZONE_BYTES = 256
_ZONE = 0xC7
# The runtime's state and its signal handlers belong to the process.
_LOCK = threading.Lock()

Dims = int | Sequence[int]


class EmulatorError(AutofuseError):
    """A kernel did what it must not do; the message names kernel, block, thread and buffer."""


@dataclass(frozen=True, slots=True)
class Order:
    """In which order threads and blocks run: "forward", "backward" or "shuffled" by a seed."""

    kind: str
    seed: int = 0

    def __str__(self) -> str:
        return f"shuffled by {self.seed}" if self.kind == "shuffled" else self.kind


_KINDS = {"forward": 0, "backward": 1, "shuffled": 2}
ORDERS = (Order("forward"), Order("backward"), Order("shuffled", 1))


class Guarded:
    """A buffer between guard zones. `array` is the buffer itself, a flat view or a shaped one.

    It starts on a 256-byte boundary, or `offset` elements after one: what a kernel may not rely
    on, a test takes away."""

    def __init__(self, name: str, values: np.ndarray, offset: int = 0) -> None:
        self.name = name
        before = ZONE_BYTES + offset * values.itemsize
        room = np.full(before + values.nbytes + 2 * ZONE_BYTES, _ZONE, np.uint8)
        start = -room.ctypes.data % ZONE_BYTES + before
        self.array: np.ndarray = np.ndarray(values.shape, values.dtype, room.data, start)
        self.array[...] = values
        self._zones = (room[:start], room[start + values.nbytes :])

    def check(self) -> None:
        """Raises EmulatorError if a guard zone is not what it was."""
        for zone, where in zip(self._zones, ("before", "after"), strict=True):
            if not (zone == _ZONE).all():
                raise EmulatorError(f"the guard zone {where} buffer {self.name} was written")


@dataclass(frozen=True, slots=True)
class LaunchCounts:
    """What a launch did in its last order: turns that the banks of shared memory took for what
    warps load together (matrices, words), and how many are the least."""

    shared_turns: int
    least_turns: int

    @property
    def conflicts(self) -> int:
        """Turns that conflicts of banks cost."""
        return self.shared_turns - self.least_turns


Argument = np.ndarray | Guarded | np.generic


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_uint64), ("name", ctypes.c_char_p),
        ("unit", ctypes.c_uint32), ("writable", ctypes.c_uint32), ("shadow", ctypes.c_void_p),
    )  # fmt: skip


class _Parameter(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("unit", ctypes.c_uint32), ("writable", ctypes.c_uint32))


class _Entry(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("parameters", ctypes.c_int),
        ("parameter", ctypes.POINTER(_Parameter)), ("shared", ctypes.c_void_p),
        ("shared_end", ctypes.c_void_p),
    )  # fmt: skip


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3),
        ("dynamic_bytes", ctypes.c_uint64), ("order", ctypes.c_int32),
        ("cooperative", ctypes.c_int32), ("seed", ctypes.c_uint32), ("cluster", ctypes.c_uint32),
        ("registers", ctypes.c_uint32), ("limit_s", ctypes.c_double),
        ("shared_turns", ctypes.c_uint64), ("least_turns", ctypes.c_uint64),
    )  # fmt: skip


class Emulated:
    """CUDA programs as NVRTC would get them, compiled for the host; kernel names are unique.

    Raises CompileError, and CompilerMissing without a C++ compiler. Launches are serialised."""

    def __init__(self, *texts: str, cache: BuildCache | None = None) -> None:
        path, found = build(texts, cache)
        self.kernels: Mapping[str, Head] = {head.name: head for head in found}
        self._library = ctypes.CDLL(str(path))
        self._run = self._library.af_launch
        weakref.finalize(self, _ctypes.dlclose, self._library._handle)

    def launch(
        self,
        name: str,
        grid: Dims,
        block: Dims,
        args: Sequence[Argument] | Mapping[str, Argument],
        shared_bytes: int = 0,
        orders: Sequence[Order] = ORDERS,
        cooperative: bool = False,
        limit_s: float = LIMIT_S,
    ) -> LaunchCounts:
        """Run kernel `name`, writing its "out" and "work" arguments in place.

        `args` are contiguous arrays (or Guarded ones) whose elements have the parameters' sizes,
        in the kernel's order or by name; the kernel may touch those elements and no others. With
        `cooperative`, all blocks are alive at once. The launch is repeated once per order, from
        the same contents, each at most `limit_s` seconds of CPU time. Raises EmulatorError."""
        head = self._head(name)
        given = _by_name(head, args) if isinstance(args, Mapping) else list(args)
        how = _geometry(head, grid, block, shared_bytes)
        if cooperative and head.cluster > 1:
            raise EmulatorError(f"kernel {name} is cooperative and in clusters: unknown here")
        how.cooperative, how.limit_s = int(cooperative), limit_s
        arrays = [a.array if isinstance(a, Guarded) else np.asarray(a) for a in given]
        entry = _Entry.in_dll(self._library, f"af_kernel_{name}")
        _check_arguments(head, entry, arrays)
        with _LOCK:
            self._in_every_order(head, entry, arrays, how, orders)
        for argument in given:
            if isinstance(argument, Guarded):
                argument.check()
        return LaunchCounts(how.shared_turns, how.least_turns)

    def units(self, name: str) -> tuple[int, ...]:
        """Bytes of an element of each parameter of kernel `name`. Raises EmulatorError."""
        head = self._head(name)
        entry = _Entry.in_dll(self._library, f"af_kernel_{name}")
        return tuple(entry.parameter[k].unit for k in range(len(head.parameters)))

    def _head(self, name: str) -> Head:
        if name not in self.kernels:
            raise EmulatorError(f"no kernel {name} (there are: {', '.join(self.kernels)})")
        return self.kernels[name]

    def _in_every_order(
        self,
        head: Head,
        entry: _Entry,
        arrays: Sequence[np.ndarray],
        how: _Launch,
        orders: Sequence[Order],
    ) -> None:
        written = [k for k, p in enumerate(head.parameters) if p.role in ("out", "work")]
        before = {k: arrays[k].copy() for k in written}
        first: dict[int, bytes] = {}
        for order in orders:
            _restore(arrays, before)
            how.order, how.seed = _KINDS[order.kind], order.seed
            unordered = self._once(head, entry, arrays, how)
            after = {k: arrays[k].tobytes() for k in written}
            first = first or after
            # Sums by floating-point atomics are right in any order, but not the same.
            for k in () if unordered else written:
                if after[k] != first[k]:
                    raise EmulatorError(_differs(head, k, arrays[k], first[k], orders[0], order))

    def _once(self, head: Head, entry: _Entry, arrays: Sequence[np.ndarray], how: _Launch) -> bool:
        """One run; whether floats were added atomically."""
        buffers = (_Buffer * (len(arrays) + 1))()
        for buffer, array, p in zip(buffers, arrays, head.parameters, strict=False):
            buffer.data, buffer.bytes = array.ctypes.data, array.nbytes
            buffer.name, buffer.unit = p.name.encode(), array.itemsize
            buffer.writable = p.role in ("out", "work")
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        result = self._run(
            ctypes.byref(entry), buffers, ctypes.byref(how), message,
            ctypes.c_uint64(MESSAGE_BYTES),
        )  # fmt: skip
        if result & 1:
            raise EmulatorError(message.value.decode(errors="replace"))
        return bool(result & 2)


def _restore(arrays: Sequence[np.ndarray], before: Mapping[int, np.ndarray]) -> None:
    for k, array in before.items():
        arrays[k][...] = array


def _by_name(head: Head, args: Mapping[str, Argument]) -> list[Argument]:
    names = [p.name for p in head.parameters]
    if set(args) != set(names):
        raise EmulatorError(f"kernel {head.name} takes {', '.join(names)}, not {', '.join(args)}")
    return [args[name] for name in names]


def _geometry(head: Head, grid: Dims, block: Dims, shared_bytes: int) -> _Launch:
    how = _Launch()
    for name, dims, field in (("grid", grid, how.grid), ("block", block, how.block)):
        sizes = (dims,) if isinstance(dims, int) else tuple(dims)
        if not 1 <= len(sizes) <= 3 or any(n < 1 for n in sizes):
            raise EmulatorError(f"kernel {head.name} is launched with {name} {sizes}")
        field[:] = (*sizes, 1, 1)[:3]
    threads, most = int(np.prod(how.block)), head.most_threads or MOST_THREADS
    if threads > min(most, MOST_THREADS):
        raise EmulatorError(f"kernel {head.name} is launched with {threads} threads, over {most}")
    if not 0 <= shared_bytes <= MOST_SHARED_BYTES:
        raise EmulatorError(f"kernel {head.name} asks for {shared_bytes} bytes of shared memory")
    if how.grid[0] % head.cluster:
        raise EmulatorError(
            f"kernel {head.name} is launched with {how.grid[0]} blocks, in clusters of "
            f"{head.cluster}"
        )
    how.dynamic_bytes, how.cluster = shared_bytes, head.cluster
    how.registers = head.registers
    return how


def _check_arguments(head: Head, entry: _Entry, arrays: Sequence[np.ndarray]) -> None:
    if len(arrays) != len(head.parameters):
        raise EmulatorError(
            f"kernel {head.name} takes {len(head.parameters)} arguments, not {len(arrays)}"
        )
    for k, (array, p) in enumerate(zip(arrays, head.parameters, strict=True)):
        if not array.flags.c_contiguous:
            raise EmulatorError(f"argument {p.name} of kernel {head.name} is not contiguous")
        unit = entry.parameter[k].unit
        if array.itemsize != unit:
            raise EmulatorError(
                f"argument {p.name} of kernel {head.name} has elements of {array.itemsize} bytes, "
                f"not {unit} ({p.ctype})"
            )
        for other, q in zip(arrays, head.parameters, strict=True):
            if p.role in ("out", "work") and p is not q and np.may_share_memory(array, other):
                raise EmulatorError(
                    f"arguments {p.name} and {q.name} of kernel {head.name} overlap"
                )


def _differs(
    head: Head, k: int, array: np.ndarray, wanted: bytes, first: Order, second: Order
) -> str:
    width = (-1, array.itemsize)
    got = array.reshape(-1).view(np.uint8).reshape(width)
    at = int(np.flatnonzero((got != np.frombuffer(wanted, np.uint8).reshape(width)).any(1))[0])
    return (
        f"kernel {head.name}: the result depends on the order of threads: "
        f"{head.parameters[k].name}[{at}] differs between {first} and {second}"
    )
