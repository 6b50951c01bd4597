"""Composites that put elements in order: sorting by one or more keys, and the k largest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.composites.moves import pad
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.reduction import lowest

# Rows below this many elements, or this many times those asked for, are sorted as a whole.
_LONG, _SHARE = 256, 16


def argsort(w: GraphWriter, v: Value, axis: int = -1, descending: bool = False) -> Value:
    """Positions (i32) along `axis` in the order of the elements; equal ones keep their order, and a
    NaN is above every number."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    key = w.cast(v, DType.U8) if w.dtype(v) is DType.BOOL else v
    return w.op("argsort", key, axis=at, descending=descending)


def total_order_key(w: GraphWriter, v: Value) -> Value:
    """Integers in the total order of floats (IEEE 754-2008, section 5.10): -NaN, -inf, negative
    numbers, -0, +0, positive numbers, inf, NaN. Integers are their own keys."""
    dtype = w.dtype(v)
    if not dtype.is_float:
        return v
    whole = from_numpy(np.dtype(f"i{dtype.itemsize}"))
    bits = w.bitcast(v, whole)
    most = np.iinfo(whole.numpy).max
    return w.select(w.map("lt", bits, 0), w.map("xor", bits, most), bits)


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
    places = best_places(w, v, k, axis)
    return take_along(w, v, places, axis), places


def best_places(w: GraphWriter, v: Value, k: int, axis: int = -1) -> Value:
    """Where (i32) the `k` largest elements along `axis` are, the largest first; of equal ones the
    first."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    turned = [*(a for a in range(len(w.shape(v))) if a != at), at]
    back = sorted(range(len(turned)), key=turned.__getitem__)
    return w.transpose(_best_in_rows(w, w.transpose(v, turned), k), back)


def _best_in_rows(w: GraphWriter, v: Value, k: int) -> Value:
    """Where the `k` largest elements along the last axis are.

    In long rows they lie in those k blocks whose largest elements are the largest, of equal ones
    the first: only the largest of each block, and then the elements of k blocks, are sorted."""
    n = w.shape(v)[-1]
    if n < _LONG or n < _SHARE * k:
        return _first_in_order(w, v, k)
    size = 1 << ((n // k).bit_length() // 2)
    blocks = _in_blocks(w, w.cast(v, DType.U8) if w.dtype(v) is DType.BOOL else v, size)
    chosen = _first_in_order(w, w.reduce("reduce_max", blocks, -1), k)
    # In the order of the row, so that of equal elements the first stays first.
    chosen = take_along(w, chosen, argsort(w, chosen))
    lead = w.shape(v)[:-1]
    whole = w.broadcast(chosen, (*lead, k, size), range(len(lead) + 1))
    found = w.reshape(take_along(w, blocks, whole, -2), (*lead, k * size))
    own = _first_in_order(w, found, k)
    block = take_along(w, chosen, w.map("div", own, size))
    return w.add(w.map("mul", block, size), w.map("rem", own, size))


def _first_in_order(w: GraphWriter, v: Value, k: int) -> Value:
    axis = len(w.shape(v)) - 1
    return w.part(argsort(w, v, axis, descending=True), axis, 0, k)


def _in_blocks(w: GraphWriter, v: Value, size: int) -> Value:
    """The last axis as blocks of `size`, the last one filled up with what is below all others."""
    *lead, n = w.shape(v)
    count = -(-n // size)
    least = w.constant(lowest(w.dtype(v)).value, w.dtype(v))
    padded = pad(w, v, least, (0,) * (len(lead) + 1), (*(0,) * len(lead), count * size - n))
    return w.reshape(padded, (*lead, count, size))
