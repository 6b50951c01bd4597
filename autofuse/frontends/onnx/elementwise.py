"""Rules for ONNX operators that compute element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.names import NAMES, Kind, OpNames, elementwise
from autofuse.frontends.onnx.package import numpy_dtype
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import activations
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
    """Operands; before version 7 they broadcast only where they say so, from `axis` on."""
    w, values = c.w, c.values()
    if c.version >= 7 or not c.attr("broadcast", 0):
        return values
    x, y = values
    rank, own = len(w.shape(x)), len(w.shape(y))
    axis = int(c.attr("axis", rank - own)) % max(rank, 1)
    return [x, w.reshape(y, (*w.shape(y), *(1 for _ in range(rank - axis - own))))]


def _plain(row: OpNames) -> OnnxRule:
    """The rule for what ONNX calls otherwise. Predicates are asked about operands as they are."""
    match row.kind:
        case Kind.ROUNDING:
            return lambda c: computed(c, row.write) if c.dtype(0).is_float else c.value(0)
        case Kind.TEST | Kind.COMPARISON:
            return lambda c: row.write(c.w, *_old_style(c))
        case _:
            return lambda c: computed(c, row.write, _old_style(c))


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
    x, y = _old_style(c)
    return c.w.cast(x, kind), c.w.cast(y, kind)


def _modulo(c: OnnxCall) -> Value:
    return computed(c, elementwise("rem") if c["fmod"] else composites_math.remainder)


def _shift(c: OnnxCall) -> Value:
    """Towards the left, or the right, where numbers with a sign keep it."""
    ops = {"LEFT": "shl", "RIGHT": "shr" if c.dtype(0).is_signed else "shr_logical"}
    if c["direction"] not in ops:
        raise FrontendError(f"direction {c['direction']!r} is not LEFT or RIGHT")
    return computed(c, elementwise(ops[c["direction"]]))


def _prelu(c: OnnxCall) -> Value:
    """The slope broadcasts to the operand; before version 7 a row has one for each channel."""
    w, x, slope = c.w, c.value(0), c.value(1)
    rank = len(w.shape(x))
    if c.version < 7 and len(w.shape(slope)) == 1 and rank > 1 and w.shape(slope) != (1,):
        slope = w.reshape(slope, (-1, *(1 for _ in range(rank - 2))))
    return computed(c, activations.leaky_relu, [x, w.spread(slope, w.shape(x))])


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


def _gelu(c: OnnxCall) -> Value:
    tanh = c["approximate"] == "tanh"
    return computed(c, lambda w, x: activations.gelu(w, x, approximate=tanh))


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


def _dropout(c: OnnxCall) -> tuple[Any, ...]:
    """What is computed when it does not train: nothing is dropped."""
    if c.version >= 12 and c.has(2) and bool(c.needs(2, "whether it trains")):
        ratio = float(c.needs(1, "the ratio")) if c.has(1) else 0.5
        if ratio != 0:
            raise FrontendError("dropout that trains is random")
    kept = c.w.full(True, c.shape(0), BOOL) if len(c.wanted) > 1 else None
    return c.datum(0), kept


_SEVERAL = {"Max": "max", "Min": "min", "Sum": "add"}
_WITH: Mapping[str, tuple[int, OnnxRule]] = {
    "Celu": (12, _with(activations.celu, "alpha")),
    "Elu": (6, _with(activations.elu, "alpha")),
    "HardSigmoid": (6, _with(activations.hard_sigmoid, "alpha", "beta")),
    "LeakyRelu": (6, _with(activations.leaky_relu, "alpha")),
    "Selu": (6, _with(activations.selu, "alpha", "gamma")),
    "Shrink": (9, _with(activations.shrink, "bias", "lambd")),
    "Swish": (24, _with(activations.silu, "alpha")),
    "ThresholdedRelu": (10, _with(activations.thresholded_relu, "alpha")),
}
ONNX_ELEMENTWISE: OnnxRules = {
    **{(STANDARD, row.onnx, row.since): _plain(row) for row in NAMES if row.onnx},
    **{(STANDARD, name, since): rule for name, (since, rule) in _WITH.items()},
    **{(STANDARD, name, 6): _several(elementwise(op)) for name, op in _SEVERAL.items()},
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
    (STANDARD, "Mean", 6): _mean,
    (STANDARD, "Mod", 10): _modulo,
    (STANDARD, "PRelu", 6): _prelu,
    (STANDARD, "Pow", 1): _power,
    (STANDARD, "Where", 9): _where,
}
