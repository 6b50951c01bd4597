"""Expressions as C or CUDA text, with no more parentheses than precedence asks for."""

from __future__ import annotations

import math

from autofuse.kernel.text.dialects import (
    ATOM,
    INFIX,
    PREFIX,
    PRELUDE,
    TERNARY_LEVEL,
    UNARY_LEVEL,
    Dialect,
)
from autofuse.ops.dtypes import INTS, DType
from autofuse.ops.scalar import LIBM, Call, Expr, Lit, Load, Sym

# What C computes as int.
_NARROW = tuple(dtype for dtype in INTS if dtype.itemsize < DType.I32.itemsize)
_UNSIGNED = {DType.U32: "u", DType.U64: "ULL"}
_HALF = (DType.F16, DType.BF16)


def expression(expr: Expr, dialect: Dialect) -> str:
    """The text of an expression where its type is known: an initialiser, index or argument."""
    return _small(expr) or _print(expr, dialect)[0]


def operand(expr: Expr, dialect: Dialect) -> str:
    """The text of an expression that text around it adds to or compares."""
    return _small(expr) or _wrap(expr, dialect, INFIX["add"][1])


def _small(expr: Expr) -> str | None:
    """An i64 literal without its suffix, where something else makes it 64 bits wide."""
    if isinstance(expr, Lit) and expr.dtype is DType.I64 and -(2**31) < expr.value < 2**31:
        return _literal(Lit(int(expr.value), DType.I32))
    return None


def _print(expr: Expr, d: Dialect) -> tuple[str, int]:
    """Text and precedence."""
    match expr:
        case Lit():
            return _literal(expr), ATOM
        case Sym(name=name):
            return name, ATOM
        case Load(buffer=buffer, index=index, dtype=dtype):
            return f"{d.views.get(dtype, '{}').format(buffer)}[{expression(index, d)}]", ATOM
        case Call():
            return _call(expr, d)


def _literal(lit: Lit) -> str:
    value, dtype = lit.value, lit.dtype
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype.is_float:
        return _float(float(value), dtype)
    n = int(value)
    if dtype in _UNSIGNED:
        return f"{n}{_UNSIGNED[dtype]}"
    suffix, lowest = ("LL", -(2**63)) if dtype is DType.I64 else ("", -(2**31))
    if n == lowest:  # C has no negative literals, and the positive one would not fit
        return f"(-{-n - 1}{suffix} - 1)"
    return f"({n}{suffix})" if n < 0 else f"{n}{suffix}"


def _float(value: float, dtype: DType) -> str:
    if dtype in _HALF:
        return f"af_store_{dtype}({_float(value, DType.F32)})"
    suffix = "" if dtype is DType.F64 else "f"
    if math.isnan(value):
        return f"AF_NAN{suffix.upper()}"
    if math.isinf(value):
        return f"AF_INF{suffix.upper()}" if value > 0 else f"(-AF_INF{suffix.upper()})"
    text = repr(value)
    text = f"{text}{suffix}" if any(c in text for c in ".e") else f"{text}.0{suffix}"
    return f"({text})" if value < 0 or text.startswith("-") else text


def _wrap(expr: Expr, d: Dialect, level: int) -> str:
    text, own = _print(expr, d)
    return text if own >= level else f"({text})"


def _call(call: Call, d: Dialect) -> tuple[str, int]:
    fn, args = call.fn, call.args
    operand = args[-1].dtype
    if fn == "select":
        parts = (_wrap(args[0], d, TERNARY_LEVEL + 1), _wrap(args[1], d, TERNARY_LEVEL + 1))
        return f"{parts[0]} ? {parts[1]} : {_wrap(args[2], d, TERNARY_LEVEL)}", TERNARY_LEVEL
    if fn == "cast":
        return _cast(call, d)
    if fn == "bitcast":
        return _function(f"af_bits_{args[0].dtype}_{call.dtype}", call, d)
    if fn in PREFIX:
        return _prefix(call, d)
    if fn in LIBM:
        name = fn if operand is DType.F64 else f"{fn}f"
        return _function(d.instead.get(name, name), call, d)
    if fn in PRELUDE:
        return _function(f"af_{fn}_{operand}", call, d)
    if fn in ("div", "rem") and not _plain_division(call):
        name = f"af_{fn}_{operand}"
        return _function(d.instead.get(name, name), call, d)
    return _infix(call, d)


def _plain_division(call: Call) -> bool:
    """Only floats (quotients) and non-zero literal divisors never trap."""
    if call.args[1].dtype.is_float:
        return call.fn == "div"
    divisor = call.args[1]
    return isinstance(divisor, Lit) and int(divisor.value) > 0


def _function(name: str, call: Call, d: Dialect) -> tuple[str, int]:
    return f"{name}({', '.join(expression(a, d) for a in call.args)})", ATOM


def _cast(call: Call, d: Dialect) -> tuple[str, int]:
    source, target = call.args[0], call.dtype
    # A half value is bits in storage form: casts are all that is ever done to it.
    if source.dtype in _HALF:
        return f"af_load_{source.dtype}({expression(source, d)})", ATOM
    if target in _HALF:
        return f"af_store_{target}({expression(source, d)})", ATOM
    if target is DType.BOOL and source.dtype is not DType.BOOL:
        return f"{_wrap(source, d, INFIX['ne'][1] + 1)} != 0", INFIX["ne"][1]
    value = _wrap(source, d, UNARY_LEVEL + 1)
    if source.dtype is DType.BOOL and target.is_float:
        # GCC 12 has vectors of a condition as whole numbers, but not as floats.
        value = f"({d.types[DType.I32]}){value}"
    return f"({d.types[target]}){value}", UNARY_LEVEL


def _prefix(call: Call, d: Dialect) -> tuple[str, int]:
    operator = "!" if call.fn == "not" and call.dtype is DType.BOOL else PREFIX[call.fn]
    text = f"{operator}{_wrap(call.args[0], d, UNARY_LEVEL + 1)}"
    return _narrowed(text, UNARY_LEVEL, call, d)


def _infix(call: Call, d: Dialect) -> tuple[str, int]:
    operator, level = INFIX[call.fn]
    # Bitwise operands are parenthesised like compilers' warnings want; comparisons never chain.
    strict = call.fn in ("and", "or", "xor", "shl", "shr") or level in (8, 9)
    left = _wrap(call.args[0], d, UNARY_LEVEL if strict else level)
    right = _wrap(call.args[1], d, UNARY_LEVEL if strict else level + 1)
    if call.fn in ("shl", "shr"):  # the left operand alone makes the type of a shift
        right = _small(call.args[1]) or right
    elif not isinstance(call.args[1], Lit):
        left = _small(call.args[0]) or left
    elif not isinstance(call.args[0], Lit):
        right = _small(call.args[1]) or right
    if call.fn in ("shl", "shr") and not isinstance(call.args[1], Lit):
        right = f"({right} & {8 * call.dtype.itemsize - 1})"
    return _narrowed(f"{left} {operator} {right}", level, call, d)


def _narrowed(text: str, level: int, call: Call, d: Dialect) -> tuple[str, int]:
    """C computes small integers as int: cut results back to their type."""
    if call.dtype in _NARROW:
        return f"({d.types[call.dtype]})({text})", UNARY_LEVEL
    return text, level
