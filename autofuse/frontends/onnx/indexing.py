"""Rules for ONNX operators that read and write at places which are operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.graph.composites import scatter as composites_scatter
from autofuse.graph.composites.resample import pick_along
from autofuse.graph.types import Value
from autofuse.graph.writer import normal_axes
from autofuse.ops.dtypes import DType

I32 = DType.I32
_LARGEST = 2**31
_COMBINED = {
    "none": "scatter", "add": "scatter_add", "mul": "scatter_mul", "max": "scatter_max",
    "min": "scatter_min",
}  # fmt: skip


def _places(c: OnnxCall, k: int, extent: int) -> Value:
    """Operand `k` as places along `extent` elements, i32, negative ones counted from the end."""
    if extent >= _LARGEST:
        raise FrontendError(f"places along {extent} elements are not supported")
    known = c.known(k)
    if known is not None:
        _check(known, extent)
        return c.w.constant(np.where(known < 0, known + extent, known).astype(np.int32))
    at = c.value(k, I32)
    return c.w.select(c.w.map("lt", at, 0), c.w.add(at, extent), at)


def _check(known: np.ndarray, extent: int) -> None:
    if known.size and (int(known.min()) < -extent or int(known.max()) >= extent):
        raise FrontendError(f"a place is outside of {extent} elements")


def _axis(c: OnnxCall, default: int = 0) -> int:
    return normal_axes(int(c.attr("axis", default)), len(c.shape(0)))[0]


def _gather(c: OnnxCall) -> Value:
    """Slices at places; known ones in a row are parts, so that nothing is looked up."""
    w, x, axis = c.w, c.value(0), _axis(c)
    shape, lead = c.shape(0), c.shape(1)
    made = (*shape[:axis], *lead, *shape[axis + 1 :])
    if 0 in made:
        return w.full(0, made, w.dtype(x))
    known = c.known(1)
    if known is not None and known.ndim <= 1:
        _check(known, shape[axis])
        flat = np.atleast_1d(np.where(known < 0, known + shape[axis], known))
        return w.reshape(pick_along(w, x, axis, flat), made)
    return w.op("gather", x, _places(c, 1, shape[axis]), axis=axis)


def _gather_elements(c: OnnxCall) -> Value:
    """Along the other axes the places may be fewer than the elements."""
    w, x, axis = c.w, c.value(0), _axis(c)
    at = _places(c, 1, c.shape(0)[axis])
    for a, n in enumerate(w.shape(at)):
        x = x if a == axis else w.part(x, a, 0, n)
    if 0 in w.shape(at):
        return w.full(0, w.shape(at), w.dtype(x))
    return w.op("take_along", x, at, axis=axis)


def _gather_nd(c: OnnxCall) -> Value:
    """Indices of the first axes after `batch_dims`, laid out as one axis."""
    w, x, batch = c.w, c.value(0), int(c.attr("batch_dims", 0))
    shape, where = c.shape(0), c.shape(1)
    if not where or batch >= len(where) or len(shape) < batch + where[-1]:
        raise FrontendError(f"indices {list(where)} do not fit {list(shape)}")
    depth, rest = where[-1], shape[batch + where[-1] :]
    made = (*where[:-1], *rest)
    if 0 in made or 0 in shape:
        return w.full(0, made, w.dtype(x))
    lead = math.prod(shape[:batch])
    extents = (*shape[:batch], *shape[batch : batch + depth])
    at = _flat_places(c, 1, shape[batch : batch + depth])
    if batch:
        own = w.iota((lead,), I32, 0)
        offset = w.reshape(own, (*shape[:batch], *(1 for _ in where[batch:-1])))
        at = w.add(at, w.mul(offset, math.prod(shape[batch : batch + depth])))
    flat = w.reshape(x, (math.prod(extents), *rest))
    return w.op("gather", flat, w.spread(at, where[:-1]), axis=0)


def _flat_places(c: OnnxCall, k: int, extents: Sequence[int]) -> Value:
    """Index vectors (the last axis of operand `k`) as places in these axes laid out as one."""
    w, where = c.w, c.shape(k)
    if math.prod(extents) >= _LARGEST:
        raise FrontendError(f"places among {math.prod(extents)} elements are not supported")
    last = len(where) - 1
    at, found = c.value(k, I32), w.full(0, where[:-1], I32)
    for i, n in enumerate(extents):
        own = w.reshape(w.part(at, last, i, i + 1), where[:-1])
        own = w.select(w.map("lt", own, 0), w.add(own, n), own)
        found = own if i == 0 else w.add(w.mul(found, n), own)
    return found


# Writing


def _reduction(c: OnnxCall) -> str:
    name = str(c.attr("reduction", "none"))
    if name not in _COMBINED:
        raise FrontendError(f"reduction {name!r} is not supported")
    return _COMBINED[name]


def _scatter_elements(c: OnnxCall) -> Value:
    w, x, axis = c.w, c.value(0), _axis(c)
    if 0 in c.shape(1):
        return x
    at = _places(c, 1, c.shape(0)[axis])
    return composites_scatter.scatter_along(w, _reduction(c), x, at, c.value(2), axis)


def _scatter_nd(c: OnnxCall) -> Value:
    w, x = c.w, c.value(0)
    shape, where = c.shape(0), c.shape(1)
    if not where or where[-1] > len(shape):
        raise FrontendError(f"indices {list(where)} do not fit {list(shape)}")
    depth, count = where[-1], math.prod(where[:-1])
    if 0 in (count, *shape):
        return x
    if not depth:
        raise FrontendError("indices of no axes are not supported")
    columns = []
    at = w.reshape(c.value(1, I32), (count, depth))
    for i in range(depth):
        own = w.part(at, 1, i, i + 1)
        columns.append(w.select(w.map("lt", own, 0), w.add(own, shape[i]), own))
    window = (*(1 for _ in range(depth)), *shape[depth:])
    updates = w.reshape(c.value(2), (count, *window))
    places = w.concat(columns, 1)
    axes = tuple(range(depth))
    return composites_scatter.scattered(w, _reduction(c), x, places, updates, axes, 0)


def _compress(c: OnnxCall) -> Value:
    """Elements where a condition holds, which has to be known: how many it holds for decides the
    shape."""
    w, x = c.w, c.value(0)
    condition = np.flatnonzero(c.needs(1, "the condition"))
    axis = 0
    if c.attr("axis") is None:
        x = w.reshape(x, (-1,))
    else:
        axis = _axis(c)
    _check(condition, w.shape(x)[axis])
    if not condition.size:
        shape = w.shape(x)
        return w.full(0, (*shape[:axis], 0, *shape[axis + 1 :]), w.dtype(x))
    return pick_along(w, x, axis, condition)


def _non_zero(c: OnnxCall) -> np.ndarray:
    """Where elements are not zero: how many decides the shape, so they have to be known."""
    known = c.known(0)
    if known is None:
        raise FrontendError("how many elements are not zero is not known before it is run")
    return np.asarray(np.nonzero(known), np.int64)


ONNX_INDEXING: OnnxRules = {
    (STANDARD, "Compress", 9): _compress,
    (STANDARD, "Gather", 1): _gather,
    (STANDARD, "GatherElements", 11): _gather_elements,
    (STANDARD, "GatherND", 11): _gather_nd,
    (STANDARD, "NonZero", 9): _non_zero,
    (STANDARD, "Scatter", 9): _scatter_elements,
    (STANDARD, "ScatterElements", 11): _scatter_elements,
    (STANDARD, "ScatterND", 11): _scatter_nd,
}
