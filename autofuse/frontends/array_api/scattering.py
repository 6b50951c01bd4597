"""Array functions that write at computed places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import as_array
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.array_api.shaping import axis_in, expand_dims, zeros
from autofuse.frontends.errors import TraceError
from autofuse.graph.composites import scatter as composites_scatter


def scatter(
    x: Any, indices: Any, updates: Any, /, *, axis: int | Sequence[int] = 0, combine: str = "set"
) -> TracedArray:
    """`x` with `updates` written, or combined by "add", "mul", "min" or "max", at `indices`.

    Along one `axis`, `indices` has any shape and `updates` that shape and the other axes of `x`;
    along several, the last axis of `indices` has a position for each. Updates broadcast and take
    the dtype of `x`. A position below 0 or past the end is left out; of several "set" at one place
    the last stays. Raises TraceError for what does not fit."""
    array, where = as_array(x), as_array(indices)
    if not where.dtype.is_int:
        raise TraceError(f"indices must be integers, got {where.dtype}")
    if isinstance(axis, int):
        where, axis = expand_dims(where, where.ndim), (axis,)
    axes = tuple(axis_in(a, array.ndim) for a in axis)
    if not where.ndim or where.shape[-1] != len(axes):
        raise TraceError(f"indices {where.type} have no position for each of {len(axes)} axes")
    new = as_array(updates, array.dtype)
    return current().write(composites_scatter.scatter_at, array, where, new, axes, combine)


def segment_sum(x: Any, segments: Any, count: int, /) -> TracedArray:
    """Sums of the rows of `x` that have the same number in `segments`, [count, ...]; rows of other
    numbers than 0 .. count - 1 are left out."""
    array = as_array(x)
    sums = zeros((count, *array.shape[1:]), array.dtype)
    return scatter(sums, segments, array, combine="add")
