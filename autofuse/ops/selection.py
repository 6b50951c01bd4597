"""Movement ops that choose between sources per element: pad, concat, gather, take_along.

These are their shape rules, references, bodies and axis maps; `movement` makes them rows.
"""

from __future__ import annotations

import numpy as np

from autofuse.ops import checks, needs
from autofuse.ops import index as ix
from autofuse.ops.dtypes import INDICES, DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import AxisMap, Sample, sampled
from autofuse.ops.types import GraphError, OpCall, TensorType
from autofuse.ops.views import WindowAt

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]


# pad


def pad_shape(c: OpCall) -> Shape:
    checks.operands(c, 2)
    checks.same_dtype(c)
    x, value = c.ins
    low, high = checks.ints_attr(c, "low"), checks.ints_attr(c, "high")
    if value.shape:
        raise GraphError(f"the padding value must be a scalar, got {value}")
    if not len(low) == len(high) == x.rank or any(n < 0 for n in (*low, *high)):
        raise GraphError(f"pad of {x} by {low} and {high}: need non-negative widths per axis")
    return tuple(lo + n + hi for lo, n, hi in zip(low, x.shape, high, strict=True))


def pad_reference(arrays: Arrays, c: OpCall) -> Arrays:
    out = np.full(c.out.shape, arrays[1], dtype=arrays[0].dtype)
    inner = zip(c["low"], c.ins[0].shape, strict=True)
    out[tuple(slice(lo, lo + n) for lo, n in inner)] = arrays[0]
    return (out,)


def pad_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    inside: Expr = Lit(True, DType.BOOL)
    moved: list[Expr] = []
    for i, lo, hi, n in zip(index, c["low"], c["high"], c.ins[0].shape, strict=True):
        at = ix.isub(i, ix.lit(lo))
        if lo or hi:
            inside = ix.iand(inside, ix.ige(i, ix.lit(lo)))
            inside = ix.iand(inside, ix.ilt(i, ix.lit(lo + n)))
            at = ix.iclamp(at, 0, n - 1)
        moved.append(at)
    if 0 in c.ins[0].shape or inside == Lit(False, DType.BOOL):
        return (pull(1, ()),)
    if isinstance(inside, Lit):
        return (pull(0, tuple(moved)),)
    return (call("select", inside, pull(0, tuple(moved)), pull(1, ())),)


def pad_axes(c: OpCall) -> AxisMap:
    widths = zip(c["low"], c["high"], strict=True)
    kept = tuple(None if lo or hi else a for a, (lo, hi) in enumerate(widths))
    return (kept, (None,) * len(kept))


def pad_needed(c: OpCall, made: int) -> tuple[int, ...]:
    inner = c.ins[0].size
    return (max(0, made - (c.out.size - inner)), int(made > inner))


# concat


def concat_shape(c: OpCall) -> Shape:
    if not c.ins:
        raise GraphError("concat needs at least one operand")
    checks.same_dtype(c)
    axis = checks.axis_attr(c, c.ins[0].rank)
    rests = {t.shape[:axis] + t.shape[axis + 1 :] for t in c.ins if t.rank == c.ins[0].rank}
    if len(rests) != 1 or any(t.rank != c.ins[0].rank for t in c.ins):
        shapes = ", ".join(map(str, c.ins))
        raise GraphError(f"concat along axis {axis}: shapes differ elsewhere: {shapes}")
    shape = list(c.ins[0].shape)
    shape[axis] = sum(t.shape[axis] for t in c.ins)
    return tuple(shape)


def concat_starts(c: OpCall) -> tuple[int, ...]:
    """Where each operand begins along the concatenated axis."""
    axis = c["axis"]
    ends = np.cumsum([t.shape[axis] for t in c.ins]).tolist()
    return (0, *ends[:-1])


def concat_reference(arrays: Arrays, c: OpCall) -> Arrays:
    return (np.concatenate(arrays, axis=c["axis"]),)


def concat_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    axis, at = c["axis"], index[c["axis"]]
    extents, starts = [t.shape[axis] for t in c.ins], concat_starts(c)
    low, high = ix.bounds(at) or (0, sum(extents) - 1)
    reached = [s <= high and s + n > max(low, 0) for s, n in zip(starts, extents, strict=True)]
    parts = [k for k, n in enumerate(extents) if n and reached[k]]

    def part(k: int) -> Expr:
        moved = ix.isub(at, ix.lit(starts[k]))
        if len(parts) > 1:
            moved = ix.iclamp(moved, 0, extents[k] - 1)
        return pull(k, (*index[:axis], moved, *index[axis + 1 :]))

    result = part(parts[-1])
    for k in reversed(parts[:-1]):
        before_end = ix.ilt(at, ix.lit(starts[k] + extents[k]))
        result = call("select", before_end, part(k), result)
    return (result,)


def concat_axes(c: OpCall) -> AxisMap:
    kept = tuple(None if a == c["axis"] else a for a in range(c.ins[0].rank))
    return (kept,) * len(c.ins)


def concat_needed(c: OpCall, made: int) -> tuple[int, ...]:
    return tuple(max(0, made - (c.out.size - t.size)) for t in c.ins)


# gather


def gather_shape(c: OpCall) -> Shape:
    checks.operands(c, 2)
    x, indices = c.ins
    checks.dtype_in(indices.dtype, INDICES)
    axis = checks.axis_attr(c, x.rank)
    if x.shape[axis] == 0 and indices.size:
        raise GraphError(f"cannot gather from axis {axis} of {x}: it is empty")
    return x.shape[:axis] + indices.shape + x.shape[axis + 1 :]


def gather_reference(arrays: Arrays, c: OpCall) -> Arrays:
    x, indices = arrays
    return (np.take(x, indices.astype(np.int64), axis=c["axis"], mode="clip"),)


def gather_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    axis, (x, indices) = c["axis"], c.ins
    after = axis + indices.rank
    chosen = pull.let(_clipped(pull(1, index[axis:after]), x.shape[axis]))
    return (pull(0, (*index[:axis], chosen, *index[after:])),)


def _clipped(at: Expr, extent: int) -> Expr:
    """A number from data as an index below `extent`. It is clamped before it is narrowed to the
    index type, so that far-off values stay on their side."""
    wide = cast(at, DType.I64 if at.dtype in (DType.I64, DType.U32) else DType.I32)
    top = Lit(extent - 1, wide.dtype)
    clipped = call("min", call("max", wide, Lit(0, wide.dtype)), top)
    return cast(clipped, ix.lit(0).dtype)


def gather_axes(c: OpCall) -> AxisMap:
    axis, x_rank, rank = c["axis"], c.ins[0].rank, c.ins[1].rank
    x_axes = (*range(axis), *(None,) * rank, *range(axis + 1, x_rank))
    index_axes = (*(None,) * axis, *range(rank), *(None,) * (x_rank - axis - 1))
    return (x_axes, index_axes)


def gather_needed(c: OpCall, made: int) -> tuple[int, ...]:
    """The indices may all be equal, but they must be known."""
    return (1, needs.share(c, made)[1])


def gather_window(c: OpCall) -> WindowAt | None:
    """A gather at one place is a window of one row."""
    return None if c.ins[1].rank else WindowAt((c["axis"],), (1,), 1)


def gather_samples() -> list[Sample]:
    def make(x: Shape, dtype: DType, indices: Shape, kind: DType, axis: int) -> Sample:
        return Sample((TensorType(x, dtype), TensorType(indices, kind)), {"axis": axis}, -3, 8)

    f32, i32 = DType.F32, DType.I32
    found = [
        make((5,), f32, (), i32, 0),
        make((5,), f32, (3,), i32, 0),
        make((3, 5), f32, (2, 3), i32, 0),
        make((3, 5), f32, (4,), i32, 1),
        make((2, 3, 5), f32, (3, 1), i32, 1),
        make((1, 1), f32, (2,), i32, 1),
    ]
    found += [make((3, 5), f32, (7,), kind, 1) for kind in sampled(INDICES)]
    found += [make((300,), f32, (7,), DType.I8, 0)]
    return found + [make((3, 5), dtype, (2,), i32, 1) for dtype in sampled(DType)]


# take_along


def along_shape(c: OpCall) -> Shape:
    checks.operands(c, 2)
    x, indices = c.ins
    checks.dtype_in(indices.dtype, INDICES)
    axis = checks.axis_attr(c, x.rank)
    elsewhere = [t.shape[:axis] + t.shape[axis + 1 :] for t in c.ins]
    if indices.rank != x.rank or elsewhere[0] != elsewhere[1]:
        raise GraphError(f"take_along axis {axis} of {x} by {indices}: shapes differ elsewhere")
    if x.shape[axis] == 0 and indices.size:
        raise GraphError(f"cannot take from axis {axis} of {x}: it is empty")
    return indices.shape


def along_reference(arrays: Arrays, c: OpCall) -> Arrays:
    x, indices = arrays
    at = np.clip(indices.astype(np.int64), 0, max(0, x.shape[c["axis"]] - 1))
    return (np.take_along_axis(x, at, axis=c["axis"]),)


def along_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    axis = c["axis"]
    chosen = pull.let(_clipped(pull(1, index), c.ins[0].shape[axis]))
    return (pull(0, (*index[:axis], chosen, *index[axis + 1 :])),)


def along_axes(c: OpCall) -> AxisMap:
    every = tuple(range(c.ins[0].rank))
    return (tuple(None if a == c["axis"] else a for a in every), every)


def along_needed(c: OpCall, made: int) -> tuple[int, ...]:
    """The indices may all be equal, but they must be known."""
    return (1, made)


def along_samples() -> list[Sample]:
    def make(x: Shape, dtype: DType, taken: int, kind: DType, axis: int) -> Sample:
        indices = TensorType((*x[:axis], taken, *x[axis + 1 :]), kind)
        return Sample((TensorType(x, dtype), indices), {"axis": axis}, -3, 8)

    cases = [((5,), 3, 0), ((3, 5), 2, 0), ((3, 5), 7, 1), ((2, 3, 5), 3, 1), ((2, 3), 1, 1)]
    found = [make(x, DType.F32, taken, DType.I32, axis) for x, taken, axis in cases]
    found += [make((3, 5), DType.F32, 4, kind, 1) for kind in sampled(INDICES)]
    return found + [make((3, 5), dtype, 2, DType.I32, 1) for dtype in sampled(DType)]
