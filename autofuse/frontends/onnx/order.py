"""Rules for ONNX operators that run along an axis, put elements in order, or mark places."""

from __future__ import annotations

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxResult, OnnxRule, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import moves
from autofuse.graph.composites import order as composites_order
from autofuse.graph.types import Value
from autofuse.graph.writer import normal_axes
from autofuse.ops.dtypes import DType

I32 = DType.I32


def _running(op: str, first: int) -> OnnxRule:
    """A running fold, from the end when `reverse`; when `exclusive`, of what came before."""

    def rule(c: OnnxCall) -> Value:
        w, own = c.w, c.dtype(0)
        x = c.value(0, own.compute)
        (axis,) = normal_axes(c.ints(1, "the axis")[0], len(w.shape(x)))
        reverse, n = bool(c["reverse"]), w.shape(x)[axis]
        if c["exclusive"] and n:
            start, stop = (1, n) if reverse else (0, n - 1)
            kept = w.part(x, axis, start, stop)
            low, high = ([int(a == axis and end) for a in range(len(w.shape(x)))]
                         for end in (not reverse, reverse))  # fmt: skip
            x = moves.pad(w, kept, w.scalar(first, x), low, high)
        return w.cast(composites.running(w, op, x, axis, reverse), own)

    return rule


def _trilu(c: OnnxCall) -> Value:
    """One triangle of matrices, whose diagonal may be computed."""
    w, x = c.w, c.value(0)
    shape, upper = w.shape(x), bool(c["upper"])
    k = c.w.reshape(c.value(1, I32), ()) if c.has(1) else w.constant(0, I32)
    if 0 in shape:
        return x
    kept = w.map("ge" if upper else "le", moves.diagonals(w, *shape[-2:]), k)
    return w.select(kept, x, w.constant(0 if w.dtype(x) is not DType.BOOL else False, w.dtype(x)))


def _top_k(c: OnnxCall) -> tuple[Value, Value]:
    """The largest or smallest elements in order, of equal ones the first, and their places."""
    w, x = c.w, c.value(0)
    (axis,) = normal_axes(int(c["axis"]), len(w.shape(x)))
    count = int(c["k"]) if c.version < 10 else c.ints(1, "how many")[0]
    if not 0 <= count <= w.shape(x)[axis]:
        raise FrontendError(f"{count} of {w.shape(x)[axis]} elements are asked for")
    if c.attr("largest", 1):
        found, places = composites_order.top_k(w, x, count, axis)
    else:
        places = w.part(composites_order.argsort(w, x, axis), axis, 0, count)
        found = composites_order.take_along(w, x, places, axis)
    return found, w.cast(places, DType.I64)


def _one_hot(c: OnnxCall) -> Value:
    """The second of two values where a new axis equals the index, negative ones counted from its
    end, else the first."""
    w, depth = c.w, c.ints(1, "the depth")[0]
    at = c.value(0)
    if w.dtype(at).is_float:
        at = w.cast(at, DType.I64)
    elif not w.dtype(at).is_signed:
        at = w.cast(at, DType.I64 if w.dtype(at) is DType.U32 else I32)
    elif w.dtype(at).itemsize == 1:
        at = w.cast(at, I32)
    shape = w.shape(at)
    (axis,) = normal_axes(int(c["axis"]), len(shape) + 1)
    at = w.select(w.map("lt", at, 0), w.add(at, depth), at)
    made = (*shape[:axis], depth, *shape[axis:])
    wanted = w.broadcast(at, made, [a for a in range(len(made)) if a != axis])
    here = w.map("eq", wanted, w.iota(made, w.dtype(at), axis))
    values = c.value(2)
    off, on = (w.reshape(w.part(values, 0, k, k + 1), ()) for k in (0, 1))
    return w.select(here, *(w.spread(v, made) for v in (on, off)))


def _unique(c: OnnxCall) -> OnnxResult:
    """Of known elements only: how many there are decides the shape."""
    known = c.known(0)
    if known is None or c.attr("axis") is not None or not c.attr("sorted", 1):
        raise FrontendError("how many different elements there are is not known before it is run")
    found = np.unique(known, return_index=True, return_inverse=True, return_counts=True)
    return [found[0], *(np.asarray(each, np.int64).reshape(-1) for each in found[1:])]


def _tensor_scatter(c: OnnxCall) -> Value:
    """A cache with rows written from a place of its own for each of the batch; with mode circular
    places beyond the end begin again."""
    w, cache, update = c.w, c.value(0), c.value(1)
    shape = w.shape(cache)
    (axis,) = normal_axes(int(c["axis"]), len(shape))
    extent, count = shape[axis], w.shape(update)[axis]
    if axis == 0:
        raise FrontendError("the batch axis cannot be written along")
    start = c.value(2, I32) if c.has(2) else w.full(0, shape[:1], I32)
    start = w.reshape(start, (shape[0], *(1 for _ in shape[1:])))
    behind = w.sub(w.iota(shape, I32, axis), start)
    if str(c["mode"]) == "circular":
        behind = w.select(w.map("lt", behind, 0), w.add(behind, extent), behind)
    written = w.map("and", w.map("ge", behind, 0), w.map("lt", behind, count))
    within = w.map("clamp", behind, 0, max(count - 1, 0))
    if not count:
        return cache
    rest = [0] * len(shape)
    filled = moves.pad(
        w, update, w.constant(0, w.dtype(update)), rest,
        [extent - count if a == axis else 0 for a in range(len(shape))],
    )  # fmt: skip
    return w.select(written, composites_order.take_along(w, filled, within, axis), cache)


ONNX_ORDER: OnnxRules = {
    (STANDARD, "CumProd", 1): _running("cumprod", 1),
    (STANDARD, "CumSum", 11): _running("cumsum", 0),
    (STANDARD, "OneHot", 9): _one_hot,
    (STANDARD, "TensorScatter", 24): _tensor_scatter,
    (STANDARD, "TopK", 1): _top_k,
    (STANDARD, "Trilu", 14): _trilu,
    (STANDARD, "Unique", 11): _unique,
}
