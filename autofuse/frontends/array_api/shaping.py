"""Array functions that make arrays and move elements: creation, reshaping, joining, indexing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import (
    DEFAULT_FLOAT,
    DEFAULT_INT,
    as_array,
    as_dtype,
    common_dtype,
    is_weak,
)
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.errors import TraceError
from autofuse.graph import writer
from autofuse.graph.composites import moves as composites
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

ShapeLike = int | Sequence[int]


def axis_in(axis: Any, ndim: int) -> int:
    """`axis` counted from the front; raises TraceError when out of range."""
    if not isinstance(axis, int | np.integer) or not -ndim <= axis < ndim:
        raise TraceError(f"axis {axis!r} is out of range for an array with {ndim} axes")
    return int(axis) % ndim


def axes_in(axis: Any, ndim: int) -> tuple[int, ...]:
    """Distinct axes in increasing order; None means all."""
    if axis is None:
        return tuple(range(ndim))
    parts = (axis,) if isinstance(axis, int | np.integer) else tuple(axis)
    found = sorted(axis_in(a, ndim) for a in parts)
    if len(set(found)) != len(found):
        raise TraceError(f"axis {axis!r} names an axis twice")
    return tuple(found)


def shape_of(shape: ShapeLike) -> tuple[int, ...]:
    """A shape given as an integer or a sequence."""
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)


# Creation.


def asarray(value: Any, dtype: Any = None) -> TracedArray:
    """A number, list of numbers, NumPy array or traced array as a traced array."""
    return as_array(value, None if dtype is None else as_dtype(dtype))


def full(shape: ShapeLike, fill_value: Any, dtype: Any = None) -> TracedArray:
    """An array of one value (a number or a scalar array)."""
    return broadcast_to(asarray(fill_value, dtype), shape_of(shape))


def zeros(shape: ShapeLike, dtype: Any = DEFAULT_FLOAT) -> TracedArray:
    return full(shape, 0, dtype)


def ones(shape: ShapeLike, dtype: Any = DEFAULT_FLOAT) -> TracedArray:
    return full(shape, 1, dtype)


def full_like(x: TracedArray, fill_value: Any, dtype: Any = None) -> TracedArray:
    return full(x.shape, fill_value, dtype or x.dtype)


def zeros_like(x: TracedArray, dtype: Any = None) -> TracedArray:
    return full_like(x, 0, dtype)


def ones_like(x: TracedArray, dtype: Any = None) -> TracedArray:
    return full_like(x, 1, dtype)


def iota(shape: ShapeLike, axis: int, dtype: DType) -> TracedArray:
    """The position along `axis` at every element."""
    extents = shape_of(shape)
    at = axis_in(axis, len(extents))
    return current().write(GraphWriter.iota, extents, dtype, at)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> TracedArray:
    """start, start + step, ... below stop, from Python numbers."""
    low, high = (0, start) if stop is None else (start, stop)
    if not all(is_weak(v) for v in (low, high, step)) or step == 0:
        raise TraceError("arange takes Python numbers and a step that is not zero")
    count = max(0, math.ceil((high - low) / step))
    whole = all(isinstance(v, int) for v in (low, high, step))
    kind = as_dtype(dtype) if dtype is not None else DEFAULT_INT if whole else DEFAULT_FLOAT
    out = iota(count, 0, kind)
    out = out if step == 1 else out * step
    return out if low == 0 else out + low


def linspace(start: float, stop: float, num: int, dtype: Any = DEFAULT_FLOAT) -> TracedArray:
    """`num` evenly spaced values from start to stop, both included."""
    step = (stop - start) / max(1, num - 1)
    return iota(num, 0, as_dtype(dtype)) * step + float(start)


def eye(n: int, m: int | None = None, k: int = 0, dtype: Any = DEFAULT_FLOAT) -> TracedArray:
    """Ones on diagonal `k`, zeros elsewhere."""
    shape = (n, n if m is None else m)
    return current().write(composites.eye, *shape, k, as_dtype(dtype))


# ShapeLike.


def reshape(x: Any, shape: ShapeLike) -> TracedArray:
    """The same elements in row-major order; one extent may be -1."""
    array, wanted = as_array(x), list(shape_of(shape))
    if wanted.count(-1) == 1:
        rest = math.prod(n for n in wanted if n != -1)
        wanted[wanted.index(-1)] = array.size // rest if rest else 0
    if math.prod(wanted) != array.size or any(n < 0 for n in wanted):
        raise TraceError(f"cannot reshape {array.type} to {shape_of(shape)}")
    return current().write(GraphWriter.reshape, array, tuple(wanted))


def broadcast_to(x: Any, shape: ShapeLike) -> TracedArray:
    """`x` repeated along new axes and axes of extent 1, as NumPy does."""
    return current().write(GraphWriter.spread, as_array(x), shape_of(shape))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape NumPy broadcasts `shapes` to."""
    try:
        return writer.broadcast_shapes(*shapes)
    except GraphError as error:
        raise TraceError(str(error)) from None


def broadcast_arrays(*arrays: Any) -> tuple[TracedArray, ...]:
    found = [as_array(a) for a in arrays]
    shape = broadcast_shapes(*(a.shape for a in found))
    return tuple(broadcast_to(a, shape) for a in found)


def expand_dims(x: Any, axis: int = 0) -> TracedArray:
    array = as_array(x)
    at = axis_in(axis, array.ndim + 1)
    return reshape(array, (*array.shape[:at], 1, *array.shape[at:]))


def squeeze(x: Any, axis: int | Sequence[int] | None = None) -> TracedArray:
    """Drop axes of extent 1 (all of them by default)."""
    array = as_array(x)
    ones_at = tuple(i for i, n in enumerate(array.shape) if n == 1)
    gone = ones_at if axis is None else axes_in(axis, array.ndim)
    if not set(gone) <= set(ones_at):
        raise TraceError(f"cannot squeeze axis {axis!r} of {array.type}: its extent is not 1")
    return reshape(array, [n for i, n in enumerate(array.shape) if i not in gone])


def permute_dims(x: Any, axes: Sequence[int] | None = None) -> TracedArray:
    """Axis i of the result is axis `axes[i]` of `x`; reversed by default."""
    array = as_array(x)
    given = tuple(reversed(range(array.ndim))) if axes is None else axes
    perm = tuple(axis_in(a, array.ndim) for a in given)
    if sorted(perm) != list(range(array.ndim)):
        raise TraceError(f"{tuple(given)} is not a permutation of {array.ndim} axes")
    return current().write(GraphWriter.transpose, array, perm)


def matrix_transpose(x: Any) -> TracedArray:
    """The last two axes swapped."""
    return swapaxes(x, -2, -1)


def swapaxes(x: Any, axis1: int, axis2: int) -> TracedArray:
    array = as_array(x)
    perm = list(range(array.ndim))
    a, b = axis_in(axis1, array.ndim), axis_in(axis2, array.ndim)
    perm[a], perm[b] = b, a
    return permute_dims(array, perm)


def moveaxis(x: Any, source: int, destination: int) -> TracedArray:
    array = as_array(x)
    perm = list(range(array.ndim))
    perm.remove(axis_in(source, array.ndim))
    perm.insert(axis_in(destination, array.ndim), axis_in(source, array.ndim))
    return permute_dims(array, perm)


# Joining and moving.


def concat(arrays: Sequence[Any], axis: int | None = 0) -> TracedArray:
    """Arrays one after another along `axis` (None: flattened first)."""
    dtype = common_dtype(*arrays)
    parts = [as_array(a, dtype) for a in arrays]
    if axis is None:
        parts = [reshape(p, (-1,)) for p in parts]
    at = axis_in(axis or 0, parts[0].ndim)
    first = parts[0].shape
    for part in parts[1:]:
        same = part.shape[:at] + part.shape[at + 1 :] == first[:at] + first[at + 1 :]
        if not same or part.ndim != len(first):
            raise TraceError(f"cannot concatenate {parts[0].type} and {part.type} along axis {at}")
    return current().write(GraphWriter.concat, parts, at)


def stack(arrays: Sequence[Any], axis: int = 0) -> TracedArray:
    """Arrays of one shape along a new axis."""
    at = axis_in(axis, as_array(arrays[0]).ndim + 1)
    return concat([expand_dims(a, at) for a in arrays], at)


def unstack(x: Any, axis: int = 0) -> tuple[TracedArray, ...]:
    """The slices along `axis`."""
    return tuple(moveaxis(x, axis, 0))


def flip(x: Any, axis: int | Sequence[int] | None = None) -> TracedArray:
    array = as_array(x)
    return current().write(GraphWriter.reverse, array, axes_in(axis, array.ndim))


def roll(x: Any, shift: Any, axis: Any = None) -> TracedArray:
    """Elements moved `shift` places, those pushed out coming back at the start."""
    array = as_array(x)
    if axis is None:
        return reshape(roll(reshape(array, (-1,)), shift, 0), array.shape)
    pairs = zip(np.atleast_1d(shift).tolist(), np.atleast_1d(axis).tolist(), strict=True)
    for by, ax in pairs:
        array = current().write(composites.roll, array, by, axis_in(ax, array.ndim))
    return array


def tile(x: Any, reps: ShapeLike) -> TracedArray:
    """`x` repeated `reps[i]` times along axis i."""
    return current().write(composites.tile, as_array(x), shape_of(reps))


def pad(x: Any, pad_width: Any, constant_values: Any = 0) -> TracedArray:
    """`x` with (before, after) elements of one value added on each axis."""
    array = as_array(x)
    widths = np.broadcast_to(np.asarray(pad_width), (array.ndim, 2)).tolist()
    low, high = tuple(w[0] for w in widths), tuple(w[1] for w in widths)
    return current().write(composites.pad, array, as_array(constant_values, array.dtype), low, high)


def take(x: Any, indices: Any, axis: int | None = None) -> TracedArray:
    """Elements at integer `indices` along `axis`; traced indices are clipped to the range."""
    array = as_array(x)
    if axis is None:
        if array.ndim != 1:
            raise TraceError("take needs an axis unless the array has exactly one")
        axis = 0
    at, where = axis_in(axis, array.ndim), as_array(indices)
    if not where.dtype.is_int:
        raise TraceError(f"indices must be integers, got {where.dtype}")
    return current().op("gather", array, where, axis=at)


def astype(x: Any, dtype: Any) -> TracedArray:
    """`x` converted to another dtype (floats to integers truncate)."""
    return as_array(x, as_dtype(dtype))


def result_type(*values: Any) -> DType:
    """The dtype `values` meet in."""
    return common_dtype(*values)


def tril(x: Any, k: int = 0) -> TracedArray:
    """The lower triangle, zeros elsewhere."""
    return current().write(composites.triangle, as_array(x), k, lower=True)


def triu(x: Any, k: int = 0) -> TracedArray:
    """The upper triangle, zeros elsewhere."""
    return current().write(composites.triangle, as_array(x), k, lower=False)
