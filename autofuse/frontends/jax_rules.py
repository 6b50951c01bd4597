"""Rules for jax primitives that compute: one row per primitive, `rule(emitter, eqn, *operands)`."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from autofuse.frontends.jax_emit import Emitter, FrontendError
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import GraphError

Rule = Callable[..., Any]


def dtype_of(dtype: Any) -> DType:
    """The DType of a jax dtype; raises FrontendError for one graphs do not have."""
    try:
        return from_numpy(np.dtype(dtype))
    except (GraphError, TypeError):
        known = ", ".join(map(str, DType))
        raise FrontendError(f"dtype {dtype} is not supported (supported: {known})") from None


def direct(op: str) -> Rule:
    """A primitive that is one elementwise op."""
    return lambda e, eqn, *values: e.map(op, *values)


def same(e: Emitter, eqn: Any, *values: Value) -> Any:
    """A primitive that changes nothing."""
    return values if len(values) != 1 else values[0]


def _convert(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.cast(x, dtype_of(eqn.params["new_dtype"]))


def _bitcast(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.bitcast(x, dtype_of(eqn.params["new_dtype"]))


def _reciprocal(e: Emitter, x: Value) -> Value:
    return e.map("div", e.scalar(1, x), x)


def _power(e: Emitter, x: Value, y: int) -> Value:
    """x to the y-th by repeated squaring, y >= 1."""
    result: Value | None = None
    while y:
        if y & 1:
            result = x if result is None else e.mul(result, x)
        y >>= 1
        x = e.mul(x, x) if y else x
    assert result is not None
    return result


def _integer_pow(e: Emitter, eqn: Any, x: Value) -> Value:
    y = int(eqn.params["y"])
    if y == 0:
        return e.full(1, e.shape(x), e.dtype(x))
    return _power(e, x, y) if y > 0 else _reciprocal(e, _power(e, x, -y))


def _pow(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    exponent = e.known_int(y)
    if exponent is not None and 1 <= exponent <= 16:
        return _power(e, x, exponent)
    if not e.dtype(x).is_float:
        raise FrontendError("integer powers need a constant exponent from 1 to 16")
    return e.map("pow", x, e.cast(y, e.dtype(x)))


def _square(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.mul(x, x)


def _exp2(e: Emitter, eqn: Any, x: Value) -> Value:
    return e.map("exp", e.mul(x, e.scalar(np.log(2.0), x)))


def _cbrt(e: Emitter, eqn: Any, x: Value) -> Value:
    root = e.map("pow", e.map("abs", x), e.scalar(1.0 / 3.0, x))
    return e.mul(e.map("sign", x), root)


def _round(e: Emitter, eqn: Any, x: Value) -> Value:
    if int(eqn.params["rounding_method"]) == 1:
        return e.map("round", x)
    away = e.map("floor", e.add(e.map("abs", x), e.scalar(0.5, x)))
    return e.mul(e.map("sign", x), away)


def _erfc(e: Emitter, eqn: Any, x: Value) -> Value:
    """1 - erf(x): exact to one unit of 1, so far tails lose relative accuracy."""
    return e.map("sub", e.scalar(1, x), e.map("erf", x))


# Giles, "Approximating the erfinv function" (2010), single precision: near 0, and in the tails.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
           -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def _polynomial(e: Emitter, w: Value, coefficients: tuple[float, ...]) -> Value:
    result = e.scalar(coefficients[0], w)
    for c in coefficients[1:]:
        result = e.add(e.mul(result, w), e.scalar(c, w))
    return result


def _erf_inv(e: Emitter, eqn: Any, x: Value) -> Value:
    """To about 1e-7; f64 is refined by Newton's method."""
    dtype = e.dtype(x)
    x = e.cast(x, dtype.compute)
    squared = e.mul(x, x)
    w = e.map("neg", e.map("log1p", e.map("neg", squared)))
    centre = _polynomial(e, e.map("sub", w, e.scalar(2.5, w)), _CENTRE)
    tail = _polynomial(e, e.map("sub", e.map("sqrt", w), e.scalar(3.0, w)), _TAIL)
    y = e.mul(e.select(e.map("lt", w, e.scalar(5.0, w)), centre, tail), x)
    if dtype is DType.F64:
        for _ in range(2):
            slope = e.mul(e.map("exp", e.mul(y, y)), e.scalar(np.sqrt(np.pi) / 2, y))
            y = e.map("sub", y, e.mul(e.map("sub", e.map("erf", y), x), slope))
    edge = e.map("eq", e.map("abs", x), e.scalar(1.0, x))
    return e.cast(e.select(edge, e.mul(x, e.scalar(np.inf, x)), y), dtype)


def _asinh(e: Emitter, eqn: Any, x: Value) -> Value:
    a = e.map("abs", x)
    root = e.map("sqrt", e.add(e.mul(a, a), e.scalar(1, x)))
    inner = e.add(a, e.map("div", e.mul(a, a), e.add(root, e.scalar(1, x))))
    return e.mul(e.map("sign", x), e.map("log1p", inner))


def _acosh(e: Emitter, eqn: Any, x: Value) -> Value:
    one = e.scalar(1, x)
    root = e.mul(e.map("sqrt", e.map("sub", x, one)), e.map("sqrt", e.add(x, one)))
    return e.map("log", e.add(x, root))


def _atanh(e: Emitter, eqn: Any, x: Value) -> Value:
    apart = e.map("sub", e.map("log1p", x), e.map("log1p", e.map("neg", x)))
    return e.mul(apart, e.scalar(0.5, x))


def _clamp(e: Emitter, eqn: Any, low: Value, x: Value, high: Value) -> Value:
    return e.map("clamp", x, low, high)


def _select_n(e: Emitter, eqn: Any, which: Value, *cases: Value) -> Value:
    if e.dtype(which) is DType.BOOL:
        return e.select(which, cases[1], cases[0])
    return choose(e, which, cases)


def choose(e: Emitter, which: Value, cases: tuple[Value, ...]) -> Value:
    """cases[which], elementwise; an index beyond the ends takes the nearest case."""
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = e.select(e.map("le", which, e.scalar(i, which)), cases[i], result)
    return result


def _reduce_precision(e: Emitter, eqn: Any, x: Value) -> Value:
    """Rounding to a format that is a dtype; a format at least as wide changes nothing."""
    ml_dtypes: Any = import_module("ml_dtypes")
    bits = (int(eqn.params["exponent_bits"]), int(eqn.params["mantissa_bits"]))
    info = ml_dtypes.finfo(e.dtype(x).numpy)
    if bits[0] >= info.iexp and bits[1] >= info.nmant:
        return x
    narrow = {(8, 7): DType.BF16, (5, 10): DType.F16}.get(bits)
    if narrow is None:
        raise FrontendError(f"no dtype has {bits[0]} exponent and {bits[1]} mantissa bits")
    return e.cast(e.cast(x, narrow), e.dtype(x))


def _minmax(number: str, boolean: str) -> Rule:
    def rule(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
        return e.map(boolean if e.dtype(x) is DType.BOOL else number, x, y)

    return rule


def _reduce(op: str | None, boolean: str | None = None) -> Rule:
    """A reduction over `axes`: `op` on numbers, `boolean` on bools."""

    def rule(e: Emitter, eqn: Any, x: Value) -> Value:
        axes = tuple(sorted(int(a) for a in eqn.params["axes"]))
        name = boolean if e.dtype(x) is DType.BOOL else op
        if name is None:
            raise FrontendError(f"it has no form for {e.dtype(x)}")
        return e.op(name, x, axes=axes) if axes else x

    return rule


def _arg(op: str) -> Rule:
    def rule(e: Emitter, eqn: Any, x: Value) -> Value:
        (axis,) = eqn.params["axes"]
        return e.cast(e.op(op, x, axis=int(axis)), dtype_of(eqn.params["index_dtype"]))

    return rule


def _cumsum(e: Emitter, eqn: Any, x: Value) -> Value:
    axis = int(eqn.params["axis"])
    if not eqn.params["reverse"]:
        return e.op("cumsum", x, axis=axis)
    turned = e.op("cumsum", e.op("reverse", x, axes=(axis,)), axis=axis)
    return e.op("reverse", turned, axes=(axis,))


def _dot_general(e: Emitter, eqn: Any, x: Value, y: Value) -> Value:
    """Operands are converted to the result's dtype first, which loses nothing."""
    (lhs, rhs), (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    dtype = dtype_of(eqn.outvars[0].aval.dtype)
    return e.op(
        "dot_general",
        e.cast(x, dtype),
        e.cast(y, dtype),
        lhs_contract=tuple(map(int, lhs)),
        rhs_contract=tuple(map(int, rhs)),
        lhs_batch=tuple(map(int, lhs_batch)),
        rhs_batch=tuple(map(int, rhs_batch)),
    )


_DIRECT = (
    "abs", "acos", "add", "and", "asin", "atan", "atan2", "ceil", "cos", "cosh", "div", "eq", "erf",
    "exp", "expm1", "floor", "ge", "gt", "le", "log", "log1p", "logistic", "lt", "mul", "ne", "neg",
    "not", "or", "rem", "rsqrt", "sign", "sin", "sinh", "sqrt", "sub", "tan", "tanh", "xor",
)  # fmt: skip
_RENAMED = {
    "add_any": "add",
    "is_finite": "isfinite",
    "shift_left": "shl",
    "shift_right_arithmetic": "shr",
    "shift_right_logical": "shr_logical",
}
_SAME = (
    "copy", "copy_p", "device_put", "name", "optimization_barrier", "pvary", "sharding_constraint",
    "stop_gradient",
)  # fmt: skip

COMPUTE_RULES: dict[str, Rule] = {
    **{name: direct(name) for name in _DIRECT},
    **{name: direct(op) for name, op in _RENAMED.items()},
    **dict.fromkeys(_SAME, same),
    "acosh": _acosh,
    "argmax": _arg("argmax"),
    "argmin": _arg("argmin"),
    "asinh": _asinh,
    "atanh": _atanh,
    "bitcast_convert_type": _bitcast,
    "cbrt": _cbrt,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "cumsum": _cumsum,
    "dot_general": _dot_general,
    "erf_inv": _erf_inv,
    "erfc": _erfc,
    "exp2": _exp2,
    "integer_pow": _integer_pow,
    "max": _minmax("max", "or"),
    "min": _minmax("min", "and"),
    "pow": _pow,
    "reduce_and": _reduce(None, "reduce_all"),
    "reduce_max": _reduce("reduce_max", "reduce_any"),
    "reduce_min": _reduce("reduce_min", "reduce_all"),
    "reduce_or": _reduce(None, "reduce_any"),
    "reduce_precision": _reduce_precision,
    "reduce_prod": _reduce("reduce_prod"),
    "reduce_sum": _reduce("reduce_sum"),
    "round": _round,
    "select_n": _select_n,
    "square": _square,
}
