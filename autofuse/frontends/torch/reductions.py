"""Rules for aten overloads that fold over axes, run along one, or put elements in order."""

from __future__ import annotations

import math
from collections.abc import Callable

from autofuse.frontends.torch.elementwise import truth
from autofuse.frontends.torch.moves import axis_of
from autofuse.frontends.torch.types import TorchCall, TorchRule, axes_of
from autofuse.graph.composites import activations
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import order as composites_order
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

I32 = DType.I32
_OF_BOOLS = {"reduce_max": "reduce_any", "reduce_min": "reduce_all", "reduce_prod": "reduce_all"}


def _axes(c: TorchCall, x: Value) -> tuple[int, ...]:
    """Those of argument `dim`, or all where the overload has none."""
    return axes_of(c.given.get("dim"), len(c.w.shape(x)))


def _keeps(c: TorchCall) -> bool:
    return bool(c.given.get("keepdim", False))


def folded(w: GraphWriter, op: str, x: Value, axes: tuple[int, ...], keepdims: bool) -> Value:
    """A reduction; extremes and products of truth values are any and all of them."""
    name = _OF_BOOLS.get(op, op) if w.dtype(x) is DType.BOOL else op
    return w.reduce(name, x, axes, keepdims) if axes else x


def _reduce(op: str) -> TorchRule:
    """A fold in the dtype that the result is computed in."""

    def rule(c: TorchCall) -> Value:
        x = c.value("self", c.out.dtype.compute)
        return c.w.cast(folded(c.w, op, x, _axes(c, x), _keeps(c)), c.out.dtype)

    return rule


def _extreme(op: str) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        x = c.value("self")
        return folded(c.w, op, x, _axes(c, x), _keeps(c))

    return rule


def _truths(op: str) -> TorchRule:
    """any and all; of bytes torch makes bytes."""

    def rule(c: TorchCall) -> Value:
        x = truth(c.w, c.value("self"))
        axes = () if c.given.get("dim") == [] else _axes(c, x)
        return c.w.cast(folded(c.w, op, x, axes, _keeps(c)), c.out.dtype)

    return rule


def _mean(c: TorchCall) -> Value:
    """The mean of nothing is NaN."""
    w, x = c.w, c.value("self", c.out.dtype.compute)
    axes = _axes(c, x)
    if not math.prod(w.shape(x)[a] for a in axes):
        return w.full(math.nan, c.out.shape, c.out.dtype)
    return w.cast(composites.mean(w, x, axes, _keeps(c)) if axes else x, c.out.dtype)


def _log_of_sums(c: TorchCall) -> Value:
    w, x = c.w, c.value("self", c.out.dtype.compute)
    axes = _axes(c, x)
    found = composites.logsumexp(w, x, axes, bool(c["keepdim"])) if axes else x
    return w.cast(found, c.out.dtype)


def _variance(c: TorchCall, x: Value) -> Value:
    """Over count - correction, or over 0 where that is less."""
    w, axes = c.w, _axes(c, x)
    correction = 1.0 if c["correction"] is None else float(c["correction"])
    count = math.prod(w.shape(x)[a] for a in axes)
    if count - correction > 0:
        return composites.var(w, x, axes, _keeps(c), correction)
    spread = composites.var(w, x, axes, _keeps(c)) if count else w.full(0, c.out.shape, w.dtype(x))
    return w.div(w.mul(spread, count), 0.0)


def _var(c: TorchCall) -> Value:
    return c.w.cast(_variance(c, c.value("self", c.out.dtype.compute)), c.out.dtype)


def _var_mean(c: TorchCall) -> tuple[Value, Value]:
    return _var(c), _mean(c)


# Positions


def _positions(c: TorchCall, op: str, x: Value, axis: int, keepdims: bool) -> Value:
    """argmax or argmin along an axis as i64."""
    w, shape = c.w, c.w.shape(x)
    if not shape:
        return w.constant(0, DType.I64)
    x = w.cast(x, I32) if w.dtype(x) is DType.BOOL else x
    found = w.cast(w.op(op, x, axis=axis), DType.I64)
    kept = [1 if a == axis else n for a, n in enumerate(shape)]
    return w.reshape(found, kept) if keepdims else found


def _arg(op: str) -> TorchRule:
    """Without an axis, the position in the elements laid out flat."""

    def rule(c: TorchCall) -> Value:
        w, x = c.w, c.value("self")
        if c["dim"] is None:
            flat = w.reshape(x, (-1,))
            return w.reshape(_positions(c, op, flat, 0, False), c.out.shape)
        return _positions(c, op, x, axis_of(c["dim"], len(w.shape(x))), _keeps(c))

    return rule


def _extreme_and_place(op: str, arg: str) -> TorchRule:
    def rule(c: TorchCall) -> tuple[Value, Value]:
        x = c.value("self")
        axis = axis_of(c["dim"], len(c.w.shape(x)))
        axes = (axis,) if c.w.shape(x) else ()
        return folded(c.w, op, x, axes, _keeps(c)), _positions(c, arg, x, axis, _keeps(c))

    return rule


# Along an axis


def _running(op: str) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        w, x = c.w, c.value("self", c.out.dtype.compute)
        if not w.shape(x):
            return w.cast(x, c.out.dtype)
        return w.cast(composites.running(w, op, x, int(c["dim"])), c.out.dtype)

    return rule


def _running_extreme(op: str, holds: str) -> TorchRule:
    """Running extremes, and the last places where they were met."""

    def rule(c: TorchCall) -> tuple[Value, Value]:
        w, x = c.w, c.value("self")
        shape = w.shape(x)
        if not shape:
            return x, w.constant(0, DType.I64)
        axis = axis_of(c["dim"], len(shape))
        number = w.cast(x, I32) if w.dtype(x) is DType.BOOL else x
        found = w.op(op, number, axis=axis)
        met = w.map(holds, number, found)
        if w.dtype(number).is_float:
            met = w.map("or", met, w.map("isnan", number))
        places = w.select(met, w.iota(shape, I32, axis), 0)
        return w.cast(found, w.dtype(x)), w.cast(w.op("cummax", places, axis=axis), DType.I64)

    return rule


def _softmax(function: Callable[[GraphWriter, Value, int], Value]) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        w, x = c.w, c.value("self", c.out.dtype.compute)
        shape = w.shape(x)
        if not shape:
            x = w.reshape(x, (1,))
        found = function(w, x, axis_of(c["dim"], len(shape)))
        return w.cast(w.reshape(found, shape), c.out.dtype)

    return rule


# In order


def _ordered(c: TorchCall, descending: bool, count: int | None = None) -> tuple[Value, Value]:
    """The first `count` elements in order (None: all), and where they were."""
    w, x = c.w, c.value("self")
    shape = w.shape(x)
    if not shape:
        return x, w.constant(0, DType.I64)
    axis = axis_of(c["dim"], len(shape))
    order = composites_order.argsort(w, x, axis, descending)
    order = order if count is None else w.part(order, axis, 0, count)
    return composites_order.take_along(w, x, order, axis), w.cast(order, DType.I64)


def _sort(c: TorchCall) -> tuple[Value, Value]:
    return _ordered(c, bool(c["descending"]))


def _topk(c: TorchCall) -> tuple[Value, Value]:
    return _ordered(c, bool(c["largest"]), int(c["k"]))


TORCH_REDUCTIONS: dict[str, TorchRule] = {
    **{f"aten.any{kind}": _truths("reduce_any") for kind in (".default", ".dim", ".dims")},
    **{f"aten.all{kind}": _truths("reduce_all") for kind in (".default", ".dim", ".dims")},
    **{f"aten.prod{kind}": _reduce("reduce_prod") for kind in (".default", ".dim_int")},
    **{f"aten.mean{kind}": _mean for kind in (".default", ".dim")},
    **{f"aten.{op}.default": _running(op) for op in ("cumprod", "cumsum")},
    **{f"aten.sort{kind}": _sort for kind in (".default", ".stable")},
    "aten._log_softmax.default": _softmax(activations.log_softmax),
    "aten._softmax.default": _softmax(activations.softmax),
    "aten.amax.default": _extreme("reduce_max"),
    "aten.amin.default": _extreme("reduce_min"),
    "aten.argmax.default": _arg("argmax"),
    "aten.argmin.default": _arg("argmin"),
    "aten.cummax.default": _running_extreme("cummax", "ge"),
    "aten.cummin.default": _running_extreme("cummin", "le"),
    "aten.logcumsumexp.default": _running("cumlogsumexp"),
    "aten.logsumexp.default": _log_of_sums,
    "aten.max.default": _extreme("reduce_max"),
    "aten.max.dim": _extreme_and_place("reduce_max", "argmax"),
    "aten.min.default": _extreme("reduce_min"),
    "aten.min.dim": _extreme_and_place("reduce_min", "argmin"),
    "aten.sum.dim_IntList": _reduce("reduce_sum"),
    "aten.topk.default": _topk,
    "aten.var.correction": _var,
    "aten.var_mean.correction": _var_mean,
}
