"""Index expressions that simplify as they are built.

An index is an I64 expression. Its normal form is an affine sum: opaque terms (loop variables,
loads, quotients, remainders, ...) times integer coefficients plus a constant, terms in one fixed
order, so that equal indices are equal values. Quotients and remainders are defined for a
non-negative dividend and a positive divisor; the dividend of an emitted `div`/`rem` is known to be
non-negative wherever its bounds are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from itertools import islice
from math import gcd

from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, walk

I64 = DType.I64
Bounds = tuple[int, int]
# (term, coefficient) pairs in fixed order, and the constant.
Affine = tuple[tuple[tuple[Expr, int], ...], int]
# Parts of an index expression from which it is given a name.
LARGEST = 64
_UNKNOWN = (-(1 << 63), (1 << 63) - 1)


def lit(n: int) -> Lit:
    """The integer n as an index."""
    return Lit(int(n), I64)


def iadd(a: Expr, b: Expr) -> Expr:
    """a + b."""
    return _combine(a, 1, b, 1)


def isub(a: Expr, b: Expr) -> Expr:
    """a - b."""
    return _combine(a, 1, b, -1)


def imul(a: Expr, factor: int) -> Expr:
    """a * factor."""
    return _combine(a, factor, lit(0), 0)


def idiv(a: Expr, divisor: int) -> Expr:
    """a // divisor for a >= 0, divisor >= 1."""
    return _divmod(a, divisor)[0]


def imod(a: Expr, divisor: int) -> Expr:
    """a % divisor for a >= 0, divisor >= 1."""
    return _divmod(a, divisor)[1]


def linearize(index: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """The row-major element offset of `index` in an array of `shape`."""
    flat: Expr = lit(0)
    for i, extent in zip(index, shape, strict=True):
        flat = iadd(imul(flat, extent), i)
    return flat


def delinearize(flat: Expr, shape: Sequence[int]) -> tuple[Expr, ...]:
    """Inverse of linearize for 0 <= flat < product(shape)."""
    index: list[Expr] = []
    for axis in range(len(shape) - 1, -1, -1):
        extent = max(shape[axis], 1)
        # The leading quotient is in range by contract, so it needs no remainder.
        index.append(lit(0) if extent == 1 else imod(flat, extent) if axis else flat)
        flat = idiv(flat, extent)
    return tuple(reversed(index))


def ilt(a: Expr, b: Expr) -> Expr:
    """a < b, a literal when bounds decide."""
    terms, constant = _affine(isub(b, a))
    known = _affine_bounds(terms, constant)
    if known is not None and (known[0] > 0 or known[1] <= 0):
        return Lit(known[0] > 0, DType.BOOL)
    right = tuple((t, c) for t, c in terms if c > 0)
    left = tuple((t, -c) for t, c in terms if c < 0)
    if not right and not left:  # no terms: bounds decided above
        raise AssertionError("a constant comparison is always decided")
    sides = (_emit(left, max(-constant, 0)), _emit(right, max(constant, 0)))
    return Call("lt", sides, DType.BOOL)


def ige(a: Expr, b: Expr) -> Expr:
    """a >= b, a literal when bounds decide."""
    return ilt(b, iadd(a, lit(1)))


def iand(a: Expr, b: Expr) -> Expr:
    """Conjunction of two BOOL expressions, folded when either is a literal."""
    if isinstance(a, Lit):
        return b if a.value else a
    if isinstance(b, Lit):
        return a if b.value else b
    return a if a == b else Call("and", (a, b), DType.BOOL)


def iselect(cond: Expr, a: Expr, b: Expr) -> Expr:
    """a where cond else b (any one dtype), folded when cond is a literal or a equals b."""
    if isinstance(cond, Lit):
        return a if cond.value else b
    return a if a == b else Call("select", (cond, a, b), a.dtype)


def named(value: Expr, name: Callable[[Expr, int | None], Expr]) -> Expr:
    """`value`, or where it has grown large what `name` calls it, given its extent where that is
    known. Indices that pass through many ops would otherwise grow with every one of them."""
    if next(islice(walk(value), LARGEST, None), None) is None:
        return value
    known = bounds(value)
    return name(value, known[1] + 1 if known is not None and known[0] >= 0 else None)


def coefficients(expr: Expr, names: Sequence[str]) -> tuple[tuple[int, ...], Expr] | None:
    """`expr` as a sum of named variables times whole numbers, and the rest, which reads none of
    them; None where it is no such sum."""
    terms, constant = _affine(expr)
    factors = dict.fromkeys(names, 0)
    rest: dict[Expr, int] = {}
    for term, factor in terms:
        if isinstance(term, Sym) and term.name in factors:
            factors[term.name] = factor
        elif any(isinstance(e, Sym) and e.name in factors for e in walk(term)):
            return None
        else:
            rest[term] = factor
    return tuple(factors.values()), _normal(_ordered(rest), constant)


def parted(expr: Expr) -> tuple[Expr, int]:
    """`expr` without the constant of its sum, and that constant."""
    terms, constant = _affine(expr)
    return _normal(terms, 0), constant


def iclamp(a: Expr, low: int, high: int) -> Expr:
    """min(max(a, low), high), each side left out where bounds show that it never acts."""
    known = bounds(a)
    if known is None or known[0] < low:
        a = lit(low) if known is not None and known[1] <= low else Call("max", (a, lit(low)), I64)
    if known is None or known[1] > high:
        a = (
            lit(high)
            if known is not None and known[0] >= high
            else Call("min", (a, lit(high)), I64)
        )
    return a


@lru_cache(maxsize=1 << 16)
def bounds(expr: Expr) -> Bounds | None:
    """Inclusive (low, high) that `expr` never leaves, or None when nothing is known."""
    match expr:
        case Lit(value=value) if not isinstance(value, float):
            return int(value), int(value)
        case Sym(extent=int(extent)):
            return 0, max(extent - 1, 0)
        case Call(fn="cast", args=(inner,)) if inner.dtype.is_int:
            return bounds(inner) if expr.dtype == I64 else None
        case Call(fn="add" | "sub", dtype=DType.I64):
            return _affine_bounds(*_affine(expr))
        case Call(fn="mul", args=(Lit(), _) | (_, Lit()), dtype=DType.I64):
            return _affine_bounds(*_affine(expr))
        case Call(fn="div" | "rem", args=(a, Lit(value=int(c))), dtype=DType.I64) if c > 0:
            return _quotient_bounds(expr.fn, bounds(a), c)
        case Call(fn="min" | "max" | "select", dtype=DType.I64):
            return _choice_bounds(expr.fn, [bounds(a) for a in expr.args[-2:]])
    return None


def _quotient_bounds(fn: str, known: Bounds | None, divisor: int) -> Bounds | None:
    if fn == "div":
        return None if known is None else (known[0] // divisor, known[1] // divisor)
    if known is not None and known[0] >= 0:
        return 0, min(divisor - 1, known[1])
    return 1 - divisor, divisor - 1


def _choice_bounds(fn: str, known: list[Bounds | None]) -> Bounds | None:
    # A clamp of a loaded index is bounded though its operand is not.
    (a, b), (c, d) = (k or _UNKNOWN for k in known)
    if fn == "select":
        low, high = min(a, c), max(b, d)
    else:
        pick = min if fn == "min" else max
        low, high = pick(a, c), pick(b, d)
    return None if (low, high) == _UNKNOWN else (low, high)


def _affine_bounds(terms: tuple[tuple[Expr, int], ...], constant: int) -> Bounds | None:
    low = high = constant
    for term, factor in terms:
        known = bounds(term)
        if known is None:
            return None
        ends = (known[0] * factor, known[1] * factor)
        low, high = low + min(ends), high + max(ends)
    return low, high


@lru_cache(maxsize=1 << 16)
def _key(term: Expr) -> str:
    """A total order on terms that does not depend on how they were made."""
    match term:
        case Lit(value=value):
            return f"#{value!r}:{term.dtype}"
        case Sym(name=name):
            return f"{name}:{term.dtype}"
        case Load(buffer=buffer, index=index):
            return f"{buffer}[{_key(index)}]"
    return f"{term.fn}:{term.dtype}({','.join(map(_key, term.args))})"


@lru_cache(maxsize=1 << 16)
def _affine(expr: Expr) -> Affine:
    """The affine sum that `expr` is."""
    match expr:
        case Lit(value=value):
            return (), int(value)
        case Call(fn="add" | "sub", args=(a, b), dtype=DType.I64):
            return _sum(_affine(a), 1, _affine(b), 1 if expr.fn == "add" else -1)
        case Call(fn="mul", args=(a, Lit(value=int(c))), dtype=DType.I64):
            return _sum(_affine(a), c, ((), 0), 0)
        case Call(fn="mul", args=(Lit(value=int(c)), a), dtype=DType.I64):
            return _sum(_affine(a), c, ((), 0), 0)
    known = bounds(expr)
    return ((), known[0]) if known is not None and known[0] == known[1] else (((expr, 1),), 0)


def _sum(a: Affine, times_a: int, b: Affine, times_b: int) -> Affine:
    factors: dict[Expr, int] = {}
    for (terms, _), times in ((a, times_a), (b, times_b)):
        for term, factor in terms:
            factors[term] = factors.get(term, 0) + factor * times
    constant = a[1] * times_a + b[1] * times_b
    return _ordered(factors), constant


def _ordered(factors: dict[Expr, int]) -> tuple[tuple[Expr, int], ...]:
    kept = [(t, c) for t, c in factors.items() if c]
    return tuple(sorted(kept, key=lambda tc: (tc[1] < 0, -abs(tc[1]), _key(tc[0]))))


@lru_cache(maxsize=1 << 16)
def _combine(a: Expr, times_a: int, b: Expr, times_b: int) -> Expr:
    terms, constant = _sum(_affine(a), times_a, _affine(b), times_b)
    return _normal(terms, constant)


def _normal(terms: tuple[tuple[Expr, int], ...], constant: int) -> Expr:
    """The expression of an affine sum, quotients and remainders of one value joined again."""
    joined = _join(terms, constant)
    while joined is not None:
        terms, constant = joined
        joined = _join(terms, constant)
    return _emit(terms, constant)


def _join(terms: tuple[tuple[Expr, int], ...], constant: int) -> Affine | None:
    """One step of k*(y % c) + k*c*(y // c) = k*y, or with (y // c) % d in place of y // c."""
    for term, k in terms:
        match term:
            case Call(fn="rem", args=(y, Lit(value=int(c))), dtype=DType.I64) if c > 0:
                quotient = idiv(y, c)
            case _:
                continue
        rest: Affine = (tuple(tc for tc in terms if tc[0] != term), constant)
        parts = _affine(quotient)
        have = dict(terms)
        if parts[0] and all(have.get(t, 0) == k * c * f for t, f in parts[0]):
            rest = _sum(rest, 1, parts, -k * c)
            return _sum(rest, 1, _affine(y), k)
        for other, factor in terms:
            match other:
                case Call(fn="rem", args=(z, Lit(value=int(d)))) if z == quotient and (
                    factor == k * c
                ):
                    rest = _sum(rest, 1, ((((other, 1),)), 0), -factor)
                    return _sum(rest, 1, _affine(imod(y, c * d)), k)
    return None


def _emit(terms: tuple[tuple[Expr, int], ...], constant: int) -> Expr:
    total: Expr | None = None
    for term, factor in terms:
        size = abs(factor) if total is not None else factor
        part = term if size == 1 else Call("mul", (term, lit(size)), I64)
        sign = "add" if factor > 0 else "sub"
        total = part if total is None else Call(sign, (total, part), I64)
    if total is None:
        return lit(constant)
    if constant:
        total = Call("add" if constant > 0 else "sub", (total, lit(abs(constant))), I64)
    return total


@lru_cache(maxsize=1 << 16)
def _divmod(a: Expr, divisor: int) -> tuple[Expr, Expr]:
    """Quotient and remainder of a >= 0 by divisor >= 1, simplified."""
    if divisor < 1:
        raise ValueError(f"index divisor {divisor} is not positive")
    if divisor == 1:
        return a, lit(0)
    terms, constant = _affine(a)
    # a = divisor * whole + part + k with part + k >= 0, so the quotient splits exactly.
    whole = {t: abs(c) // divisor * (1 if c > 0 else -1) for t, c in terms}
    part = _ordered({t: c - whole[t] * divisor for t, c in terms})
    low = _affine_bounds(part, 0)
    if low is None:
        return _opaque_divmod(terms, constant, divisor)
    k = _smallest(constant, divisor, -low[0])
    outer = _emit(_ordered(whole), (constant - k) // divisor)
    if low[1] + k < divisor:
        return outer, _normal(part, k)
    quotient, remainder = _reduced_divmod(part, k, divisor)
    return iadd(outer, quotient), remainder


def _smallest(value: int, step: int, least: int) -> int:
    """The smallest number >= least that differs from `value` by a multiple of step."""
    return least + (value - least) % step


def _reduced_divmod(
    terms: tuple[tuple[Expr, int], ...], constant: int, divisor: int
) -> tuple[Expr, Expr]:
    """Divide a non-negative sum by what a factor of the divisor leaves, when it splits cleanly."""
    factors = {gcd(c, divisor) for _, c in terms} | {reduce(gcd, (c for _, c in terms), divisor)}
    for g in sorted((f for f in factors if f > 1), reverse=True):
        inner = tuple((t, c) for t, c in terms if c % g)
        known = _affine_bounds(inner, 0)
        if known is None:
            continue
        k = _smallest(constant, g, -known[0])
        if known[1] + k >= g:
            continue
        outer = _normal(tuple((t, c // g) for t, c in terms if c % g == 0), (constant - k) // g)
        quotient, remainder = _divmod(outer, divisor // g)
        return quotient, iadd(imul(remainder, g), _normal(inner, k))
    return _opaque_divmod(terms, constant, divisor)


def _opaque_divmod(
    terms: tuple[tuple[Expr, int], ...], constant: int, divisor: int
) -> tuple[Expr, Expr]:
    """Quotients of quotients and of remainders joined; else the plain calls."""
    a = _normal(terms, constant)
    quotient: Expr = Call("div", (a, lit(divisor)), I64)
    remainder: Expr = Call("rem", (a, lit(divisor)), I64)
    if len(terms) != 1 or terms[0][1] != 1:
        return quotient, remainder
    match terms[0][0]:
        case Call(fn="div", args=(x, Lit(value=int(c))), dtype=DType.I64) if c > 0:
            quotient = idiv(iadd(x, lit(constant * c)), c * divisor)
        case Call(fn="rem", args=(x, Lit(value=int(c))), dtype=DType.I64) if (
            c > 0 and c % divisor == 0 and constant == 0
        ):
            return imod(idiv(x, divisor), c // divisor), imod(x, divisor)
    return quotient, remainder
