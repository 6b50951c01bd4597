"""Array functions that put elements in order. Equal elements keep their order, and a NaN is above
every number."""

from __future__ import annotations

from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import as_array
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.array_api.shaping import axis_in, broadcast_to
from autofuse.frontends.errors import TraceError
from autofuse.graph.composites import order as composites_order


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False) -> TracedArray:
    """Positions (i32) along `axis` in the order of the elements."""
    array = as_array(x)
    at = axis_in(axis, array.ndim)
    return current().write(composites_order.argsort, array, at, descending)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False) -> TracedArray:
    """The elements in order along `axis`."""
    array = as_array(x)
    return take_along_axis(array, argsort(array, axis=axis, descending=descending), axis=axis)


def top_k(x: Any, k: int, /, *, axis: int = -1) -> tuple[TracedArray, TracedArray]:
    """The `k` largest elements along `axis`, the largest first, and their positions (i32)."""
    array = as_array(x)
    at = axis_in(axis, array.ndim)
    if not 0 <= k <= array.shape[at]:
        raise TraceError(f"axis {axis} of {list(array.shape)} has no {k} largest elements")
    places = current().write(composites_order.best_places, array, k, at)
    return take_along_axis(array, places, axis=at), places


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> TracedArray:
    """The elements at integer `indices` along `axis`, of the same other axes; traced indices are
    clipped to the range."""
    array, where = as_array(x), as_array(indices)
    if not where.dtype.is_int:
        raise TraceError(f"indices must be integers, got {where.dtype}")
    at = axis_in(axis, array.ndim)
    if where.ndim != array.ndim:
        raise TraceError(f"indices have {where.ndim} axes, not the {array.ndim} of the array")
    shape = [n if a == at else array.shape[a] for a, n in enumerate(where.shape)]
    return current().write(composites_order.take_along, array, broadcast_to(where, shape), at)
