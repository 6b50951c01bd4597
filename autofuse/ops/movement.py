"""Ops that move elements without computing on them: out[i] = in[g(i)]."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from autofuse.ops import checks, needs
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr
from autofuse.ops.selection import (
    along_axes,
    along_body,
    along_needed,
    along_reference,
    along_samples,
    along_shape,
    concat_axes,
    concat_body,
    concat_needed,
    concat_reference,
    concat_shape,
    gather_axes,
    gather_body,
    gather_needed,
    gather_reference,
    gather_samples,
    gather_shape,
    gather_window,
    pad_axes,
    pad_body,
    pad_needed,
    pad_reference,
    pad_shape,
)
from autofuse.ops.spec import (
    AxisMap,
    Body,
    Family,
    Infer,
    Motion,
    OpSpec,
    Reference,
    Sample,
    register,
    sampled,
)
from autofuse.ops.types import GraphError, OpCall, TensorType
from autofuse.ops.views import repeated, reshape_groups, reshaped, sliced, transposed

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]
Cases = list[tuple[list[Shape], dict[str, Any]]]


def _one(fn: Callable[[OpCall], Shape], count: int | None = 1) -> Infer:
    """A shape rule from one that gives just the shape; the dtype is that of operand 0."""

    def infer(c: OpCall) -> tuple[TensorType, ...]:
        if count is not None:
            checks.operands(c, count)
        return (TensorType(fn(c), c.ins[0].dtype),)

    return infer


def _samples(cases: Cases) -> Callable[[], list[Sample]]:
    """The cases in f32, and the first of them in every other dtype."""

    def samples() -> list[Sample]:
        def make(shapes: list[Shape], attrs: dict[str, Any], dtype: DType) -> Sample:
            return Sample(tuple(TensorType(s, dtype) for s in shapes), attrs)

        others = [d for d in sampled(DType) if d is not DType.F32]
        return [make(*case, DType.F32) for case in cases] + [make(*cases[0], d) for d in others]

    return samples


# broadcast


def _broadcast_shape(c: OpCall) -> Shape:
    x, shape = c.ins[0], checks.shape_attr(c)
    dims = checks.sorted_axes_attr(c, len(shape), "dims")
    if len(dims) != x.rank or any(shape[d] != n for d, n in zip(dims, x.shape, strict=True)):
        raise GraphError(f"cannot broadcast {x} to {shape} along dims {dims}")
    return shape


def _broadcast_reference(arrays: Arrays, c: OpCall) -> Arrays:
    shape, dims = c["shape"], c["dims"]
    spread = [1] * len(shape)
    for d in dims:
        spread[d] = shape[d]
    return (np.broadcast_to(arrays[0].reshape(spread), shape).copy(),)


def _broadcast_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    return (pull(0, tuple(index[d] for d in c["dims"])),)


def _broadcast_axes(c: OpCall) -> AxisMap:
    where = {d: i for i, d in enumerate(c["dims"])}
    return (tuple(where.get(a) for a in range(len(c["shape"]))),)


# reshape


def _reshape_shape(c: OpCall) -> Shape:
    shape = checks.shape_attr(c)
    if math.prod(shape) != c.ins[0].size:
        raise GraphError(f"cannot reshape {c.ins[0]} to {shape}: the sizes differ")
    return shape


def _reshape_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    source, target = c.ins[0].shape, c["shape"]
    found: list[Expr] = []
    for theirs, ours in reshape_groups(source, target):
        offset = ix.linearize(tuple(index[a] for a in ours), tuple(target[a] for a in ours))
        found += ix.delinearize(offset, tuple(source[a] for a in theirs))
    return (pull(0, tuple(found)),)


def _reshape_axes(c: OpCall) -> AxisMap:
    source, target = c.ins[0].shape, c["shape"]
    axes: list[int | None] = [None] * len(target)
    for theirs, ours in reshape_groups(source, target):
        if len(theirs) > 1:
            theirs = tuple(a for a in theirs if source[a] != 1)
        if len(ours) > 1:
            ours = tuple(a for a in ours if target[a] != 1)
        if len(theirs) == len(ours) == 1 and source[theirs[0]] == target[ours[0]]:
            axes[ours[0]] = theirs[0]
    return (tuple(axes),)


# transpose, reverse


def _transpose_shape(c: OpCall) -> Shape:
    perm = checks.axes_attr(c, c.ins[0].rank, "perm")
    if len(perm) != c.ins[0].rank:
        raise GraphError(f"attribute 'perm' is {perm}, but the operand is {c.ins[0]}")
    return tuple(c.ins[0].shape[p] for p in perm)


def _transpose_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    where = {p: i for i, p in enumerate(c["perm"])}
    return (pull(0, tuple(index[where[a]] for a in range(len(index)))),)


def _reverse_shape(c: OpCall) -> Shape:
    checks.sorted_axes_attr(c, c.ins[0].rank)
    return c.ins[0].shape


def _reverse_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    turned = [
        ix.isub(ix.lit(n - 1), i) if a in c["axes"] else i
        for a, (i, n) in enumerate(zip(index, c.out.shape, strict=True))
    ]
    return (pull(0, tuple(turned)),)


def _reverse_axes(c: OpCall) -> AxisMap:
    return (tuple(None if a in c["axes"] else a for a in range(c.ins[0].rank)),)


# slice


def _slice_shape(c: OpCall) -> Shape:
    x = c.ins[0]
    start, stop, stride = (checks.ints_attr(c, key) for key in ("start", "stop", "stride"))
    if not len(start) == len(stop) == len(stride) == x.rank:
        raise GraphError(f"slice needs {x.rank} of each of start, stop, stride for {x}")
    for lo, hi, step, n in zip(start, stop, stride, x.shape, strict=True):
        if not (0 <= lo <= hi <= n and step >= 1):
            raise GraphError(f"slice {lo}:{hi}:{step} is outside an axis of extent {n}")
    return tuple(-(-(hi - lo) // s) for lo, hi, s in zip(start, stop, stride, strict=True))


def _slice_reference(arrays: Arrays, c: OpCall) -> Arrays:
    parts = zip(c["start"], c["stop"], c["stride"], strict=True)
    return (arrays[0][tuple(slice(*part) for part in parts)].copy(),)


def _slice_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    moved = [
        ix.iadd(ix.imul(i, step), ix.lit(lo))
        for i, lo, step in zip(index, c["start"], c["stride"], strict=True)
    ]
    return (pull(0, tuple(moved)),)


def _slice_axes(c: OpCall) -> AxisMap:
    # An axis that keeps its extent is read whole.
    pairs = enumerate(zip(c.ins[0].shape, c.out.shape, strict=True))
    return (tuple(a if n == kept else None for a, (n, kept) in pairs),)


def _only(fn: Callable[..., np.ndarray], *keys: str) -> Reference:
    """A reference that passes attributes `keys` to a NumPy function of one array."""
    return lambda arrays, c: (fn(arrays[0], *(c[k] for k in keys)),)


def _same_axes_transpose(c: OpCall) -> AxisMap:
    return (tuple(c["perm"]),)


def _spec(
    name: str,
    infer: Infer,
    reference: Reference,
    body: Body,
    axes: Callable[[OpCall], AxisMap],
    samples: Callable[[], list[Sample]],
    motion: Motion,
    **facts: Any,
) -> OpSpec:
    """A row; `facts` are further fields of OpSpec."""
    return OpSpec(
        name, Family.MOVEMENT, infer, reference, lambda c: 0.0, samples,
        body=body, axes=axes, motion=motion, **facts,
    )  # fmt: skip


_BROADCAST: Cases = [
    ([(3,)], {"shape": (2, 3, 5), "dims": (1,)}), ([()], {"shape": (), "dims": ()}),
    ([()], {"shape": (7,), "dims": ()}), ([(1, 5)], {"shape": (1, 3, 5), "dims": (0, 2)}),
    ([(2, 3)], {"shape": (2, 1, 3, 2), "dims": (0, 2)}),
]  # fmt: skip
_RESHAPE: Cases = [
    ([(2, 3, 5)], {"shape": (5, 6)}), ([()], {"shape": (1, 1)}), ([(1,)], {"shape": ()}),
    ([(6, 5)], {"shape": (2, 3, 5)}), ([(3, 1, 5)], {"shape": (3, 5, 1)}),
    ([(2, 3, 5)], {"shape": (2, 15)}), ([(12,)], {"shape": (2, 1, 3, 2)}),
    ([(3, 4, 5)], {"shape": (2, 6, 5)}), ([(1, 3, 4)], {"shape": (3, 2, 2)}),
]  # fmt: skip
_TRANSPOSE: Cases = [
    ([(2, 3, 5)], {"perm": (2, 0, 1)}), ([()], {"perm": ()}), ([(3,)], {"perm": (0,)}),
    ([(3, 5)], {"perm": (1, 0)}), ([(2, 1, 3, 2)], {"perm": (0, 2, 1, 3)}),
]  # fmt: skip
_REVERSE: Cases = [
    ([(3, 5)], {"axes": (1,)}), ([()], {"axes": ()}), ([(2, 3, 5)], {"axes": (0, 2)}),
    ([(1,)], {"axes": (0,)}), ([(2, 1, 3, 2)], {"axes": (2, 3)}),
]  # fmt: skip
_SLICE: Cases = [
    ([(5, 7)], {"start": (1, 0), "stop": (4, 7), "stride": (2, 3)}),
    ([()], {"start": (), "stop": (), "stride": ()}),
    ([(5,)], {"start": (4,), "stop": (5,), "stride": (1,)}),
    ([(3, 5)], {"start": (0, 1), "stop": (3, 3), "stride": (1, 1)}),
    ([(2, 3, 1, 3)], {"start": (0, 1, 0, 0), "stop": (2, 3, 1, 3), "stride": (1, 1, 1, 2)}),
]  # fmt: skip
_PAD: Cases = [
    ([(3, 5), ()], {"low": (1, 0), "high": (0, 2)}), ([(), ()], {"low": (), "high": ()}),
    ([(1,), ()], {"low": (2,), "high": (3,)}), ([(3, 5), ()], {"low": (0, 0), "high": (0, 1)}),
    ([(2, 1, 3), ()], {"low": (0, 1, 0), "high": (0, 1, 0)}),
]  # fmt: skip
_CONCAT: Cases = [
    ([(2, 3), (2, 1), (2, 4)], {"axis": 1}), ([(3,)], {"axis": 0}), ([(1,), (1,)], {"axis": 0}),
    ([(2, 3, 5), (1, 3, 5)], {"axis": 0}), ([(2, 3, 2, 1)] * 3, {"axis": 2}),
    ([(3, 1)] * 4, {"axis": 1}),
]  # fmt: skip
register(
    _spec(
        "broadcast",
        _one(_broadcast_shape),
        _broadcast_reference,
        _broadcast_body,
        _broadcast_axes,
        _samples(_BROADCAST),
        Motion.REPEAT,
        needed=needs.share,
        varies=lambda c: tuple(c["dims"]),
        view=repeated,
    ),
    _spec(
        "reshape",
        _one(_reshape_shape),
        _only(np.reshape, "shape"),
        _reshape_body,
        _reshape_axes,
        _samples(_RESHAPE),
        Motion.RESHAPE,
        one_to_one=True,
        unrolls=True,
        view=reshaped,
    ),
    _spec(
        "transpose",
        _one(_transpose_shape),
        _only(np.transpose, "perm"),
        _transpose_body,
        _same_axes_transpose,
        _samples(_TRANSPOSE),
        Motion.PERMUTE,
        one_to_one=True,
        view=transposed,
    ),
    _spec(
        "reverse",
        _one(_reverse_shape),
        _only(np.flip, "axes"),
        _reverse_body,
        _reverse_axes,
        _samples(_REVERSE),
        Motion.CUT,
        one_to_one=True,
        unrolls=True,
    ),
    _spec(
        "slice",
        _one(_slice_shape),
        _slice_reference,
        _slice_body,
        _slice_axes,
        _samples(_SLICE),
        Motion.CUT,
        one_to_one=True,
        unrolls=True,
        view=sliced,
    ),
    _spec(
        "pad",
        _one(pad_shape, None),
        pad_reference,
        pad_body,
        pad_axes,
        _samples(_PAD),
        Motion.CUT,
        needed=pad_needed,
        unrolls=True,
    ),
    _spec(
        "concat",
        _one(concat_shape, None),
        concat_reference,
        concat_body,
        concat_axes,
        _samples(_CONCAT),
        Motion.CUT,
        needed=concat_needed,
        unrolls=True,
    ),
    _spec(
        "gather",
        _one(gather_shape, None),
        gather_reference,
        gather_body,
        gather_axes,
        gather_samples,
        Motion.PICK,
        needed=gather_needed,
        unrolls=True,
        window=gather_window,
    ),
    _spec(
        "take_along",
        _one(along_shape, None),
        along_reference,
        along_body,
        along_axes,
        along_samples,
        Motion.PICK,
        needed=along_needed,
    ),
)
