"""The one way a constant is written: a number repeated, a position scaled and shifted, an interval
of positions, or a small literal."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType
from autofuse.simplify.draft import Draft

# Elements of a literal that may stand for what was computed: kernels read literals from memory.
SMALL = 64
# Largest whole number up to which each float has every one.
_WHOLE = {DType.F64: 2**53, DType.F32: 2**24, DType.F16: 2**11, DType.BF16: 2**8}


def written(draft: Draft, array: np.ndarray, kind: TensorType, room: int = SMALL) -> Value | None:
    """The value of type `kind` that a compressed array is written as; None where it has no form of
    at most `room` elements."""
    if 0 in kind.shape:
        return draft.full(np.zeros((), kind.dtype.numpy), kind)
    if array.size == 1:
        return draft.full(array.reshape(()), kind)
    varying = [axis for axis, n in enumerate(array.shape) if n > 1]
    found = _by_position(draft, array, kind, varying)
    if found is not None or array.size > room:
        return found
    small = draft.literal(array.reshape([array.shape[a] for a in varying]), kind.dtype)
    if array.size == kind.size:
        return draft.reshape(small, kind.shape)
    return draft.spread(small, kind.shape, varying)


def _by_position(
    draft: Draft, array: np.ndarray, kind: TensorType, varying: list[int]
) -> Value | None:
    """An array as something that is computed of positions along the axes that it varies along."""
    if len(varying) > 1:
        return _box(draft, array, kind, varying) if kind.dtype is DType.BOOL else None
    made = _interval if kind.dtype is DType.BOOL else _affine
    return made(draft, array.reshape(-1), kind, varying[0])


def interval(line: np.ndarray) -> tuple[int, int] | None:
    """Where a line of bools is true, if that is one run: from, to."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], line, [False]]).astype(np.int8)))
    return (int(edges[0]), int(edges[1])) if edges.size == 2 else None


def _interval(draft: Draft, line: np.ndarray, kind: TensorType, axis: int) -> Value | None:
    run, gap = interval(line), interval(~line)
    at = draft.add("iota", shape=kind.shape, dtype=str(DType.I32), axis=axis)

    def test(op: str, place: int) -> Value:
        return draft.add(op, at, draft.full(place, TensorType(kind.shape, DType.I32)))

    if run is not None:
        (low, high), last = run, line.size
        if low == 0 or high == last:
            return test("ge", low) if low else test("lt", high)
        if high - low == 1:
            return test("eq", low)
        return draft.add("and", test("ge", low), test("lt", high))
    if gap is not None:
        low, high = gap
        if high - low == 1:
            return test("ne", low)
        return draft.add("or", test("lt", low), test("ge", high))
    return None


def _box(draft: Draft, array: np.ndarray, kind: TensorType, varying: list[int]) -> Value | None:
    """A mask that is true where a mask of each axis is: all of them."""
    lines = [
        array.any(axis=tuple(a for a in range(array.ndim) if a != axis), keepdims=True)
        for axis in varying
    ]
    if not np.array_equal(np.logical_and.reduce(np.broadcast_arrays(*lines)), array):
        return None
    found = [
        _interval(draft, line.reshape(-1), kind, axis)
        for line, axis in zip(lines, varying, strict=True)
    ]
    value = found[0]
    for other in found[1:]:
        if value is None or other is None:
            return None
        value = draft.add("and", value, other)
    return value


def progression(line: np.ndarray) -> tuple[int, int] | None:
    """(start, step) of a line of at least two whole numbers that are evenly spaced."""
    whole = line.astype(np.int64)
    if not np.array_equal(whole.astype(line.dtype), line):
        return None
    start, step = int(whole[0]), int(whole[1]) - int(whole[0])
    if abs(step) > DType.I64.limits[1]:
        return None
    even = np.array_equal(whole, start + step * np.arange(line.size, dtype=np.int64))
    return (start, step) if even else None


def _holds(dtype: DType, start: int, step: int, size: int) -> bool:
    """Whether every number on the way to `start + step * size` is one of the type."""
    reach = max(abs(start), abs(step) * size, abs(start + step * size))
    most = _WHOLE[dtype] if dtype.is_float else int(np.iinfo(dtype.numpy).max)
    least = -most if dtype.is_float or dtype.is_signed else 0
    return reach <= most and min(start, step) >= least


def _affine(draft: Draft, line: np.ndarray, kind: TensorType, axis: int) -> Value | None:
    """iota * step + start, where every product and sum is exact."""
    dtype = kind.dtype
    with np.errstate(all="ignore"):
        if dtype.is_float and not np.isfinite(line).all():
            return None
        found = progression(line)
    if found is None:
        return None
    start, step = found
    # Minus zero is no multiple of a position, and a negative multiple of none is minus zero.
    if dtype.is_float and (step < 0 or bool((np.signbit(line) & (line == 0)).any())):
        return None
    if not _holds(dtype, start, step, line.size):
        return None
    value = draft.add("iota", shape=kind.shape, dtype=str(dtype), axis=axis)
    if step != 1:
        value = draft.add("mul", value, draft.full(step, kind))
    return draft.add("add", value, draft.full(start, kind)) if start else value
