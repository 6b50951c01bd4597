"""Rules for jax primitives that read or write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.jax_types import PrimitiveRule, static_shape
from autofuse.graph.composites_moves import (
    index_of,
    overwrite,
    placed,
    slice_at,
    start_within,
)
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType

I32 = DType.I32
# A scatter of several windows becomes that many updates one after another.
_MAX_WINDOWS = 16


def _dynamic_slice(w: GraphWriter, eqn: Any, x: Value, *starts: Value) -> Value:
    return slice_at(w, x, starts, tuple(map(int, eqn.params["slice_sizes"])))


def _dynamic_update_slice(
    w: GraphWriter, eqn: Any, x: Value, update: Value, *starts: Value
) -> Value:
    room = [n - m for n, m in zip(w.shape(x), w.shape(update), strict=True)]
    at = [start_within(w, s, r) for s, r in zip(starts, room, strict=True)]
    return overwrite(w, x, update, at)


def _mode(eqn: Any) -> str:
    return str(eqn.params["mode"]).rpartition(".")[2].upper()


def _gather(w: GraphWriter, eqn: Any, x: Value, starts: Value) -> Value:
    out_shape = static_shape(eqn.outvars[0].aval)
    result = _take(w, eqn, x, starts, out_shape)
    if result is None:
        result = _take_anywhere(w, eqn, x, starts, out_shape)
    if "FILL" not in _mode(eqn):
        return result
    return _filled(w, eqn, x, starts, result)


def _batch_axes(eqn: Any, rank: int) -> tuple[int, ...]:
    offset = eqn.params["dimension_numbers"].offset_dims
    return tuple(a for a in range(rank) if a not in offset)


def _component(w: GraphWriter, starts: Value, k: int) -> Value:
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
    whole = all(a == axis or int(m) == n for a, (m, n) in enumerate(zip(sizes, shape, strict=True)))
    if tuple(numbers.collapsed_slice_dims) != (axis,) or int(sizes[axis]) != 1 or not whole:
        return None
    taken = w.op("gather", x, _component(w, starts, 0), axis=axis)
    rank = len(w.shape(starts)) - 1
    indexed = iter(range(axis, axis + rank))
    rest = iter(a for a in range(len(out_shape)) if not axis <= a < axis + rank)
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
            start = _component(w, starts, numbers.start_index_map.index(axis))
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


def _inside(
    w: GraphWriter, starts: Value, axes: Sequence[int], shape: Shape, sizes: Sequence[int]
) -> Value:
    """Where a whole window of `sizes` lies within `shape`; `axes` name the index components."""
    inside = w.constant(True, DType.BOOL)
    for k, axis in enumerate(axes):
        start = index_of(w, _component(w, starts, k))
        inside = w.map("and", inside, w.map("ge", start, 0))
        inside = w.map("and", inside, w.map("le", start, shape[axis] - int(sizes[axis])))
    return inside


def _filled(w: GraphWriter, eqn: Any, x: Value, starts: Value, result: Value) -> Value:
    """`result` with the fill value where an index is out of range."""
    axes = eqn.params["dimension_numbers"].start_index_map
    inside = _inside(w, starts, axes, w.shape(x), eqn.params["slice_sizes"])
    known = w.known(inside)
    if known is not None and known.all():
        return result
    fill, dtype = eqn.params["fill_value"], w.dtype(x)
    if fill is None:
        fill = np.nan if dtype.is_float else True
        if dtype.is_int:
            info = np.iinfo(dtype.numpy)
            fill = info.min if dtype.is_signed else info.max
    shape = w.shape(result)
    mask = w.broadcast(inside, shape, _batch_axes(eqn, len(shape))[: len(w.shape(inside))])
    return w.select(mask, result, w.full(fill, shape, dtype))


def _scatter(op: str | None) -> PrimitiveRule:
    """Windows written into (or combined by `op` with) the operand, one after another."""

    def rule(w: GraphWriter, eqn: Any, x: Value, starts: Value, updates: Value) -> Value:
        numbers = eqn.params["dimension_numbers"]
        if numbers.operand_batching_dims:
            raise FrontendError("a batched scatter is not supported")
        batch, vector = w.shape(starts)[:-1], w.shape(starts)[-1]
        count = math.prod(batch)
        if count > _MAX_WINDOWS:
            raise FrontendError(
                f"a scatter of {count} windows is not supported, only {_MAX_WINDOWS}"
            )
        rank = len(w.shape(updates))
        lead = [a for a in range(rank) if a not in numbers.update_window_dims]
        updates = w.transpose(updates, (*lead, *numbers.update_window_dims))
        updates = w.reshape(updates, (count, *w.shape(updates)[len(lead) :]))
        starts = w.reshape(starts, (count, vector))
        for i in range(count):
            start = w.reshape(w.part(starts, 0, i, i + 1), (vector,))
            x = _write(w, eqn, x, start, w.part(updates, 0, i, i + 1), op)
        return x

    return rule


def _write(
    w: GraphWriter, eqn: Any, x: Value, start: Value, update: Value, op: str | None
) -> Value:
    """One window written at the index vector `start`; dropped where it does not fit."""
    numbers, shape = eqn.params["dimension_numbers"], w.shape(x)
    extents = iter(w.shape(update)[1:])
    inserted = numbers.inserted_window_dims
    sizes = [1 if a in inserted else next(extents) for a in range(len(shape))]
    axes = tuple(numbers.scatter_dims_to_operand_dims)
    at = [w.constant(0, I32)] * len(shape)
    for k, axis in enumerate(axes):
        at[axis] = start_within(w, _component(w, start, k), shape[axis] - sizes[axis])
    update = w.reshape(update, sizes)
    if op is None:
        written = overwrite(w, x, update, at)
    else:
        moved, inside = placed(w, shape, update, at)
        written = w.select(inside, w.map(op, x, moved), x)
    if "FILL" not in _mode(eqn):
        return written
    return w.select(_inside(w, start, axes, shape, sizes), written, x)


_SCATTERS = {"": None, "-add": "add", "-mul": "mul", "-min": "min", "-max": "max"}
INDEX_RULES: dict[str, PrimitiveRule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **{f"scatter{suffix}": _scatter(op) for suffix, op in _SCATTERS.items()},
    **{f"scatter{suffix}".replace("-", "_"): _scatter(op) for suffix, op in _SCATTERS.items()},
}
