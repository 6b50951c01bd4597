"""Rules for jax primitives that read or write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.jax_emit import Emitter, FrontendError, Shape, logical_shape
from autofuse.frontends.jax_rules import Rule
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType

I32 = DType.I32
# A scatter of several windows becomes that many updates one after another.
_MAX_WINDOWS = 16


def _index(e: Emitter, start: Value, room: int) -> Value:
    """A start index as i32, brought into 0..room."""
    known = e.known_int(start)
    if known is not None:
        return e.constant(np.int32(min(max(known, 0), room)))
    span = e.span(start)
    if span is not None and span[0] >= 0 and span[1] <= room:
        return e.cast(start, I32)
    return e.cast(e.clip(start, 0, room), I32)


def _dynamic_slice(e: Emitter, eqn: Any, x: Value, *starts: Value) -> Value:
    sizes = tuple(map(int, eqn.params["slice_sizes"]))
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        n = e.shape(x)[axis]
        if size == n:
            continue
        at = _index(e, start, n - size)
        known = e.known_int(at)
        if known is not None:
            x = e.part(x, axis, known, known + size)
        else:
            at = e.reshape(at, (1,)) if size == 1 else e.add(e.iota((size,), I32, 0), at)
            x = e.op("gather", x, at, axis=axis)
    return x


def _dynamic_update_slice(e: Emitter, eqn: Any, x: Value, update: Value, *starts: Value) -> Value:
    room = [n - m for n, m in zip(e.shape(x), e.shape(update), strict=True)]
    at = [_index(e, s, r) for s, r in zip(starts, room, strict=True)]
    return _overwrite(e, x, update, at)


def _overwrite(e: Emitter, x: Value, update: Value, starts: Sequence[Value]) -> Value:
    """`update` written into `x` at `starts`, which are in range."""
    partial = [a for a, n in enumerate(e.shape(x)) if n != e.shape(update)[a]]
    if not partial:
        return update
    axis, known = partial[0], e.known_int(starts[partial[0]])
    if len(partial) == 1 and known is not None:
        end = known + e.shape(update)[axis]
        parts = e.part(x, axis, 0, known), update, e.part(x, axis, end, e.shape(x)[axis])
        return e.concat(parts, axis)
    moved, inside = _placed(e, e.shape(x), update, starts)
    return e.select(inside, moved, x)


def _placed(
    e: Emitter, shape: Shape, update: Value, starts: Sequence[Value]
) -> tuple[Value, Value]:
    """`update` moved to `starts` in an array of `shape` (anything elsewhere), and where it is."""
    inside = e.constant(np.True_)
    for axis, (start, n) in enumerate(zip(starts, shape, strict=True)):
        size = e.shape(update)[axis]
        if size == n:
            continue
        offset = e.map("sub", e.iota((n,), I32, 0), start)
        here = e.map("ge", offset, e.constant(np.int32(0)))
        here = e.map("and", here, e.map("lt", offset, e.constant(np.int32(size))))
        inside = e.map("and", inside, e.broadcast(here, shape, (axis,)))
        if size == 1:
            wide = (*e.shape(update)[:axis], n, *e.shape(update)[axis + 1 :])
            update = e.broadcast(update, wide, range(len(wide)))
        else:
            update = e.op("gather", update, offset, axis=axis)
    return update, inside


def _mode(eqn: Any) -> str:
    return str(eqn.params["mode"]).rpartition(".")[2].upper()


def _gather(e: Emitter, eqn: Any, x: Value, starts: Value) -> Value:
    out_shape = logical_shape(eqn.outvars[0].aval)
    result = _take(e, eqn, x, starts, out_shape)
    if result is None:
        result = _take_anywhere(e, eqn, x, starts, out_shape)
    if "FILL" not in _mode(eqn):
        return result
    return _filled(e, eqn, x, starts, result)


def _batch_axes(eqn: Any, rank: int) -> tuple[int, ...]:
    offset = eqn.params["dimension_numbers"].offset_dims
    return tuple(a for a in range(rank) if a not in offset)


def _component(e: Emitter, starts: Value, k: int) -> Value:
    """Entry `k` of every index vector."""
    shape = e.shape(starts)
    return e.reshape(e.part(starts, len(shape) - 1, k, k + 1), shape[:-1])


def _take(e: Emitter, eqn: Any, x: Value, starts: Value, out_shape: Shape) -> Value | None:
    """The form of x[..., indices, ...]: whole slices along every other axis."""
    numbers, sizes = eqn.params["dimension_numbers"], eqn.params["slice_sizes"]
    shape = e.shape(x)
    if len(numbers.start_index_map) != 1 or numbers.operand_batching_dims:
        return None
    axis = int(numbers.start_index_map[0])
    whole = all(a == axis or int(m) == n for a, (m, n) in enumerate(zip(sizes, shape, strict=True)))
    if tuple(numbers.collapsed_slice_dims) != (axis,) or int(sizes[axis]) != 1 or not whole:
        return None
    taken = e.op("gather", x, _component(e, starts, 0), axis=axis)
    rank = len(e.shape(starts)) - 1
    indexed = iter(range(axis, axis + rank))
    rest = iter(a for a in range(len(out_shape)) if not axis <= a < axis + rank)
    batch = _batch_axes(eqn, len(out_shape))
    perm = [next(indexed) if a in batch else next(rest) for a in range(len(out_shape))]
    return e.transpose(taken, perm)


def _take_anywhere(e: Emitter, eqn: Any, x: Value, starts: Value, out_shape: Shape) -> Value:
    """Any gather: element numbers in the flattened operand, computed axis by axis."""
    numbers, sizes = eqn.params["dimension_numbers"], tuple(map(int, eqn.params["slice_sizes"]))
    shape, batch = e.shape(x), _batch_axes(eqn, len(out_shape))
    if math.prod(shape) >= 2**31:
        raise FrontendError("a gather from 2**31 elements or more is not supported")
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    window = iter(numbers.offset_dims)
    at = e.full(0, out_shape, I32)
    for axis, n in enumerate(shape):
        parts = []
        if axis in numbers.start_index_map:
            start = _component(e, starts, numbers.start_index_map.index(axis))
            start = e.cast(e.clip(start, 0, n - sizes[axis]), I32)
            parts.append(e.broadcast(start, out_shape, batch))
        if axis in numbers.operand_batching_dims:
            place = numbers.operand_batching_dims.index(axis)
            along = batch[numbers.start_indices_batching_dims[place]]
            parts.append(e.broadcast(e.iota((n,), I32, 0), out_shape, (along,)))
        if axis not in dropped:
            steps = e.iota((sizes[axis],), I32, 0)
            parts.append(e.broadcast(steps, out_shape, (next(window),)))
        stride = e.constant(np.int32(math.prod(shape[axis + 1 :])))
        for part in parts:
            at = e.add(at, e.mul(part, stride))
    return e.op("gather", e.reshape(x, (math.prod(shape),)), at, axis=0)


def _inside(
    e: Emitter, starts: Value, axes: Sequence[int], shape: Shape, sizes: Sequence[int]
) -> Value:
    """Where a whole window of `sizes` lies within `shape`; `axes` name the index components."""
    inside = e.constant(np.True_)
    for k, axis in enumerate(axes):
        start = _component(e, starts, k)
        room = e.scalar(shape[axis] - int(sizes[axis]), start)
        inside = e.map("and", inside, e.map("ge", start, e.scalar(0, start)))
        inside = e.map("and", inside, e.map("le", start, room))
    return inside


def _filled(e: Emitter, eqn: Any, x: Value, starts: Value, result: Value) -> Value:
    """`result` with the fill value where an index is out of range."""
    axes = eqn.params["dimension_numbers"].start_index_map
    inside = _inside(e, starts, axes, e.shape(x), eqn.params["slice_sizes"])
    known = e.known.get(inside)
    if known is not None and known.all():
        return result
    fill, dtype = eqn.params["fill_value"], e.dtype(x)
    if fill is None:
        fill = np.nan if dtype.is_float else True
        if dtype.is_int:
            info = np.iinfo(dtype.numpy)
            fill = info.min if dtype.is_signed else info.max
    shape = e.shape(result)
    mask = e.broadcast(inside, shape, _batch_axes(eqn, len(shape))[: len(e.shape(inside))])
    return e.select(mask, result, e.full(fill, shape, dtype))


def _scatter(op: str | None) -> Rule:
    """Windows written into (or combined by `op` with) the operand, one after another."""

    def rule(e: Emitter, eqn: Any, x: Value, starts: Value, updates: Value) -> Value:
        numbers = eqn.params["dimension_numbers"]
        if numbers.operand_batching_dims:
            raise FrontendError("a batched scatter is not supported")
        batch, vector = e.shape(starts)[:-1], e.shape(starts)[-1]
        count = math.prod(batch)
        if count > _MAX_WINDOWS:
            raise FrontendError(
                f"a scatter of {count} windows is not supported, only {_MAX_WINDOWS}"
            )
        rank = len(e.shape(updates))
        lead = [a for a in range(rank) if a not in numbers.update_window_dims]
        updates = e.transpose(updates, (*lead, *numbers.update_window_dims))
        updates = e.reshape(updates, (count, *e.shape(updates)[len(lead) :]))
        starts = e.reshape(starts, (count, vector))
        for i in range(count):
            start = e.reshape(e.part(starts, 0, i, i + 1), (vector,))
            x = _write(e, eqn, x, start, e.part(updates, 0, i, i + 1), op)
        return x

    return rule


def _write(e: Emitter, eqn: Any, x: Value, start: Value, update: Value, op: str | None) -> Value:
    """One window written at the index vector `start`; dropped where it does not fit."""
    numbers, shape = eqn.params["dimension_numbers"], e.shape(x)
    extents = iter(e.shape(update)[1:])
    inserted = numbers.inserted_window_dims
    sizes = [1 if a in inserted else next(extents) for a in range(len(shape))]
    axes = tuple(numbers.scatter_dims_to_operand_dims)
    at = [e.constant(np.int32(0))] * len(shape)
    for k, axis in enumerate(axes):
        at[axis] = _index(e, _component(e, start, k), shape[axis] - sizes[axis])
    update = e.reshape(update, sizes)
    if op is None:
        written = _overwrite(e, x, update, at)
    else:
        moved, inside = _placed(e, shape, update, at)
        written = e.select(inside, e.map(op, x, moved), x)
    if "FILL" not in _mode(eqn):
        return written
    return e.select(_inside(e, start, axes, shape, sizes), written, x)


_SCATTERS = {"": None, "-add": "add", "-mul": "mul", "-min": "min", "-max": "max"}
INDEX_RULES: dict[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    **{f"scatter{suffix}": _scatter(op) for suffix, op in _SCATTERS.items()},
    **{f"scatter{suffix}".replace("-", "_"): _scatter(op) for suffix, op in _SCATTERS.items()},
}
