"""oneDNN on NumPy arrays: float32 products and convolutions with what may follow them.

A primitive is bound to its arrays; those that the library may lay out as it likes are copied once,
when it is made. Numbers are those of oneDNN 3.2, include/oneapi/dnnl/dnnl_types.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from autofuse.backends.cpu.onednn import ALLOCATE, Handles, OneDnn, OneDnnError, Role
from autofuse.ops.dtypes import DType

_POST_OP, _SECOND = 32768, 2  # DNNL_ARG_ATTR_MULTIPLE_POST_OP_BASE, DNNL_ARG_SRC_1
_Handle = ctypes.c_void_p


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


def matmul(
    dnnl: OneDnn, a: np.ndarray, b: np.ndarray, out: np.ndarray, *, packed: bool = False,
    post: Sequence[PostOp] = (),
) -> Primitive:  # fmt: skip
    """out[..., m, n] = post(a[..., m, k] @ b[..., k, n]), with equal batch axes in each.

    Views are read as they lie. `packed`: b is copied once into the layout that oneDNN likes
    best. Raises OneDnnError for what it does not do."""
    operands = {Role.SRC: a, Role.WEIGHTS: b, Role.DST: out}
    made = _Maker(dnnl, operands, (Role.WEIGHTS,) if packed else (), post)
    src, weights, dst = (made.types[role] for role in operands)
    return Primitive(made, made.handles.matmul(src, weights, dst, made.attributes))


def convolution(
    dnnl: OneDnn, src: np.ndarray, weights: np.ndarray, out: np.ndarray, *,
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
    made = _Maker(dnnl, operands, chosen, post)
    types, windows = made.types, [(stride, dilation, padding, padding)] * (src.ndim - 2)
    described = made.handles.convolution(
        types[Role.SRC], types[Role.WEIGHTS], types.get(Role.BIAS), types[Role.DST], windows,
        made.attributes,
    )  # fmt: skip
    return Primitive(made, described)


class Primitive:
    """A primitive on fixed arrays, which live as long as it does; a call computes the result.

    `implementation` is oneDNN's name of the code that it chose."""

    def __init__(self, made: _Maker, description: _Handle) -> None:
        self._made, self._dnnl = made, made.handles.dnnl
        self._memories = {argument: made.placed(argument, description) for argument in made.arrays}
        self._handle = made.handles.primitive(description)
        self._layout = self._dnnl.layout_of(description, Role.DST)
        self._run = self._dnnl.bound(self._handle, self._memories)
        self.implementation = self._dnnl.implementation_of(description)

    def __call__(self) -> None:
        self._run()

    def result(self) -> np.ndarray:
        """What the last call computed, in the array that was given for it."""
        out = self._made.arrays[Role.DST]
        if Role.DST in self._made.chosen:
            self._made.copy(self._memories[Role.DST], self._layout, out, back=True)
        return out


class _Maker:
    """What a primitive is made of: its arrays, their layouts, its post-ops."""

    def __init__(
        self, dnnl: OneDnn, operands: Mapping[Role, np.ndarray], chosen: Collection[Role],
        post: Sequence[PostOp],
    ) -> None:  # fmt: skip
        self.handles = Handles(dnnl)
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

    def copy(self, memory: _Handle, layout: _Handle, array: np.ndarray, back: bool = False) -> None:
        """`array` into a memory of another layout, or back from it."""
        plain, handles = self._plain(array), self.handles
        ends = ((self._memory(plain, array), plain), (memory, layout))
        (source, from_), (target, to) = reversed(ends) if back else ends
        handle = handles.primitive(handles.reorder(from_, to, None))
        handles.dnnl.bound(handle, {Role.SRC: source, Role.DST: target})()

    def placed(self, argument: int, description: _Handle) -> _Handle:
        """The memory of an operand, copied into the layout that the primitive wants where it may
        choose one."""
        array = self.arrays[argument]
        if argument not in self.chosen:
            return self._memory(self.types[argument], array)
        layout = self.handles.dnnl.layout_of(description, argument)
        memory = self.handles.memory(layout, ALLOCATE)
        if argument != Role.DST:
            self.copy(memory, layout, array)
        return memory

    def _memory(self, type_: _Handle, array: np.ndarray) -> _Handle:
        return self.handles.memory(type_, _Handle(array.ctypes.data))

    def _plain(self, array: np.ndarray) -> _Handle:
        # A new axis has stride 0 in NumPy, with which oneDNN recognises no layout.
        strides = [n // array.itemsize or array.size for n in array.strides]
        return self.handles.strided(_dtype(array), array.shape, strides)

    def _any(self, array: np.ndarray) -> _Handle:
        return self.handles.chosen(_dtype(array), array.shape)

    def _attributes(self, post: Sequence[PostOp]) -> _Handle:
        handles = self.handles
        chain = handles.new("post_ops", "post_ops_create")
        for place, op in enumerate(post):
            if isinstance(op, Binary):
                second = self.types[_POST_OP * (place + 1) | _SECOND]
                handles.dnnl.call("post_ops_append_binary", chain, int(op.combine), second)
            else:
                numbers = ctypes.c_float(op.alpha), ctypes.c_float(0.0)
                handles.dnnl.call("post_ops_append_eltwise", chain, int(op.function), *numbers)
        return handles.attributes(chain)


def _dtype(array: np.ndarray) -> DType:
    if array.dtype != np.float32:
        raise OneDnnError(f"only float32 arrays are given to oneDNN, not {array.dtype}")
    return DType.F32
