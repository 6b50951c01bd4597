"""Moves of elements that the op table does not have: at places known now, and at computed ones.

Each function appends to a GraphWriter and returns a value. Axes count from the front.
"""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

I32 = DType.I32


# At places known now


def stack(w: GraphWriter, values: Sequence[Value], axis: int) -> Value:
    """Values of one shape along a new axis."""
    shape = w.shape(values[0])
    return w.concat([w.reshape(v, (*shape[:axis], 1, *shape[axis:])) for v in values], axis)


def split(w: GraphWriter, v: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    """Consecutive parts of `sizes` along `axis`."""
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return tuple(w.part(v, axis, end - n, end) for n, end in zip(sizes, ends, strict=True))


def tile(w: GraphWriter, v: Value, reps: Sequence[int]) -> Value:
    """`v` repeated reps[i] times along axis i; the shorter of shape and reps gets leading ones."""
    own = w.shape(v)
    rank = max(len(own), len(reps))
    shape = (1,) * (rank - len(own)) + own
    counts = (1,) * (rank - len(reps)) + tuple(reps)
    wide = [n for pair in zip(counts, shape, strict=True) for n in pair]
    repeated = w.broadcast(w.reshape(v, shape), wide, range(1, 2 * rank, 2))
    return w.reshape(repeated, [c * n for c, n in zip(counts, shape, strict=True)])


def roll(w: GraphWriter, v: Value, shift: int, axis: int) -> Value:
    """Elements moved `shift` places along `axis`, those pushed out coming back at the start."""
    n = w.shape(v)[axis]
    cut = -shift % n if n else 0
    return w.concat([w.part(v, axis, cut, n), w.part(v, axis, 0, cut)], axis) if cut else v


def pad(
    w: GraphWriter,
    v: Value,
    value: Value,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] = (),
) -> Value:
    """low[i] and high[i] elements of `value` (a scalar) around axis i, and interior[i] between
    neighbours; negative numbers at the ends cut instead."""
    for axis, between in enumerate(interior):
        v = _spaced(w, v, value, axis, between)
    start = [max(0, -n) for n in low]
    stop = [m - max(0, -n) for m, n in zip(w.shape(v), high, strict=True)]
    v = w.slice(v, start, stop)
    before, after = (tuple(max(0, int(n)) for n in widths) for widths in (low, high))
    return w.op("pad", v, value, low=before, high=after) if any((*before, *after)) else v


def _spaced(w: GraphWriter, v: Value, value: Value, axis: int, between: int) -> Value:
    """`between` copies of `value` between neighbours along `axis`."""
    shape = w.shape(v)
    n = shape[axis]
    if between == 0 or n <= 1:
        return v
    rank = len(shape) + 1
    apart = w.reshape(v, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
    high = tuple(between if a == axis + 1 else 0 for a in range(rank))
    padded = w.op("pad", apart, value, low=(0,) * rank, high=high)
    merged = w.reshape(padded, (*shape[:axis], n * (1 + between), *shape[axis + 1 :]))
    return w.part(merged, axis, 0, n + (n - 1) * between)


def diagonals(w: GraphWriter, rows: int, columns: int) -> Value:
    """i32[rows, columns]: the number of the diagonal that each element lies on, 0 the main one."""
    shape = (rows, columns)
    return w.sub(w.iota(shape, I32, 1), w.iota(shape, I32, 0))


def eye(w: GraphWriter, rows: int, columns: int, k: int, dtype: DType) -> Value:
    """Ones on diagonal `k`, zeros elsewhere."""
    return w.cast(w.map("eq", diagonals(w, rows, columns), k), dtype)


def triangle(w: GraphWriter, v: Value, k: int, lower: bool) -> Value:
    """The part of matrices below (or above) diagonal `k`, that one included; zeros elsewhere."""
    rows, columns = w.shape(v)[-2:]
    kept = w.map("le" if lower else "ge", diagonals(w, rows, columns), k)
    return w.select(kept, v, 0)


# At computed places


def index_of(w: GraphWriter, v: Value) -> Value:
    """Integers as an index dtype: narrow ones, which may not hold an extent, as i32, those of 64
    bits without a sign as i64, where what is too large for it is the largest."""
    if w.dtype(v) is DType.U64:
        return w.cast(w.map("min", v, DType.I64.limits[1]), DType.I64)
    return w.cast(v, I32) if w.dtype(v).itemsize < I32.itemsize else v


def start_within(w: GraphWriter, start: Value, room: int) -> Value:
    """Start indices as i32 brought into 0..room, by no op where their bounds say so."""
    span = w.span(start)
    if span is not None and span[0] >= 0 and span[1] <= room:
        return w.cast(start, I32)
    return w.cast(w.map("clamp", index_of(w, start), 0, room), I32)


def slice_at(w: GraphWriter, v: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Value:
    """A window of `sizes` at `starts` (() integers), moved so that it lies inside."""
    axes: list[int] = []
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        n = w.shape(v)[axis]
        known = 0 if size in (0, n) else w.known_int(start)
        if known is None:
            axes.append(axis)
        else:
            known = min(max(known, 0), n - size)
            v = w.part(v, axis, known, known + size)
    if not axes:
        return v
    at = [index_of(w, starts[a]) for a in axes]
    cut = tuple(int(sizes[a]) for a in axes)
    return w.op("dynamic_slice", v, *at, axes=tuple(axes), sizes=cut)


def overwrite(w: GraphWriter, v: Value, update: Value, starts: Sequence[Value]) -> Value:
    """`update` written into `v` at `starts` (() integers), moved so that it lies inside."""
    axes = [a for a, n in enumerate(w.shape(v)) if n != w.shape(update)[a]]
    if not axes or 0 in w.shape(update):
        return v if axes else update
    at = [index_of(w, starts[a]) for a in axes]
    return w.op("dynamic_update_slice", v, update, *at, axes=tuple(axes))
