"""Rules for ONNX operators that fold over axes, and for softmax and its kin."""

from __future__ import annotations

import math
from collections.abc import Callable

from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import activations
from autofuse.graph.composites import layers as composites
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes
from autofuse.ops.dtypes import DType

_Fold = Callable[[GraphWriter, Value, tuple[int, ...]], Value]


def axes_of_reduction(c: OnnxCall) -> tuple[int, ...] | None:
    """The axes, from the front: an attribute or an operand, all where there are none; None where
    none at all are meant."""
    rank = len(c.shape(0))
    if c.attr("axes") is not None:
        given = tuple(int(a) for a in c["axes"])
    else:
        given = c.ints(1, "the axes") if c.has(1) else ()
    if given:
        return normal_axes(given, rank)
    return None if c.attr("noop_with_empty_axes", 0) else tuple(range(rank))


def _reduction(fold: _Fold) -> OnnxRule:
    """A fold with kept axes, in the dtype that the operand is computed in."""

    def rule(c: OnnxCall) -> Value:
        w, own, axes = c.w, c.dtype(0), axes_of_reduction(c)
        found = fold(w, c.value(0, own.compute), () if axes is None else axes)
        if axes is not None and not c["keepdims"]:
            shape = [n for a, n in enumerate(c.shape(0)) if a not in axes]
            found = w.reshape(found, shape)
        return w.cast(found, own)

    return rule


def _kept(op: str, before: str = "", after: str = "") -> _Fold:
    """A reduction of what `before` gives, and `after` of it; "square" is no op of its own."""

    def fold(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
        x = w.mul(x, x) if before == "square" else w.map(before, x) if before else x
        found = w.reduce(op, x, axes, keepdims=True) if axes else x
        return w.map(after, found) if after else found

    return fold


def _extreme(op: str, of_bools: str) -> _Fold:
    def fold(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
        name = of_bools if w.dtype(x) is DType.BOOL else op
        return w.reduce(name, x, axes, keepdims=True) if axes else x

    return fold


def _mean(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
    if w.dtype(x).is_float:
        return composites.mean(w, x, axes, keepdims=True) if axes else x
    count = math.prod(w.shape(x)[a] for a in axes)
    return w.div(w.reduce("reduce_sum", x, axes, keepdims=True), max(count, 1)) if axes else x


def _log_sum_exp(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
    if not axes:
        return x
    if 0 in w.shape(x):
        return w.map("log", w.reduce("reduce_sum", x, axes, keepdims=True))
    return composites.logsumexp(w, x, axes, keepdims=True)


def _of_floats(fold: _Fold) -> _Fold:
    """Logarithms and roots of whole numbers are computed in f64 and cut."""

    def floating(w: GraphWriter, x: Value, axes: tuple[int, ...]) -> Value:
        own = w.dtype(x)
        if own.is_float:
            return fold(w, x, axes)
        return w.cast(fold(w, w.cast(x, DType.F64), axes), own)

    return floating


# Positions


def _position(op: str) -> OnnxRule:
    """argmax or argmin along one axis as i64; of equal elements the first, or the last."""

    def rule(c: OnnxCall) -> Value:
        w, x = c.w, c.value(0)
        shape = w.shape(x)
        (axis,) = normal_axes(int(c["axis"]), len(shape))
        x = w.cast(x, DType.I32) if w.dtype(x).itemsize == 1 else x
        last = bool(c.attr("select_last_index", 0))
        found = w.op(op, w.reverse(x, axis) if last else x, axis=axis)
        if last:
            found = w.sub(shape[axis] - 1, found)
        kept = [1 if a == axis else n for a, n in enumerate(shape)]
        found = w.cast(found, DType.I64)
        return w.reshape(found, kept) if c["keepdims"] else found

    return rule


# Softmax


def _rows(function: Callable[[GraphWriter, Value, int], Value]) -> OnnxRule:
    """Along one axis; before version 13, along `axis` and all after it, laid out as one."""

    def rule(c: OnnxCall) -> Value:
        w, own = c.w, c.dtype(0)
        x, shape = c.value(0, own.compute), c.shape(0)
        (axis,) = normal_axes(int(c["axis"]), len(shape))
        if c.version < 13:
            rows = math.prod(shape[:axis])
            x, axis = w.reshape(x, (rows, math.prod(shape[axis:]))), 1
        return w.cast(w.reshape(function(w, x, axis), shape), own)

    return rule


def _hardmax(w: GraphWriter, x: Value, axis: int) -> Value:
    """1 at the first largest element."""
    place = w.op("argmax", x, axis=axis)
    shape = w.shape(x)
    kept = w.reshape(place, [1 if a == axis else n for a, n in enumerate(shape)])
    steps = w.iota(shape, w.dtype(place), axis)
    return w.cast(w.map("eq", steps, w.spread(kept, shape)), w.dtype(x))


_FOLDS: dict[str, _Fold] = {
    "ReduceL1": _kept("reduce_sum", "abs"),
    "ReduceL2": _of_floats(_kept("reduce_sum", "square", "sqrt")),
    "ReduceLogSum": _of_floats(_kept("reduce_sum", after="log")),
    "ReduceLogSumExp": _of_floats(_log_sum_exp),
    "ReduceMax": _extreme("reduce_max", "reduce_any"),
    "ReduceMean": _mean,
    "ReduceMin": _extreme("reduce_min", "reduce_all"),
    "ReduceProd": _kept("reduce_prod"),
    "ReduceSum": _kept("reduce_sum"),
    "ReduceSumSquare": _kept("reduce_sum", "square"),
}
ONNX_REDUCTIONS: OnnxRules = {
    **{(STANDARD, name, 1): _reduction(fold) for name, fold in _FOLDS.items()},
    (STANDARD, "ArgMax", 1): _position("argmax"),
    (STANDARD, "ArgMin", 1): _position("argmin"),
    (STANDARD, "Hardmax", 1): _rows(_hardmax),
    (STANDARD, "LogSoftmax", 1): _rows(activations.log_softmax),
    (STANDARD, "Softmax", 1): _rows(activations.softmax),
}
