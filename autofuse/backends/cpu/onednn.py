"""oneDNN through ctypes: the library, and handles of what it makes.

It is that of the wheel `onednn-cpu-gomp` (extra `onednn`), or the system's libdnnl.so.3 built for
OpenMP: its threads can be turned off for one thread of ours. Numbers are those of oneDNN 3.2,
include/oneapi/dnnl/dnnl_types.h.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from functools import lru_cache
from importlib import metadata
from typing import Any

from autofuse.backends.base import BlamedError
from autofuse.ops.dtypes import DType
from autofuse.records import Blame

PACKAGE, SONAME = "onednn-cpu-gomp", "libdnnl.so.3"
MISSING = "oneDNN is not installed (pip install 'autofuse[onednn]')"
DATA_TYPES = {DType.F16: 1, DType.BF16: 2, DType.F32: 3}
MOST_AXES = 12  # DNNL_MAX_NDIMS
_CPU, _ANY, _INFERENCE, _DIRECT, _IN_ORDER, _BY_USER = 1, 1, 96, 1, 1, 1
_IMPLEMENTATION, _EXEC_ARG = 8, 255  # dnnl_query_*
_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not implemented", 5: "runtime error"}
_Handle = ctypes.c_void_p
ALLOCATE = _Handle(-1)


class OneDnnError(BlamedError):
    """oneDNN is not installed, or does not do what it is asked."""


class Role(IntEnum):
    """Operands of a primitive (DNNL_ARG_*)."""

    SRC = 1
    DST = 17
    WEIGHTS = 33
    BIAS = 41
    SCRATCHPAD = 80


class _ExecArg(ctypes.Structure):
    """An operand of a primitive: its role, and the memory where it is."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
    )  # fmt: skip


class OneDnn:
    """The library with its CPU engine. Raises AttributeError for a build without OpenMP.

    Its threads are those of libgomp: as many as OMP_NUM_THREADS said when libgomp was loaded, else
    as many as the process may use, unless a thread of ours was told otherwise (`one_thread`)."""

    def __init__(self, dnnl: ctypes.CDLL) -> None:
        self._dnnl = dnnl
        assert dnnl.omp_set_num_threads
        dnnl.dnnl_version.restype = ctypes.POINTER(_Version)
        dnnl.dnnl_primitive_desc_query_md.restype = _Handle
        dnnl.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        dnnl.dnnl_primitive_execute.argtypes = [_Handle, _Handle, ctypes.c_int, _Handle]
        found = dnnl.dnnl_version().contents
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        # With what was built: distributions patch a version.
        self.name = f"oneDNN {self.version} {(found.hash or b'').decode()[:12]}".strip()
        self.engine = self.make("engine_create", _CPU, ctypes.c_size_t(0))
        self.stream = self.make("stream_create", self.engine, ctypes.c_uint(_IN_ORDER))

    def call(self, name: str, *arguments: Any) -> None:
        """A function of the library by its name without prefix; raises OneDnnError."""
        status = getattr(self._dnnl, f"dnnl_{name}")(*arguments)
        if status:
            why = _STATUS.get(status, f"status {status}")
            raise OneDnnError(f"oneDNN {self.version} refuses {name}: {why}")

    def make(self, name: str, *arguments: Any) -> _Handle:
        """What a function of the library creates; raises OneDnnError."""
        handle = _Handle()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle

    def address(self, name: str) -> int:
        """Where a function of the library, or of its OpenMP, is."""
        return ctypes.cast(getattr(self._dnnl, name), _Handle).value or 0

    def layout_of(self, description: _Handle, argument: int) -> _Handle:
        """The memory descriptor that a primitive wants of an argument; it goes with the former."""
        found = self._dnnl.dnnl_primitive_desc_query_md(description, _EXEC_ARG, argument)
        return _Handle(found)

    def size_of(self, layout: _Handle) -> int:
        """Bytes of an array in a layout."""
        return int(self._dnnl.dnnl_memory_desc_get_size(layout))

    def are_equal(self, one: _Handle, other: _Handle) -> bool:
        """Whether two layouts are the same."""
        return bool(self._dnnl.dnnl_memory_desc_equal(one, other))

    def implementation_of(self, description: _Handle) -> str:
        """oneDNN's name of the code that a primitive is."""
        text = ctypes.c_char_p()
        self.call("primitive_desc_query", description, _IMPLEMENTATION, 0, ctypes.byref(text))
        return (text.value or b"").decode()

    def bound(self, primitive: _Handle, memories: Mapping[int, _Handle]) -> Callable[[], None]:
        """A call that runs a primitive on these operands to the end; raises OneDnnError."""
        each = (_ExecArg(int(role), memory.value) for role, memory in memories.items())
        operands = (_ExecArg * len(memories))(*each)
        execute, stream, count = self._dnnl.dnnl_primitive_execute, self.stream, len(memories)

        def run() -> None:
            status = execute(primitive, stream, count, operands)
            if status:
                raise OneDnnError(f"oneDNN {self.version} fails: {_STATUS.get(status, status)}")

        return run

    @contextmanager
    def one_thread(self) -> Iterator[None]:
        """What this thread makes and runs inside uses no other threads."""
        before = self._dnnl.omp_get_max_threads()
        self._dnnl.omp_set_num_threads(1)
        try:
            yield
        finally:
            self._dnnl.omp_set_num_threads(before)


class Handles:
    """What one owner has the library make; destroyed when it is closed, or at its own end."""

    def __init__(self, dnnl: OneDnn) -> None:
        self.dnnl = dnnl
        self._owned: list[tuple[str, _Handle]] = []
        self._end = weakref.finalize(self, _destroy, dnnl, self._owned)
        self._end.atexit = False

    def close(self) -> None:
        """Destroy all, once."""
        self._end()

    def new(self, kind: str, name: str, *arguments: Any) -> _Handle:
        """What function `name` makes, to be destroyed by that of its kind; raises OneDnnError."""
        handle = self.dnnl.make(name, *arguments)
        self._owned.append((kind, handle))
        return handle

    def strided(self, dtype: DType, shape: Sequence[int], strides: Sequence[int]) -> _Handle:
        """The layout of an array by strides, which count elements."""
        return self.new(
            "memory_desc", "memory_desc_create_with_strides", len(shape), _dims(shape),
            DATA_TYPES[dtype], _dims(strides),
        )  # fmt: skip

    def chosen(self, dtype: DType, shape: Sequence[int]) -> _Handle:
        """A layout that oneDNN may choose."""
        return self.new("memory_desc", "memory_desc_create_with_tag", len(shape), _dims(shape),
                        DATA_TYPES[dtype], _ANY)  # fmt: skip

    def stream(self) -> _Handle:
        """Where primitives are run, one after another."""
        return self.new("stream", "stream_create", self.dnnl.engine, ctypes.c_uint(_IN_ORDER))

    def memory(self, layout: _Handle, address: _Handle) -> _Handle:
        """Memory of a layout at an address; at ALLOCATE, memory of its own."""
        return self.new("memory", "memory_create", layout, self.dnnl.engine, address)

    def attributes(self, post_ops: _Handle | None = None) -> _Handle:
        """Those of a primitive with post-ops."""
        made = self.new("primitive_attr", "primitive_attr_create")
        if post_ops is not None:
            self.dnnl.call("primitive_attr_set_post_ops", made, post_ops)
        return made

    def threadable(self) -> _Handle:
        """Attributes of a primitive that any thread may run, given scratch of its own: scratch
        of the library's belongs to the thread that made the primitive."""
        made = self.attributes()
        self.dnnl.call("primitive_attr_set_scratchpad_mode", made, _BY_USER)
        return made

    def matmul(self, src: _Handle, weights: _Handle, dst: _Handle, attributes: _Handle) -> _Handle:
        """The description of a product of arrays in these layouts; raises OneDnnError."""
        return self.new(
            "primitive_desc", "matmul_primitive_desc_create", self.dnnl.engine, src, weights, None,
            dst, attributes,
        )  # fmt: skip

    def convolution(
        self, src: _Handle, weights: _Handle, bias: _Handle | None, dst: _Handle,
        windows: Sequence[tuple[int, int, int, int]], attributes: _Handle,
    ) -> _Handle:  # fmt: skip
        """That of a convolution with windows of so much (stride, dilation, low, high)."""
        stride, dilation, low, high = zip(*windows, strict=True)
        # oneDNN counts the elements between two taps.
        numbers = (stride, [n - 1 for n in dilation], low, high)
        return self.new(
            "primitive_desc", "convolution_forward_primitive_desc_create", self.dnnl.engine,
            _INFERENCE, _DIRECT, src, weights, bias, dst, *map(_dims, numbers), attributes,
        )  # fmt: skip

    def reorder(self, source: _Handle, target: _Handle, attributes: _Handle | None) -> _Handle:
        """That of a copy from one layout to another."""
        engine = self.dnnl.engine
        return self.new("primitive_desc", "reorder_primitive_desc_create", source, engine, target,
                        engine, attributes)  # fmt: skip

    def primitive(self, description: _Handle) -> _Handle:
        """What is described, ready to run."""
        return self.new("primitive", "primitive_create", description)


def _destroy(dnnl: OneDnn, owned: list[tuple[str, _Handle]]) -> None:
    for kind, handle in reversed(owned):
        dnnl.call(f"{kind}_destroy", handle)


def _dims(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * MOST_AXES)(*numbers)


@lru_cache(maxsize=1)
def _found() -> OneDnn | None:
    try:
        files = metadata.distribution(PACKAGE).files or ()
        paths = [str(file.locate()) for file in files if file.name == SONAME]
    except metadata.PackageNotFoundError:
        paths = []
    for path in (*paths, SONAME):
        try:
            return OneDnn(ctypes.CDLL(path))
        except (OSError, AttributeError):  # not there, not loadable, or with threads of its own
            continue
    return None


def onednn() -> OneDnn:
    """The library, loaded once; raises OneDnnError where there is none of version 3."""
    found = _found()
    if found is None:
        raise OneDnnError(MISSING, Blame.MACHINE)
    return found


def look_again() -> None:
    """Forget whether the library was found."""
    _found.cache_clear()
