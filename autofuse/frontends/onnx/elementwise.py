"""Rules for ONNX operators that compute element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import numpy_dtype
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import math as composites_math
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType, from_numpy

Function = Callable[..., Value]
BOOL = DType.BOOL


def computed(c: OnnxCall, function: Function, values: Sequence[Value] | None = None) -> Value:
    """`function(w, *operands)` in the dtype of the first operand: halves are widened first and
    rounded once."""
    w, own = c.w, c.dtype(0)
    operands = c.values() if values is None else values
    return w.cast(function(w, *(w.cast(v, own.compute) for v in operands)), own)


def _mapped(op: str) -> Function:
    return lambda w, *values: w.map(op, *values)


def _rule(function: Function) -> OnnxRule:
    return lambda c: computed(c, function)


def _with(function: Callable[..., Value], *names: str) -> OnnxRule:
    """A function of the operand and float attributes."""

    def rule(c: OnnxCall) -> Value:
        numbers = [float(c[name]) for name in names]
        return computed(c, lambda w, x: function(w, x, *numbers), c.values()[:1])

    return rule


# Two operands


def _old_style(c: OnnxCall) -> list[Value]:
    """Operands before version 7, which broadcast only where they say so, from `axis` on."""
    w, (x, y) = c.w, c.values()
    if not c.attr("broadcast", 0):
        return [x, y]
    rank, own = len(w.shape(x)), len(w.shape(y))
    axis = int(c.attr("axis", rank - own)) % max(rank, 1)
    return [x, w.reshape(y, (*w.shape(y), *(1 for _ in range(rank - axis - own))))]


def _binary(function: Function, result: DType | None = None) -> OnnxRule:
    """A function of two operands; with `result` it gives that dtype, whatever theirs is."""

    def rule(c: OnnxCall) -> Value:
        operands = _old_style(c) if c.version < 7 else c.values()
        if result is None:
            return computed(c, function, operands)
        return function(c.w, *operands)

    return rule


def _compare(op: str) -> OnnxRule:
    return _binary(_mapped(op), BOOL)


def _power(c: OnnxCall) -> Value:
    """The result has the base's dtype; whole powers of whole numbers are exact below 2^53."""
    w, own, known = c.w, c.dtype(0), c.known(1)
    kind = own.compute if own.is_float else DType.F64
    if known is None or known.size != 1:
        return w.cast(w.map("pow", *_powers(c, kind)), own)
    exponent = float(known.reshape(()))
    small = 0 <= exponent <= composites_math.MAX_REPEATED_POWER and exponent.is_integer()
    found = composites_math.power(w, c.value(0, own if small else kind), exponent)
    return w.cast(w.spread(found, np.broadcast_shapes(c.shape(0), known.shape)), own)


def _powers(c: OnnxCall, kind: DType) -> tuple[Value, Value]:
    x, y = _old_style(c) if c.version < 7 else c.values()
    return c.w.cast(x, kind), c.w.cast(y, kind)


def _modulo(c: OnnxCall) -> Value:
    return computed(c, _mapped("rem") if c["fmod"] else composites_math.remainder)


def _shift(c: OnnxCall) -> Value:
    """Towards the left, or the right, where numbers with a sign keep it."""
    ops = {"LEFT": "shl", "RIGHT": "shr" if c.dtype(0).is_signed else "shr_logical"}
    if c["direction"] not in ops:
        raise FrontendError(f"direction {c['direction']!r} is not LEFT or RIGHT")
    return computed(c, _mapped(ops[c["direction"]]))


def _prelu(c: OnnxCall) -> Value:
    """The slope broadcasts to the operand; before version 7 a row has one for each channel."""
    w, x, slope = c.w, c.value(0), c.value(1)
    rank = len(w.shape(x))
    if c.version < 7 and len(w.shape(slope)) == 1 and rank > 1 and w.shape(slope) != (1,):
        slope = w.reshape(slope, (-1, *(1 for _ in range(rank - 2))))

    def function(w: GraphWriter, x: Value, slope: Value) -> Value:
        return w.select(w.map("lt", x, 0), w.mul(slope, x), x)

    return computed(c, function, [x, w.spread(slope, w.shape(x))])


# Any number of operands


def _several(function: Function) -> OnnxRule:
    def rule(c: OnnxCall) -> Value:
        return computed(c, lambda w, *values: reduce(lambda x, y: function(w, x, y), values))

    return rule


def _mean(c: OnnxCall) -> Value:
    def function(w: GraphWriter, *values: Value) -> Value:
        return w.div(reduce(w.add, values), float(len(values)))

    return computed(c, function)


def _where(c: OnnxCall) -> Value:
    w = c.w
    chosen = w.aligned(c.value(1), c.value(2))
    return w.select(c.value(0), *chosen)


# Activations


def leaky_relu(w: GraphWriter, x: Value, alpha: float) -> Value:
    return w.select(w.map("lt", x, 0), w.mul(alpha, x), x)


def elu(w: GraphWriter, x: Value, alpha: float) -> Value:
    return w.select(w.map("gt", x, 0), x, w.mul(alpha, w.map("expm1", x)))


def _celu(w: GraphWriter, x: Value, alpha: float) -> Value:
    below = w.mul(alpha, w.map("expm1", w.div(x, alpha)))
    return w.add(w.map("max", x, 0.0), w.map("min", below, 0.0))


def _selu(w: GraphWriter, x: Value, alpha: float, gamma: float) -> Value:
    return w.mul(gamma, elu(w, x, alpha))


def hard_sigmoid(w: GraphWriter, x: Value, alpha: float, beta: float) -> Value:
    return w.map("clamp", w.add(w.mul(alpha, x), beta), 0.0, 1.0)


def _hard_swish(w: GraphWriter, x: Value) -> Value:
    return w.mul(x, hard_sigmoid(w, x, 1 / 6, 0.5))


def softplus(w: GraphWriter, x: Value) -> Value:
    return composites_math.logaddexp(w, x, w.scalar(0.0, x))


def _mish(w: GraphWriter, x: Value) -> Value:
    return w.mul(x, w.map("tanh", softplus(w, x)))


def softsign(w: GraphWriter, x: Value) -> Value:
    return w.div(x, w.add(1.0, w.map("abs", x)))


def _swish(w: GraphWriter, x: Value, alpha: float) -> Value:
    return w.mul(x, w.map("logistic", x if alpha == 1 else w.mul(alpha, x)))


def thresholded_relu(w: GraphWriter, x: Value, alpha: float) -> Value:
    return w.select(w.map("gt", x, alpha), x, 0.0)


def _shrink(w: GraphWriter, x: Value, bias: float, threshold: float) -> Value:
    above = w.select(w.map("gt", x, threshold), w.sub(x, bias), 0.0)
    return w.select(w.map("lt", x, -threshold), w.add(x, bias), above)


def _gelu(c: OnnxCall) -> Value:
    tanh = c["approximate"] == "tanh"
    return computed(c, lambda w, x: composites.gelu(w, x, approximate=tanh))


def _clip(c: OnnxCall) -> Value:
    """Bounds are attributes before version 11, then operands; either may be missing."""
    if c.version < 11:
        low, high = (float(c[k]) if c.attr(k) is not None else None for k in ("min", "max"))
        return computed(c, lambda w, x: composites_math.clip(w, x, low, high))
    w, own = c.w, c.dtype(0)
    bounds = (c.optional(k, own.compute) for k in (1, 2))
    found = composites_math.clip(w, c.value(0, own.compute), *(_number(w, b) for b in bounds))
    return w.cast(found, own)


def _number(w: GraphWriter, v: Value | None) -> Value | None:
    """One element as a () value."""
    return None if v is None else w.reshape(v, ())


# Predicates and dtypes


def _is_inf(c: OnnxCall) -> Value:
    w, x = c.w, c.value(0)
    signs = [s for s, name in ((1, "detect_positive"), (-1, "detect_negative")) if c[name]]
    found = [w.map("eq", x, sign * math.inf) for sign in signs]
    return reduce(lambda a, b: w.map("or", a, b), found) if found else w.full(
        False, w.shape(x), BOOL
    )  # fmt: skip


def _cast(c: OnnxCall) -> Value:
    return c.w.cast(c.value(0), from_numpy(numpy_dtype(int(c["to"]))))


def _cast_named(c: OnnxCall) -> Value:
    """Before version 6 the dtype is a name."""
    return c.w.cast(c.value(0), from_numpy(np.dtype(str(c["to"]).lower())))


def _bit_cast(c: OnnxCall) -> Value:
    """Truth values are bytes of 0 and 1."""
    w, x, wanted = c.w, c.value(0), from_numpy(numpy_dtype(int(c["to"])))
    x = w.cast(x, DType.U8) if w.dtype(x) is BOOL else x
    return w.cast(x, BOOL) if wanted is BOOL else w.bitcast(x, wanted)


def _same_on_whole(op: str) -> OnnxRule:
    return lambda c: computed(c, _mapped(op)) if c.dtype(0).is_float else c.value(0)


def _dropout(c: OnnxCall) -> tuple[Any, ...]:
    """What is computed when it does not train: nothing is dropped."""
    if c.version >= 12 and c.has(2) and bool(c.needs(2, "whether it trains")):
        ratio = float(c.needs(1, "the ratio")) if c.has(1) else 0.5
        if ratio != 0:
            raise FrontendError("dropout that trains is random")
    kept = c.w.full(True, c.shape(0), BOOL) if len(c.wanted) > 1 else None
    return c.datum(0), kept


_UNARY: Mapping[str, tuple[int, Function]] = {
    "Abs": (6, _mapped("abs")),
    "Acos": (7, _mapped("acos")),
    "Acosh": (9, composites_math.acosh),
    "Asin": (7, _mapped("asin")),
    "Asinh": (9, composites_math.asinh),
    "Atan": (7, _mapped("atan")),
    "Atanh": (9, composites_math.atanh),
    "BitwiseNot": (18, _mapped("not")),
    "Cos": (7, _mapped("cos")),
    "Cosh": (9, _mapped("cosh")),
    "Erf": (9, _mapped("erf")),
    "Exp": (6, _mapped("exp")),
    "HardSwish": (14, _hard_swish),
    "Log": (6, _mapped("log")),
    "Mish": (18, _mish),
    "Neg": (6, _mapped("neg")),
    "Not": (1, _mapped("not")),
    "Reciprocal": (6, _mapped("reciprocal")),
    "Relu": (6, composites.relu),
    "Sigmoid": (6, _mapped("logistic")),
    "Sign": (9, _mapped("sign")),
    "Sin": (7, _mapped("sin")),
    "Sinh": (9, _mapped("sinh")),
    "Softplus": (1, softplus),
    "Softsign": (1, softsign),
    "Sqrt": (6, _mapped("sqrt")),
    "Tan": (7, _mapped("tan")),
    "Tanh": (6, _mapped("tanh")),
}
_BINARY: Mapping[str, tuple[int, Function]] = {
    "Add": (6, _mapped("add")),
    "And": (1, _mapped("and")),
    "BitwiseAnd": (18, _mapped("and")),
    "BitwiseOr": (18, _mapped("or")),
    "BitwiseXor": (18, _mapped("xor")),
    "Div": (6, _mapped("div")),
    "Mul": (6, _mapped("mul")),
    "Or": (1, _mapped("or")),
    "Sub": (6, _mapped("sub")),
    "Xor": (1, _mapped("xor")),
}
_COMPARISONS = {
    "Equal": (1, "eq"), "Greater": (1, "gt"), "GreaterOrEqual": (12, "ge"), "Less": (1, "lt"),
    "LessOrEqual": (12, "le"),
}  # fmt: skip
_SEVERAL = {"Max": "max", "Min": "min", "Sum": "add"}
_WITH: Mapping[str, tuple[int, OnnxRule]] = {
    "Celu": (12, _with(_celu, "alpha")),
    "Elu": (6, _with(elu, "alpha")),
    "HardSigmoid": (6, _with(hard_sigmoid, "alpha", "beta")),
    "LeakyRelu": (6, _with(leaky_relu, "alpha")),
    "Selu": (6, _with(_selu, "alpha", "gamma")),
    "Shrink": (9, _with(_shrink, "bias", "lambd")),
    "Swish": (24, _with(_swish, "alpha")),
    "ThresholdedRelu": (10, _with(thresholded_relu, "alpha")),
}
ONNX_ELEMENTWISE: OnnxRules = {
    **{(STANDARD, name, since): _rule(f) for name, (since, f) in _UNARY.items()},
    **{(STANDARD, name, since): _binary(f) for name, (since, f) in _BINARY.items()},
    **{(STANDARD, name, since): _compare(op) for name, (since, op) in _COMPARISONS.items()},
    **{(STANDARD, name, since): rule for name, (since, rule) in _WITH.items()},
    **{(STANDARD, name, 6): _several(_mapped(op)) for name, op in _SEVERAL.items()},
    **{
        (STANDARD, name, since): _same_on_whole(name.lower())
        for name, since in (("Ceil", 6), ("Floor", 6), ("Round", 11))
    },
    (STANDARD, "BitCast", 26): _bit_cast,
    (STANDARD, "BitShift", 11): _shift,
    (STANDARD, "Cast", 1): _cast_named,
    (STANDARD, "Cast", 6): _cast,
    (STANDARD, "CastLike", 15): lambda c: c.w.cast(c.value(0), c.dtype(1)),
    (STANDARD, "Clip", 6): _clip,
    (STANDARD, "Dropout", 6): _dropout,
    (STANDARD, "Gelu", 20): _gelu,
    (STANDARD, "Identity", 1): lambda c: c.datum(0),
    (STANDARD, "IsInf", 10): _is_inf,
    (STANDARD, "IsNaN", 9): lambda c: c.w.map("isnan", c.value(0)),
    (STANDARD, "Mean", 6): _mean,
    (STANDARD, "Mod", 10): _modulo,
    (STANDARD, "PRelu", 6): _prelu,
    (STANDARD, "Pow", 1): _power,
    (STANDARD, "Where", 9): _where,
}
