"""Scalar bodies of the elementwise ops: one output element from operand elements.

Operands arrive as their dtype's compute type, and results leave as that of the output. Signed
arithmetic wraps; a `select` may compute both sides, so neither side may trap.
"""

from __future__ import annotations

from typing import Protocol

from autofuse.ops.dtypes import SIGNED, DType
from autofuse.ops.pull import Pull
from autofuse.ops.scalar import Call, Expr, Lit, Sym, call, cast
from autofuse.ops.types import OpCall


class Scalar(Protocol):
    """The result element, from the operand elements."""

    def __call__(self, op: OpCall, pull: Pull, /, *operands: Expr) -> Expr: ...


def number(value: float, dtype: DType) -> Lit:
    """`value` as a literal of `dtype`."""
    return Lit(float(value) if dtype.is_float else int(value), dtype)


def _ones(dtype: DType) -> Lit:
    """The integer with every bit set."""
    return Lit(-1 if dtype.is_signed else dtype.limits[1], dtype)


def _shared(pull: Pull, value: Expr) -> Expr:
    """`value`, bound to a variable unless it is one."""
    return value if isinstance(value, Lit | Sym) else pull.let(value)


def _select(cond: Expr, a: Expr, b: Expr) -> Expr:
    if isinstance(cond, Lit):
        return a if cond.value else b
    return Call("select", (cond, a, b), a.dtype)


def _compare(fn: str, a: Expr, b: Expr) -> Expr:
    """A comparison, folded when both sides are literals (a literal divisor needs no guard)."""
    if isinstance(a, Lit) and isinstance(b, Lit):
        x, y = a.value, b.value
        return Lit({"eq": x == y, "lt": x < y, "ge": x >= y}[fn], DType.BOOL)
    return call(fn, a, b)


def _either(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Lit):
        return a if a.value else b
    if isinstance(b, Lit):
        return b if b.value else a
    return call("or", a, b)


def primitive(fn: str) -> Scalar:
    """The body that is one primitive function."""

    def scalar(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
        return call(fn, *operands)

    return scalar


def negate(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    (x,) = operands
    return call("neg", x) if x.dtype.is_float else call("sub", number(0, x.dtype), x)


def absolute(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    (x,) = operands
    if x.dtype.is_float:
        return call("abs", x)
    if not x.dtype.is_signed:
        return x
    x, zero = _shared(pull, x), number(0, x.dtype)
    return _select(_compare("lt", x, zero), call("sub", zero, x), x)


def sign(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """1 or -1; zeros and NaN are returned as they are."""
    x = _shared(pull, operands[0])
    zero, one = number(0, x.dtype), number(1, x.dtype)
    positive = _compare("lt", zero, x)
    if x.dtype.is_int and not x.dtype.is_signed:
        return _select(positive, one, zero)
    return _select(positive, one, _select(_compare("lt", x, zero), number(-1, x.dtype), x))


def reciprocal(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    return call("div", number(1, operands[0].dtype), operands[0])


def rsqrt(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    return reciprocal(op, pull, call("sqrt", operands[0]))


def logistic(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    (x,) = operands
    return reciprocal(op, pull, call("add", number(1, x.dtype), call("exp", call("neg", x))))


def invert(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    (x,) = operands
    return call("not", x) if x.dtype == DType.BOOL else call("xor", x, _ones(x.dtype))


def divide(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """Integers: toward zero; -1 by 0 and wrapping negation by -1, neither reaching the divider."""
    x, y = operands
    if x.dtype.is_float:
        return call("div", x, y)
    x, y = _shared(pull, x), _shared(pull, y)
    one = number(1, y.dtype)
    by_zero = _compare("eq", y, number(0, y.dtype))
    if not y.dtype.is_signed:
        quotient = call("div", x, _select(by_zero, one, y))
        return _select(by_zero, _ones(x.dtype), quotient)
    negated = _compare("eq", y, number(-1, y.dtype))
    quotient = call("div", x, _select(_either(by_zero, negated), one, y))
    quotient = _select(negated, call("sub", number(0, x.dtype), x), quotient)
    return _select(by_zero, _ones(x.dtype), quotient)


def remainder(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """The remainder with the sign of x; integers: x by 0, and 0 by -1."""
    x, y = operands
    if x.dtype.is_float:
        return call("rem", x, y)
    x, y = _shared(pull, x), _shared(pull, y)
    by_zero = _compare("eq", y, number(0, y.dtype))
    trap = by_zero
    if y.dtype.is_signed:
        trap = _either(by_zero, _compare("eq", y, number(-1, y.dtype)))
    return _select(by_zero, x, call("rem", x, _select(trap, number(1, y.dtype), y)))


def _extremum(better: str, no_better: str, pull: Pull, x: Expr, y: Expr) -> Expr:
    """max or min; for floats a NaN on either side is the result, and y that of equal ones."""
    if isinstance(x, Lit) and x.value == x.value:
        return _select(call(better, x, y), x, y)  # a NaN y fails the test, so it is picked
    x, y = _shared(pull, x), _shared(pull, y)
    nan = Lit(y.value != y.value, DType.BOOL) if isinstance(y, Lit) else call("isnan", y)
    # A NaN x fails the test, so it is picked. Were x tested for it, which may be the result of
    # another one (as in a clamp), GCC would make branches of both, and no vectors.
    return _select(_either(call(no_better, x, y), nan), y, x)


def maximum(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    x, y = operands
    return _extremum("gt", "le", pull, x, y) if x.dtype.is_float else call("max", x, y)


def minimum(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    x, y = operands
    return _extremum("lt", "ge", pull, x, y) if x.dtype.is_float else call("min", x, y)


def clamp(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """min(max(x, low), high)."""
    x, low, high = operands
    return minimum(op, pull, maximum(op, pull, x, low), high)


def select(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    return _select(*operands)


def _in_range(x: Expr, y: Expr) -> Expr:
    """Whether y shifts x by less than its width (a negative amount counts as huge)."""
    below = _compare("lt", y, number(x.dtype.itemsize * 8, y.dtype))
    if not y.dtype.is_signed:
        return below
    positive = _compare("ge", y, number(0, y.dtype))
    if isinstance(positive, Lit):
        return below if positive.value else positive
    return call("and", positive, below)


def shift_left(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    x, y = operands[0], _shared(pull, operands[1])
    inside, zero = _in_range(x, y), number(0, x.dtype)
    return _select(inside, call("shl", x, _select(inside, y, zero)), zero)


def shift_right(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """Arithmetic for signed x: past the width only the sign is left."""
    x, y = operands[0], _shared(pull, operands[1])
    inside, zero = _in_range(x, y), number(0, x.dtype)
    if not x.dtype.is_signed:
        return _select(inside, call("shr", x, _select(inside, y, zero)), zero)
    return call("shr", x, _select(inside, y, number(x.dtype.itemsize * 8 - 1, x.dtype)))


_UNSIGNED = {dtype: DType(f"u{8 * dtype.itemsize}") for dtype in SIGNED}


def shift_right_logical(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """Zeros come in from the left whatever the sign."""
    x, y = operands[0], _shared(pull, operands[1])
    if not x.dtype.is_signed:
        return shift_right(op, pull, x, y)
    inside, zero = _in_range(x, y), number(0, x.dtype)
    amount = _select(inside, y, zero)
    raw = _UNSIGNED[x.dtype]
    moved = call("shr", _bits(x, raw), _bits(amount, raw))
    return _select(inside, _bits(moved, x.dtype), zero)


def _bits(value: Expr, dtype: DType) -> Expr:
    if isinstance(value, Lit) and value.dtype.is_int and dtype.is_int and value.value >= 0:
        return Lit(value.value, dtype)
    return call("bitcast", value, dtype=dtype)


def convert(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    """Conversion of values; to a half type it rounds even when the result stays in a register."""
    (x,), source, target = operands, op.ins[0].dtype, op.out.dtype
    if target == DType.BOOL:
        return x if x.dtype == DType.BOOL else call("ne", x, number(0, x.dtype))
    if target.is_float:
        wide = cast(x, target.compute)
        if target in (source, target.compute):
            return wide
        return call("cast", call("cast", wide, dtype=target), dtype=target.compute)
    return _saturate(_shared(pull, x), target) if source.is_float else cast(x, target)


def _saturate(x: Expr, target: DType) -> Expr:
    """A float toward zero to an integer: clamped to its range, NaN to 0."""
    least, most = target.limits
    # Both ends are powers of two (or 0), exact in every float type.
    too_high = call("ge", x, Lit(float(2 ** most.bit_length()), x.dtype))
    too_low = call("le", x, Lit(float(least), x.dtype))
    inside = _select(call("isnan", x), Lit(0, target), call("cast", x, dtype=target))
    return _select(too_high, Lit(most, target), _select(too_low, Lit(least, target), inside))


def reinterpret(op: OpCall, pull: Pull, /, *operands: Expr) -> Expr:
    (x,), target = operands, op.out.dtype
    return x if x.dtype == target else call("bitcast", x, dtype=target)
