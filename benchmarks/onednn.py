"""oneDNN through ctypes: float32 products and convolutions on NumPy arrays.

The library is that of the wheel `onednn-cpu-gomp` (extra `onednn`), or the system's libdnnl.so.3.
Numbers are those of oneDNN 3.2, include/oneapi/dnnl/dnnl_types.h. A primitive is bound to its
arrays; those that the library may lay out as it likes are copied once, when it is made.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from importlib import metadata
from typing import Any

import numpy as np

from autofuse.errors import AutofuseError

PACKAGE, SONAME = "onednn-cpu-gomp", "libdnnl.so.3"
_F32, _CPU, _ANY, _INFERENCE, _DIRECT, _IN_ORDER = 3, 1, 1, 96, 1, 1
_IMPLEMENTATION, _EXEC_ARG = 8, 255  # dnnl_query_*
_POST_OP, _SECOND = 32768, 2  # DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE, DNNL_ARG_SRC_1
_STATUS = {1: "out of memory", 2: "invalid arguments", 3: "not implemented", 5: "runtime error"}
_ALLOCATE = ctypes.c_void_p(-1)
_Handle = ctypes.c_void_p


class OneDnnError(AutofuseError):
    """oneDNN is not installed, or does not do what it is asked."""


class Role(IntEnum):
    """Operands of a primitive (DNNL_ARG_*)."""

    SRC = 1
    DST = 17
    WEIGHTS = 33
    BIAS = 41


class Function(IntEnum):
    """Elementwise functions (dnnl_eltwise_*); SWISH is x * sigmoid(alpha * x)."""

    RELU = 32
    TANH = 33
    LOGISTIC = 41
    GELU_TANH = 43
    SWISH = 44
    GELU_ERF = 49


class Combine(IntEnum):
    """Functions of two values (dnnl_binary_*)."""

    ADD = 131056
    MUL = 131057


@dataclass(frozen=True)
class Eltwise:
    """A post-op: `function` of the result so far."""

    function: Function
    alpha: float = 0.0


@dataclass(frozen=True)
class Binary:
    """A post-op: the result so far combined with an array, of extent 1 where it is broadcast; if
    it is `laid_out`, it is copied once into the layout that the result has."""

    combine: Combine
    array: np.ndarray
    laid_out: bool = False


PostOp = Eltwise | Binary


class _ExecArg(ctypes.Structure):
    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class OneDnn:
    """The library with its CPU engine and one stream.

    Its threads are those of libgomp: as many as OMP_NUM_THREADS said when libgomp was loaded, else
    as many as the process may use."""

    def __init__(self, dnnl: ctypes.CDLL) -> None:
        self._dnnl = dnnl
        dnnl.dnnl_version.restype = ctypes.POINTER(ctypes.c_int * 3)
        dnnl.dnnl_primitive_desc_query_md.restype = _Handle
        dnnl.dnnl_primitive_execute.argtypes = [_Handle, _Handle, ctypes.c_int, _Handle]
        self.version = ".".join(map(str, dnnl.dnnl_version().contents))
        self.engine = self.make("engine_create", _CPU, ctypes.c_size_t(0))
        self._stream = self.make("stream_create", self.engine, ctypes.c_uint(_IN_ORDER))

    def matmul(
        self, a: np.ndarray, b: np.ndarray, out: np.ndarray, *, packed: bool = False,
        post: Sequence[PostOp] = (),
    ) -> Primitive:  # fmt: skip
        """out[..., m, n] = post(a[..., m, k] @ b[..., k, n]), with equal batch axes in each.

        Views are read as they lie. `packed`: b is copied once into the layout that oneDNN likes
        best. Raises OneDnnError for what it does not do."""
        operands = {Role.SRC: a, Role.WEIGHTS: b, Role.DST: out}
        made = _Maker(self, operands, (Role.WEIGHTS,) if packed else (), post)
        types = made.types
        return made.primitive(
            "matmul_primitive_desc_create", self.engine, types[Role.SRC], types[Role.WEIGHTS], None,
            types[Role.DST], made.attributes,
        )  # fmt: skip

    def convolution(
        self, src: np.ndarray, weights: np.ndarray, out: np.ndarray, *,
        bias: np.ndarray | None = None, stride: int = 1, padding: int = 0, dilation: int = 1,
        groups: int = 1, chosen: Collection[Role] = (Role.WEIGHTS,), post: Sequence[PostOp] = (),
    ) -> Primitive:  # fmt: skip
        """out[n, o, ...] = post(src[n, c, ...] convolved with weights[o, c / groups, ...] + bias).

        Views are read as they lie: a channels-last array is one transposed to this order.
        Operands in `chosen` get layouts of oneDNN's choice. Raises OneDnnError for what it does
        not do."""
        if groups > 1:
            weights = weights.reshape(groups, -1, *weights.shape[1:])
        operands = {Role.SRC: src, Role.WEIGHTS: weights, Role.DST: out}
        operands |= {} if bias is None else {Role.BIAS: bias}
        made = _Maker(self, operands, chosen, post)
        types, spatial = made.types, src.ndim - 2
        return made.primitive(
            "convolution_forward_primitive_desc_create", self.engine, _INFERENCE, _DIRECT,
            types[Role.SRC], types[Role.WEIGHTS], types.get(Role.BIAS), types[Role.DST],
            *(_dims([n] * spatial) for n in (stride, dilation - 1, padding, padding)),
            made.attributes,
        )  # fmt: skip

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

    def layout_of(self, description: _Handle, argument: int) -> _Handle:
        """The memory descriptor that a primitive wants of an argument; it goes with the former."""
        found = self._dnnl.dnnl_primitive_desc_query_md(description, _EXEC_ARG, argument)
        return _Handle(found)

    def execute(self, primitive: _Handle, arguments: ctypes.Array[_ExecArg]) -> None:
        """Run to the end: a stream of the CPU is done when the call is."""
        status = self._dnnl.dnnl_primitive_execute(
            primitive, self._stream, len(arguments), arguments
        )
        if status:
            raise OneDnnError(f"oneDNN {self.version} fails: {_STATUS.get(status, status)}")


class Primitive:
    """A primitive on fixed arrays, which live as long as it does; a call computes the result.

    `implementation` is oneDNN's name of the code that it chose."""

    def __init__(
        self, dnnl: OneDnn, made: _Maker, handle: _Handle, memories: Mapping[int, _Handle]
    ) -> None:
        self._dnnl, self._made, self._memories = dnnl, made, memories
        self._handle, self._arguments = handle, _arguments(memories)
        self.implementation = made.implementation

    def __call__(self) -> None:
        self._dnnl.execute(self._handle, self._arguments)

    def result(self) -> np.ndarray:
        """What the last call computed, in the array that was given for it."""
        out = self._made.arrays[Role.DST]
        if Role.DST in self._made.chosen:
            self._made.copy(self._memories[Role.DST], self._made.layout(Role.DST), out, back=True)
        return out


class _Maker:
    """Makes one primitive; holds what it is made of, and destroys it at its own end."""

    def __init__(
        self, dnnl: OneDnn, operands: Mapping[Role, np.ndarray], chosen: Collection[Role],
        post: Sequence[PostOp],
    ) -> None:  # fmt: skip
        self.dnnl = dnnl
        self._owned: list[tuple[str, _Handle]] = []
        weakref.finalize(self, _destroy, dnnl, self._owned).atexit = False
        self.arrays: dict[int, np.ndarray] = {int(r): array for r, array in operands.items()}
        self.chosen: set[int] = set(chosen)
        for place, op in enumerate(post):
            if isinstance(op, Binary):
                argument = _POST_OP * (place + 1) | _SECOND
                self.arrays[argument] = op.array
                self.chosen |= {argument} if op.laid_out else set()
        self.types = {
            argument: self._any(array) if argument in self.chosen else self._plain(array)
            for argument, array in self.arrays.items()
        }
        self.attributes = self._attributes(post)
        self._description = _Handle()
        self.implementation = ""

    def primitive(self, name: str, *arguments: Any) -> Primitive:
        """The primitive that function `name` describes; inputs of chosen layouts are copied."""
        self._description = self._new("primitive_desc", name, *arguments)
        text = ctypes.c_char_p()
        self.dnnl.call("primitive_desc_query", self._description, _IMPLEMENTATION, 0,
                       ctypes.byref(text))  # fmt: skip
        self.implementation = (text.value or b"").decode()
        memories = {argument: self._placed(argument) for argument in self.arrays}
        handle = self._new("primitive", "primitive_create", self._description)
        return Primitive(self.dnnl, self, handle, memories)

    def layout(self, argument: int) -> _Handle:
        return self.dnnl.layout_of(self._description, argument)

    def copy(self, memory: _Handle, layout: _Handle, array: np.ndarray, back: bool = False) -> None:
        """`array` into a memory of another layout, or back from it."""
        plain = self._plain(array)
        ends = ((self._memory(plain, array), plain), (memory, layout))
        (source, from_), (target, to) = reversed(ends) if back else ends
        description = self._new(
            "primitive_desc", "reorder_primitive_desc_create", from_, self.dnnl.engine, to,
            self.dnnl.engine, None,
        )  # fmt: skip
        handle = self._new("primitive", "primitive_create", description)
        self.dnnl.execute(handle, _arguments({Role.SRC: source, Role.DST: target}))

    def _placed(self, argument: int) -> _Handle:
        array = self.arrays[argument]
        if argument not in self.chosen:
            return self._memory(self.types[argument], array)
        layout = self.layout(argument)
        memory = self._new("memory", "memory_create", layout, self.dnnl.engine, _ALLOCATE)
        if argument != Role.DST:
            self.copy(memory, layout, array)
        return memory

    def _memory(self, type_: _Handle, array: np.ndarray) -> _Handle:
        address = _Handle(array.ctypes.data)
        return self._new("memory", "memory_create", type_, self.dnnl.engine, address)

    def _plain(self, array: np.ndarray) -> _Handle:
        if array.dtype != np.float32:
            raise OneDnnError(f"only float32 arrays are given to oneDNN, not {array.dtype}")
        # A new axis has stride 0 in NumPy, with which oneDNN recognises no layout.
        strides = [n // array.itemsize or array.size for n in array.strides]
        return self._new("memory_desc", "memory_desc_create_with_strides", array.ndim,
                         _dims(array.shape), _F32, _dims(strides))  # fmt: skip

    def _any(self, array: np.ndarray) -> _Handle:
        return self._new("memory_desc", "memory_desc_create_with_tag", array.ndim,
                         _dims(array.shape), _F32, _ANY)  # fmt: skip

    def _attributes(self, post: Sequence[PostOp]) -> _Handle:
        chain = self._new("post_ops", "post_ops_create")
        for place, op in enumerate(post):
            if isinstance(op, Binary):
                second = self.types[_POST_OP * (place + 1) | _SECOND]
                self.dnnl.call("post_ops_append_binary", chain, int(op.combine), second)
            else:
                numbers = ctypes.c_float(op.alpha), ctypes.c_float(0.0)
                self.dnnl.call("post_ops_append_eltwise", chain, int(op.function), *numbers)
        attributes = self._new("primitive_attr", "primitive_attr_create")
        self.dnnl.call("primitive_attr_set_post_ops", attributes, chain)
        return attributes

    def _new(self, kind: str, name: str, *arguments: Any) -> _Handle:
        handle = self.dnnl.make(name, *arguments)
        self._owned.append((kind, handle))
        return handle


def _destroy(dnnl: OneDnn, owned: list[tuple[str, _Handle]]) -> None:
    for kind, handle in reversed(owned):
        dnnl.call(f"{kind}_destroy", handle)


def _arguments(memories: Mapping[int, _Handle]) -> ctypes.Array[_ExecArg]:
    return (_ExecArg * len(memories))(*(_ExecArg(int(a), m.value) for a, m in memories.items()))


def _dims(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * 12)(*numbers)  # DNNL_MAX_NDIMS


@lru_cache(maxsize=1)
def onednn() -> OneDnn:
    """The library, loaded once; raises OneDnnError where there is none of version 3."""
    try:
        folder = metadata.distribution(PACKAGE).files or ()
        paths = [str(file.locate()) for file in folder if file.name == SONAME]
    except metadata.PackageNotFoundError:
        paths = []
    for path in (*paths, SONAME):
        try:
            return OneDnn(ctypes.CDLL(path))
        except OSError:  # not there, or not loadable: the next place may have it
            continue
    raise OneDnnError("oneDNN is not installed (pip install 'autofuse[onednn]')")
