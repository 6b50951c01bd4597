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
from autofuse.graph.composites import math as composites
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType


def _op(name: str, *arrays: TracedArray) -> TracedArray:
    return current().write(GraphWriter.map, name, *arrays)


def _floats(*values: Any) -> tuple[TracedArray, ...]:
    """Operands in their common float dtype."""
    dtype = common_dtype(*values)
    return tuple(as_array(v, dtype if dtype.is_float else DEFAULT_FLOAT) for v in values)


def _numbers(*values: Any) -> tuple[TracedArray, ...]:
    """Operands in their common dtype, booleans as integers."""
    dtype = common_dtype(*values)
    return tuple(as_array(v, DType.I32 if dtype == DType.BOOL else dtype) for v in values)


def _float_unary(name: str) -> Callable[[Any], TracedArray]:
    def function(x: Any, /) -> TracedArray:
        return _op(name, *_floats(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name}; integers are computed as f32."
    return function


def _composite(
    function: Callable[..., Value], operands: Callable[..., tuple[TracedArray, ...]]
) -> Callable[..., TracedArray]:
    """A composite of values that `operands` brings to a common dtype."""

    def traced(*values: Any) -> TracedArray:
        return current().write(function, *operands(*values))

    traced.__name__ = traced.__qualname__ = function.__name__
    traced.__doc__ = function.__doc__ or f"Elementwise {function.__name__}."
    return traced


def _rounding(name: str) -> Callable[[Any], TracedArray]:
    def function(x: Any, /) -> TracedArray:
        array = as_array(x)
        return _op(name, array) if array.dtype.is_float else array

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name}; integers are returned as they are."
    return function


def _binary(name: str) -> Callable[[Any, Any], TracedArray]:
    def function(x1: Any, x2: Any, /) -> TracedArray:
        return _op(name, *_numbers(x1, x2))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise {name}, broadcasting."
    return function


def _comparison(name: str) -> Callable[[Any, Any], TracedArray]:
    def function(x1: Any, x2: Any, /) -> TracedArray:
        return _op(name, *meet(x1, x2))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Elementwise comparison ({name}), broadcasting; bool."
    return function


def _bits(name: str) -> Callable[[Any, Any], TracedArray]:
    def function(x1: Any, x2: Any, /) -> TracedArray:
        a, b = meet(x1, x2)
        if a.dtype.is_float:
            raise TraceError(f"bitwise '{name}' needs integers or booleans, got {a.dtype}")
        return _op(name, a, b)

    function.__name__ = function.__qualname__ = f"bitwise_{name}"
    return function


def _logical(name: str) -> Callable[[Any, Any], TracedArray]:
    def function(x1: Any, x2: Any, /) -> TracedArray:
        return _op(name, truth(x1), truth(x2))

    function.__name__ = function.__qualname__ = f"logical_{name}"
    return function


def truth(x: Any) -> TracedArray:
    """`x` as bool: whether it is not zero."""
    array = as_array(x)
    return array if array.dtype == DType.BOOL else not_equal(array, 0)


exp, expm1, log, log1p = map(_float_unary, ("exp", "expm1", "log", "log1p"))
sin, cos, tan = map(_float_unary, ("sin", "cos", "tan"))
sinh, cosh, tanh = map(_float_unary, ("sinh", "cosh", "tanh"))
asin, acos, atan = map(_float_unary, ("asin", "acos", "atan"))
sqrt, rsqrt, erf, logistic = map(_float_unary, ("sqrt", "rsqrt", "erf", "logistic"))
reciprocal = _float_unary("reciprocal")
sigmoid = logistic
log2, log10 = (_composite(f, _floats) for f in (composites.log2, composites.log10))
logaddexp, hypot = (_composite(f, _floats) for f in (composites.logaddexp, composites.hypot))
isinf = _composite(composites.isinf, _floats)
remainder = _composite(composites.remainder, _numbers)
floor_divide = _composite(composites.floor_divide, _numbers)
floor, ceil, round = map(_rounding, ("floor", "ceil", "round"))
add, subtract, multiply = map(_binary, ("add", "sub", "mul"))
maximum, minimum = map(_binary, ("max", "min"))
equal, not_equal = map(_comparison, ("eq", "ne"))
less, less_equal, greater, greater_equal = map(_comparison, ("lt", "le", "gt", "ge"))
bitwise_and, bitwise_or, bitwise_xor = map(_bits, ("and", "or", "xor"))
bitwise_left_shift, bitwise_right_shift = map(_bits, ("shl", "shr"))
logical_and, logical_or, logical_xor = map(_logical, ("and", "or", "xor"))


def logical_not(x: Any, /) -> TracedArray:
    return _op("not", truth(x))


def bitwise_invert(x: Any, /) -> TracedArray:
    array = as_array(x)
    if array.dtype.is_float:
        raise TraceError(f"bitwise 'not' needs integers or booleans, got {array.dtype}")
    return _op("not", array)


def negative(x: Any, /) -> TracedArray:
    return _op("neg", *_numbers(x))


def positive(x: Any, /) -> TracedArray:
    return as_array(x)


def abs(x: Any, /) -> TracedArray:
    return _op("abs", *_numbers(x))


def sign(x: Any, /) -> TracedArray:
    return _op("sign", *_numbers(x))


def trunc(x: Any, /) -> TracedArray:
    """Toward zero."""
    return current().write(composites.trunc, as_array(x))


def square(x: Any, /) -> TracedArray:
    array = as_array(x)
    return multiply(array, array)


def atan2(x1: Any, x2: Any, /) -> TracedArray:
    return _op("atan2", *_floats(x1, x2))


def divide(x1: Any, x2: Any, /) -> TracedArray:
    """True division; integers are computed as f32."""
    return _op("div", *_floats(x1, x2))


def pow(x1: Any, x2: Any, /) -> TracedArray:
    """x1 ** x2; small whole Python exponents become multiplications, 0.5 a square root. Powers of
    whole numbers wrap around, and negative ones are 0 but of 1 and -1."""
    if is_weak(x2) and not is_weak(x1):
        array = as_array(x1, common_dtype(x1, x2))
        return current().write(composites.power, array, float(x2))
    a, b = _numbers(x1, x2)
    if a.dtype.is_int:
        return current().write(composites.whole_power, a, b)
    return _op("pow", a, b)


def isnan(x: Any, /) -> TracedArray:
    return _op("isnan", *_floats(x))


def isfinite(x: Any, /) -> TracedArray:
    return _op("isfinite", *_floats(x))


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
