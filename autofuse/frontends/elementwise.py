"""Array functions of one element at a time, with NumPy's broadcasting and promotion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from autofuse.frontends.array import TracedArray
from autofuse.frontends.errors import TraceError
from autofuse.frontends.promotion import (
    DEFAULT_FLOAT,
    as_array,
    common_dtype,
    is_weak,
    meet,
)
from autofuse.frontends.recorder import current
from autofuse.frontends.shaping import broadcast_arrays, broadcast_shapes
from autofuse.ops.dtypes import DType

_MAX_REPEATED_POWER = 8


def _op(name: str, *arrays: TracedArray) -> TracedArray:
    """An elementwise op on broadcast operands.

    Operands that only have axes of extent 1 inserted (kept axes of reductions) are computed
    without those axes, so that the graph is not littered with reshapes.
    """
    tracer = current()
    shape = broadcast_shapes(*(a.shape for a in arrays))
    inner = tuple(n for n in shape if n != 1)
    if inner != shape:
        plain = [tracer.unreshaped(a) for a in arrays]
        if all(a.shape in ((), inner) for a in plain) and any(a.shape == inner for a in plain):
            return tracer.reshape(tracer.op(name, *broadcast_arrays(*plain)), shape)
    return tracer.op(name, *broadcast_arrays(*arrays))


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
    array = as_array(x)
    return where(array < 0, ceil(array), floor(array)) if array.dtype.is_float else array


def square(x: Any, /) -> TracedArray:
    array = as_array(x)
    return multiply(array, array)


def log2(x: Any, /) -> TracedArray:
    return log(x) * (1 / math.log(2))


def log10(x: Any, /) -> TracedArray:
    return log(x) * (1 / math.log(10))


def logaddexp(x1: Any, x2: Any, /) -> TracedArray:
    a, b = _floats(x1, x2)
    return maximum(a, b) + log1p(exp(-abs(a - b)))


def atan2(x1: Any, x2: Any, /) -> TracedArray:
    return _op("atan2", *_floats(x1, x2))


def divide(x1: Any, x2: Any, /) -> TracedArray:
    """True division; integers are computed as f32."""
    return _op("div", *_floats(x1, x2))


def remainder(x1: Any, x2: Any, /) -> TracedArray:
    """Python's %: the result has the sign of the divisor."""
    a, b = broadcast_arrays(*_numbers(x1, x2))
    rest = _op("rem", a, b)
    if a.dtype.is_int and not a.dtype.is_signed:
        return rest
    return where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def floor_divide(x1: Any, x2: Any, /) -> TracedArray:
    """Python's //: rounded toward minus infinity."""
    a, b = broadcast_arrays(*_numbers(x1, x2))
    if a.dtype.is_float:
        return round((a - remainder(a, b)) / b)
    quotient = _op("div", a, b)
    if not a.dtype.is_signed:
        return quotient
    rest = _op("rem", a, b)
    return where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)


def pow(x1: Any, x2: Any, /) -> TracedArray:
    """x1 ** x2; small whole Python exponents become multiplications, 0.5 a square root."""
    if is_weak(x2) and not is_weak(x1):
        dtype = common_dtype(x1, x2)
        fixed = _fixed_power(as_array(x1, dtype), float(x2))
        if fixed is not None:
            return fixed
    a, b = _numbers(x1, x2)
    if a.dtype.is_int:
        raise TraceError("integer powers need a whole Python exponent from 0 to 8")
    return _op("pow", a, b)


def _fixed_power(x: TracedArray, exponent: float) -> TracedArray | None:
    if exponent == 0.5 and x.dtype.is_float:
        return sqrt(x)
    if exponent == -1 and x.dtype.is_float:
        return reciprocal(x)
    if not exponent.is_integer() or not 0 <= exponent <= _MAX_REPEATED_POWER:
        return None
    result: TracedArray | None = None
    left = int(exponent)
    while left:
        if left & 1:
            result = x if result is None else result * x
        left >>= 1
        x = x * x if left else x
    return result if result is not None else broadcast_arrays(as_array(1, x.dtype), x)[0]


def isnan(x: Any, /) -> TracedArray:
    return _op("isnan", *_floats(x))


def isfinite(x: Any, /) -> TracedArray:
    return _op("isfinite", *_floats(x))


def isinf(x: Any, /) -> TracedArray:
    return equal(abs(_floats(x)[0]), math.inf)


def where(condition: Any, x1: Any, x2: Any, /) -> TracedArray:
    """x1 where `condition` holds, else x2."""
    a, b = meet(x1, x2)
    return _op("select", truth(condition), a, b)


def clip(x: Any, /, min: Any = None, max: Any = None) -> TracedArray:
    """`x` kept between `min` and `max`; in the dtype of `x` beside Python numbers."""
    low, high = min, max
    if low is not None and high is not None:
        values = _numbers(x, low, high)
        return _op("clamp", *values)
    array = as_array(x)
    if low is not None:
        array = maximum(array, low)
    return array if high is None else minimum(array, high)


def bitcast(x: Any, dtype: DType) -> TracedArray:
    """The same bits read as another dtype of the same size."""
    return current().op("bitcast", as_array(x), dtype=str(dtype))


def hypot(x1: Any, x2: Any) -> TracedArray:
    """sqrt(x1^2 + x2^2) without overflow."""
    a, b = (abs(v) for v in _floats(x1, x2))
    big, small = maximum(a, b), minimum(a, b)
    ratio = where(equal(big, 0), 0.0, divide(small, where(equal(big, 0), 1.0, big)))
    return big * sqrt(1.0 + ratio * ratio)
