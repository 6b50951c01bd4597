"""Composites that put elements in order: sorting by one or more keys, and the k largest."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes
from autofuse.ops.dtypes import DType


def argsort(w: GraphWriter, v: Value, axis: int = -1, descending: bool = False) -> Value:
    """Positions (i32) along `axis` in the order of the elements; equal ones keep their order, and a
    NaN is above every number."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    key = w.cast(v, DType.U8) if w.dtype(v) is DType.BOOL else v
    return w.op("argsort", key, axis=at, descending=descending)


def take_along(w: GraphWriter, v: Value, places: Value, axis: int = -1) -> Value:
    """The elements of `v` at `places` along `axis`, whose other axes are those of `v`; a place out
    of range counts as the nearest one that is not."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    return w.op("take_along", v, places, axis=at)


def sort(
    w: GraphWriter, values: Sequence[Value], axis: int = -1, keys: int = 1, descending: bool = False
) -> tuple[Value, ...]:
    """`values` of one shape, all in the order of the first `keys` of them: by the first, where that
    is equal by the second, and so on. Sorting by the last key first is stable and so the same."""
    order: Value | None = None
    for key in reversed(values[:keys]):
        moved = key if order is None else take_along(w, key, order, axis)
        own = argsort(w, moved, axis, descending)
        order = own if order is None else take_along(w, order, own, axis)
    if order is None:
        return tuple(values)
    return tuple(take_along(w, v, order, axis) for v in values)


def top_k(w: GraphWriter, v: Value, k: int, axis: int = -1) -> tuple[Value, Value]:
    """The `k` largest elements along `axis`, the largest first, and where (i32) they were; of equal
    ones the first."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    order = w.part(argsort(w, v, at, descending=True), at, 0, k)
    return take_along(w, v, order, at), order
