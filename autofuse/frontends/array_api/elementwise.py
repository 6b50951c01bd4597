"""Array functions of one element at a time, with NumPy's broadcasting and promotion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import (
    DEFAULT_FLOAT,
    as_array,
    common_dtype,
    is_weak,
    meet,
)
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.errors import TraceError
from autofuse.frontends.names import Kind, by_array_name
from autofuse.graph.composites import math as composites
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def _floats(*values: Any) -> tuple[TracedArray, ...]:
    """Operands in their common float dtype."""
    dtype = common_dtype(*values)
    return tuple(as_array(v, dtype if dtype.is_float else DEFAULT_FLOAT) for v in values)


def _numbers(*values: Any) -> tuple[TracedArray, ...]:
    """Operands in their common dtype, booleans as integers."""
    dtype = common_dtype(*values)
    return tuple(as_array(v, DType.I32 if dtype == DType.BOOL else dtype) for v in values)


def _arrays(*values: Any) -> tuple[TracedArray, ...]:
    return tuple(map(as_array, values))


def _bits(*values: Any) -> tuple[TracedArray, ...]:
    """Operands in their common dtype, which is no float."""
    found = meet(*values)
    if found[0].dtype.is_float:
        raise TraceError(f"bitwise operations need integers or booleans, got {found[0].dtype}")
    return found


def _truths(*values: Any) -> tuple[TracedArray, ...]:
    return tuple(map(truth, values))


# What brings the operands of a function to the dtype that it is computed in.
_OPERANDS: dict[Kind, Callable[..., tuple[TracedArray, ...]]] = {
    Kind.FLOATS: _floats,
    Kind.NUMBERS: _numbers,
    Kind.ROUNDING: _arrays,
    Kind.TEST: _floats,
    Kind.COMPARISON: meet,
    Kind.BITS: _bits,
    Kind.LOGIC: _truths,
}
_SAID = {
    Kind.FLOATS: "integers are computed as f32",
    Kind.ROUNDING: "integers are returned as they are",
    Kind.COMPARISON: "broadcasting; the result is bool",
    Kind.LOGIC: "of what is not zero",
}


def _named(name: str) -> Callable[..., TracedArray]:
    """The function that the table of names has under this name."""
    row = by_array_name()[name]
    operands, write = _OPERANDS[row.kind], row.write

    def traced(*values: Any) -> TracedArray:
        found = operands(*values)
        if row.kind is Kind.ROUNDING and not found[0].dtype.is_float:
            return found[0]
        return current().write(write, *found)

    def unary(x: Any, /) -> TracedArray:
        return traced(x)

    def binary(x1: Any, x2: Any, /) -> TracedArray:
        return traced(x1, x2)

    function: Callable[..., TracedArray] = unary if row.operands == 1 else binary
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name}; {_SAID.get(row.kind, 'broadcasting')}."
    return function


def truth(x: Any) -> TracedArray:
    """`x` as bool: whether it is not zero."""
    array = as_array(x)
    return array if array.dtype == DType.BOOL else not_equal(array, 0)


acos, acosh, asin, asinh = map(_named, ("acos", "acosh", "asin", "asinh"))
atan, atan2, atanh = map(_named, ("atan", "atan2", "atanh"))
cos, cosh, sin, sinh, tan, tanh = map(_named, ("cos", "cosh", "sin", "sinh", "tan", "tanh"))
exp, expm1, log, log1p = map(_named, ("exp", "expm1", "log", "log1p"))
log2, log10, logaddexp, hypot = map(_named, ("log2", "log10", "logaddexp", "hypot"))
sqrt, rsqrt, reciprocal, square = map(_named, ("sqrt", "rsqrt", "reciprocal", "square"))
erf, logistic, silu, relu = map(_named, ("erf", "logistic", "silu", "relu"))
sigmoid = logistic
abs, negative, sign = map(_named, ("abs", "negative", "sign"))
ceil, floor, round, trunc = map(_named, ("ceil", "floor", "round", "trunc"))
isfinite, isinf, isnan = map(_named, ("isfinite", "isinf", "isnan"))
add, subtract, multiply, divide = map(_named, ("add", "subtract", "multiply", "divide"))
remainder, floor_divide = map(_named, ("remainder", "floor_divide"))
maximum, minimum = map(_named, ("maximum", "minimum"))
equal, not_equal = map(_named, ("equal", "not_equal"))
less, less_equal = map(_named, ("less", "less_equal"))
greater, greater_equal = map(_named, ("greater", "greater_equal"))
bitwise_and, bitwise_or, bitwise_xor = map(_named, ("bitwise_and", "bitwise_or", "bitwise_xor"))
bitwise_invert = _named("bitwise_invert")
bitwise_left_shift, bitwise_right_shift = map(
    _named, ("bitwise_left_shift", "bitwise_right_shift")
)  # fmt: skip
logical_and, logical_not = map(_named, ("logical_and", "logical_not"))
logical_or, logical_xor = map(_named, ("logical_or", "logical_xor"))


def positive(x: Any, /) -> TracedArray:
    return as_array(x)


def pow(x1: Any, x2: Any, /) -> TracedArray:
    """x1 ** x2; small whole Python exponents become multiplications, 0.5 a square root. Powers of
    whole numbers wrap around, and negative ones are 0 but of 1 and -1."""
    if is_weak(x2) and not is_weak(x1):
        array = as_array(x1, common_dtype(x1, x2))
        return current().write(composites.power, array, float(x2))
    a, b = _numbers(x1, x2)
    if a.dtype.is_int:
        return current().write(composites.whole_power, a, b)
    return current().write(GraphWriter.map, "pow", a, b)


def where(condition: Any, x1: Any, x2: Any, /) -> TracedArray:
    """x1 where `condition` holds, else x2."""
    a, b = meet(x1, x2)
    return current().write(GraphWriter.select, truth(condition), a, b)


def clip(x: Any, /, min: Any = None, max: Any = None) -> TracedArray:
    """`x` kept between `min` and `max`; in the dtype of `x` beside Python numbers."""
    array, *bounds = _numbers(x, *(b for b in (min, max) if b is not None))
    low = None if min is None else bounds.pop(0)
    high = None if max is None else bounds.pop(0)
    return current().write(composites.clip, array, low, high)


def bitcast(x: Any, dtype: DType) -> TracedArray:
    """The same bits read as another dtype of the same size."""
    return current().write(GraphWriter.bitcast, as_array(x), dtype)
