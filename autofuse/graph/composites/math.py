"""Elementwise functions that the op table does not have, built from ops that it has.

Each appends to a GraphWriter and returns a value; operands broadcast, results have their dtype.
"""

from __future__ import annotations

import math

from autofuse.graph.loops import WhileWriter
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Operand
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

# Whole exponents of floats up to this become multiplications.
MAX_REPEATED_POWER = 16


# Powers


def integer_power(w: GraphWriter, x: Value, exponent: int) -> Value:
    """x to a whole power by repeated squaring; a negative one is the reciprocal."""
    if exponent < 0:
        return w.div(1, integer_power(w, x, -exponent))
    result: Value | None = None
    left = exponent
    while left:
        if left & 1:
            result = x if result is None else w.mul(result, x)
        left >>= 1
        x = w.mul(x, x) if left else x
    return result if result is not None else w.full(1, w.shape(x), w.dtype(x))


def power(w: GraphWriter, x: Value, exponent: float) -> Value:
    """x to a fixed power: small whole ones, and any of whole numbers, become multiplications, 0.5 a
    square root. Raises GraphError for powers of whole numbers that are none."""
    if not w.dtype(x).is_float:
        if exponent < 0 or not float(exponent).is_integer():
            raise GraphError("powers of whole numbers need a whole exponent that is not negative")
        return integer_power(w, x, int(exponent))
    if exponent == 0.5:
        return w.map("sqrt", x)
    if float(exponent).is_integer() and abs(exponent) <= MAX_REPEATED_POWER:
        return integer_power(w, x, int(exponent))
    return w.map("pow", x, exponent)


def whole_power(w: GraphWriter, x: Operand, y: Operand) -> Value:
    """x to the power y, both of one integer dtype, by repeated squaring that wraps around. Negative
    powers of 1 and -1 are 1 or -1, those of other numbers 0."""
    x, y = w.aligned(x, y)
    size = w.map("abs", y) if w.dtype(y).is_signed else y
    loop = WhileWriter(w, w.map("ne", size, 0), 8 * w.dtype(y).itemsize)
    base, left, found = (loop.state(v) for v in (x, size, w.full(1, w.shape(x), w.dtype(x))))
    body = loop.body
    is_odd = body.map("ne", body.map("and", left, 1), 0)
    # The absolute value of the lowest number is itself, whose sign is a bit like others.
    rest = body.map("shr_logical", left, 1)
    states = (body.mul(base, base), rest, body.select(is_odd, body.mul(found, base), found))
    *_, result = loop.end(body.map("ne", rest, 0), states)
    if not w.dtype(y).is_signed:
        return result
    is_unit = w.map("eq", w.map("abs", x), 1)
    return w.select(w.map("and", w.map("lt", y, 0), w.map("not", is_unit)), 0, result)


def square(w: GraphWriter, x: Value) -> Value:
    return w.mul(x, x)


def cbrt(w: GraphWriter, x: Value) -> Value:
    """The real cube root."""
    return w.mul(w.map("sign", x), w.map("pow", w.map("abs", x), 1.0 / 3.0))


def hypot(w: GraphWriter, x: Value, y: Value) -> Value:
    """sqrt(x^2 + y^2) without overflow; infinite where either is, as in C."""
    a, b = w.map("abs", x), w.map("abs", y)
    endless = w.map("or", w.map("eq", a, math.inf), w.map("eq", b, math.inf))
    big, small = w.map("max", a, b), w.map("min", a, b)
    nothing = w.map("eq", big, 0)
    ratio = w.div(small, w.select(nothing, 1.0, big))
    length = w.mul(big, w.map("sqrt", w.add(1.0, w.mul(ratio, ratio))))
    return w.select(endless, math.inf, w.select(nothing, big, length))


# Exponentials and logarithms


def exp2(w: GraphWriter, x: Value) -> Value:
    return w.map("exp", w.mul(x, math.log(2.0)))


def log2(w: GraphWriter, x: Value) -> Value:
    return w.mul(w.map("log", x), 1 / math.log(2))


def log10(w: GraphWriter, x: Value) -> Value:
    return w.mul(w.map("log", x), 1 / math.log(10))


def logaddexp(w: GraphWriter, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)), from the larger one; of equal infinities that infinity."""
    apart = w.sub(x, y)
    powers = w.map("exp", w.map("neg", w.map("abs", apart)))
    found = w.add(w.map("max", x, y), w.map("log1p", powers))
    return w.select(w.map("isnan", apart), w.add(x, y), found)


def asinh(w: GraphWriter, x: Value) -> Value:
    a = w.map("abs", x)
    squared = w.mul(a, a)
    inner = w.add(a, w.div(squared, w.add(w.map("sqrt", w.add(squared, 1)), 1)))
    return w.mul(w.map("sign", x), w.map("log1p", inner))


def acosh(w: GraphWriter, x: Value) -> Value:
    root = w.mul(w.map("sqrt", w.sub(x, 1)), w.map("sqrt", w.add(x, 1)))
    return w.map("log", w.add(x, root))


def atanh(w: GraphWriter, x: Value) -> Value:
    apart = w.sub(w.map("log1p", x), w.map("log1p", w.map("neg", x)))
    return w.mul(apart, 0.5)


# The error function


def erfc(w: GraphWriter, x: Value) -> Value:
    """1 - erf(x): exact to one unit of 1, so far tails lose relative accuracy."""
    return w.sub(1, w.map("erf", x))


# Giles, "Approximating the erfinv function" (2010), single precision: near 0, and in the tails.
_CENTRE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
           -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_TAIL = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
         -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


def erf_inv(w: GraphWriter, x: Value) -> Value:
    """The inverse of erf to about 1e-7; f64 is refined by Newton's method."""
    dtype = w.dtype(x)
    x = w.cast(x, dtype.compute)
    t = w.map("neg", w.map("log1p", w.map("neg", w.mul(x, x))))
    centre = _polynomial(w, w.sub(t, 2.5), _CENTRE)
    tail = _polynomial(w, w.sub(w.map("sqrt", t), 3.0), _TAIL)
    y = w.mul(w.select(w.map("lt", t, 5.0), centre, tail), x)
    if dtype is DType.F64:
        for _ in range(2):
            slope = w.mul(w.map("exp", w.mul(y, y)), math.sqrt(math.pi) / 2)
            y = w.sub(y, w.mul(w.sub(w.map("erf", y), x), slope))
    edge = w.map("eq", w.map("abs", x), 1.0)
    return w.cast(w.select(edge, w.mul(x, math.inf), y), dtype)


def _polynomial(w: GraphWriter, x: Value, coefficients: tuple[float, ...]) -> Value:
    result = w.scalar(coefficients[0], x)
    for c in coefficients[1:]:
        result = w.add(w.mul(result, x), c)
    return result


# Rounding and division


def trunc(w: GraphWriter, x: Value) -> Value:
    """Toward zero; integers are returned as they are."""
    if not w.dtype(x).is_float:
        return x
    return w.select(w.map("lt", x, 0), w.map("ceil", x), w.map("floor", x))


def round_half_away(w: GraphWriter, x: Value) -> Value:
    """To the nearest whole number, halves away from zero (the op `round` takes them to even)."""
    return w.mul(w.map("sign", x), w.map("floor", w.add(w.map("abs", x), 0.5)))


def remainder(w: GraphWriter, x: Operand, y: Value) -> Value:
    """Python's %: the result has the sign of the divisor."""
    x, y = w.aligned(x, y)
    rest = w.map("rem", x, y)
    if w.dtype(y).is_int and not w.dtype(y).is_signed:
        return rest
    return w.select(_crossed(w, rest, y), w.add(rest, y), rest)


def floor_divide(w: GraphWriter, x: Value, y: Value) -> Value:
    """Python's //: rounded toward minus infinity."""
    x, y = w.aligned(x, y)
    if w.dtype(x).is_float:
        return w.map("round", w.div(w.sub(x, remainder(w, x, y)), y))
    quotient = w.div(x, y)
    if not w.dtype(x).is_signed:
        return quotient
    return w.select(_crossed(w, w.map("rem", x, y), y), w.sub(quotient, 1), quotient)


def _crossed(w: GraphWriter, rest: Value, divisor: Value) -> Value:
    """Where a remainder and its divisor have different signs."""
    differ = w.map("ne", w.map("lt", rest, 0), w.map("lt", divisor, 0))
    return w.map("and", w.map("ne", rest, 0), differ)


# Choices


def isinf(w: GraphWriter, x: Value) -> Value:
    return w.map("eq", w.map("abs", x), math.inf)


def clip(w: GraphWriter, x: Value, low: Operand | None, high: Operand | None) -> Value:
    """`x` kept between `low` and `high`, either of which may be missing."""
    if low is not None and high is not None:
        return w.map("clamp", x, low, high)
    x = x if low is None else w.map("max", x, low)
    return x if high is None else w.map("min", x, high)


def choose(w: GraphWriter, which: Value, cases: tuple[Value, ...]) -> Value:
    """cases[which], elementwise; an index beyond the ends takes the nearest case."""
    result = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        result = w.select(w.map("le", which, i), cases[i], result)
    return result
