"""Rules for jax primitives that read at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax.types import PrimitiveRule, static_shape
from autofuse.graph.composites.moves import (
    index_of,
    overwrite,
    slice_at,
    start_within,
)
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType

I32 = DType.I32


def _dynamic_slice(w: GraphWriter, eqn: Any, x: Value, *starts: Value) -> Value:
    return slice_at(w, x, starts, tuple(map(int, eqn.params["slice_sizes"])))


def _dynamic_update_slice(
    w: GraphWriter, eqn: Any, x: Value, update: Value, *starts: Value
) -> Value:
    return overwrite(w, x, update, starts)


def mode_of(eqn: Any) -> str:
    """What becomes of places out of range."""
    return str(eqn.params["mode"]).rpartition(".")[2].upper()


def _gather(w: GraphWriter, eqn: Any, x: Value, starts: Value) -> Value:
    out_shape = static_shape(eqn.outvars[0].aval)
    result = _take(w, eqn, x, starts, out_shape)
    if result is None:
        result = _take_anywhere(w, eqn, x, starts, out_shape)
    if "FILL" not in mode_of(eqn):
        return result
    return _filled(w, eqn, x, starts, result)


def _batch_axes(eqn: Any, rank: int) -> tuple[int, ...]:
    offset = eqn.params["dimension_numbers"].offset_dims
    return tuple(a for a in range(rank) if a not in offset)


def component(w: GraphWriter, starts: Value, k: int) -> Value:
    """Entry `k` of every index vector."""
    shape = w.shape(starts)
    return w.reshape(w.part(starts, len(shape) - 1, k, k + 1), shape[:-1])


def _take(w: GraphWriter, eqn: Any, x: Value, starts: Value, out_shape: Shape) -> Value | None:
    """The form of x[..., indices, ...]: whole slices along every other axis."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = w.shape(x)
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return None
    axis = int(numbers.start_index_map[0])
    row = [1 if a == axis else n for a, n in enumerate(shape)]
    if tuple(numbers.collapsed_slice_dims) != (axis,) or list(map(int, sizes)) != row:
        return None
    taken = w.op("gather", x, component(w, starts, 0), axis=axis)
    rank = len(w.shape(starts)) - 1
    indexed = iter(range(axis, axis + rank))
    rest = iter((*range(axis), *range(axis + rank, len(out_shape))))
    batch = _batch_axes(eqn, len(out_shape))
    perm = [next(indexed) if a in batch else next(rest) for a in range(len(out_shape))]
    return w.transpose(taken, perm)


def _take_anywhere(w: GraphWriter, eqn: Any, x: Value, starts: Value, out_shape: Shape) -> Value:
    """Any gather: element numbers in the flattened operand, computed axis by axis."""
    numbers, sizes = eqn.params["dimension_numbers"], tuple(map(int, eqn.params["slice_sizes"]))
    shape, batch = w.shape(x), _batch_axes(eqn, len(out_shape))
    if math.prod(shape) >= 2**31:
        raise FrontendError("a gather from 2**31 elements or more is not supported")
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = iter(numbers.offset_dims)
    at = w.full(0, out_shape, I32)
    for axis, n in enumerate(shape):
        parts = []
        if axis in numbers.start_index_map:
            start = component(w, starts, numbers.start_index_map.index(axis))
            start = start_within(w, start, n - sizes[axis])
            parts.append(w.broadcast(start, out_shape, batch))
        if axis in numbers.operand_batching_dims:
            place = numbers.operand_batching_dims.index(axis)
            along = batch[numbers.start_indices_batching_dims[place]]
            parts.append(w.broadcast(w.iota((n,), I32, 0), out_shape, (along,)))
        if axis not in dropped:
            steps = w.iota((sizes[axis],), I32, 0)
            parts.append(w.broadcast(steps, out_shape, (next(window),)))
        stride = math.prod(shape[axis + 1 :])
        for part in parts:
            at = w.add(at, w.mul(part, stride))
    return w.op("gather", w.reshape(x, (math.prod(shape),)), at, axis=0)


def inside(
    w: GraphWriter, starts: Value, axes: Sequence[int], shape: Shape, sizes: Sequence[int]
) -> Value:
    """Where a whole window of `sizes` lies within `shape`; `axes` name the index components."""
    fits = w.constant(True, DType.BOOL)
    for k, axis in enumerate(axes):
        start = index_of(w, component(w, starts, k))
        fits = w.map("and", fits, w.map("ge", start, 0))
        fits = w.map("and", fits, w.map("le", start, shape[axis] - int(sizes[axis])))
    return fits


def _filled(w: GraphWriter, eqn: Any, x: Value, starts: Value, result: Value) -> Value:
    """`result` with the fill value where an index is out of range."""
    axes = eqn.params["dimension_numbers"].start_index_map
    there = inside(w, starts, axes, w.shape(x), eqn.params["slice_sizes"])
    known = w.known(there)
    if known is not None and known.all():
        return result
    fill, dtype = eqn.params["fill_value"], w.dtype(x)
    if fill is None:
        fill = np.nan if dtype.is_float else True
        if dtype.is_int:
            info = np.iinfo(dtype.numpy)
            fill = info.min if dtype.is_signed else info.max
    shape = w.shape(result)
    mask = w.broadcast(there, shape, _batch_axes(eqn, len(shape))[: len(w.shape(there))])
    return w.select(mask, result, w.full(fill, shape, dtype))


INDEX_RULES: dict[str, PrimitiveRule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
}
