"""What conditions and clamps come to once more is known of the positions that they test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from autofuse.ops import index as ix
from autofuse.ops.dtypes import INTS, DType
from autofuse.ops.scalar import COMPARISONS, Call, Expr, Lit, Load, Sym, walk

BOOL, I64 = DType.BOOL, DType.I64
# Multiples of a divisor inside a range at which the range may be cut.
MOST_MULTIPLES = 2
# Of whole numbers.
CONTRARY = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
# What numbers of a type can be, where an index holds all of them.
CASTS = {dtype: dtype.limits for dtype in (DType.BOOL, *INTS) if dtype.itemsize < I64.itemsize}


def simplified(fn: str, args: tuple[Expr, ...]) -> Expr:
    """An operation on I64 indices, simplified."""
    plain = Call(fn, args, I64)
    match fn, args:
        case "add", (a, b):
            return ix.iadd(a, b)
        case "sub", (a, b):
            return ix.isub(a, b)
        case "mul", ((a, Lit(value=int(n))) | (Lit(value=int(n)), a)):
            return ix.imul(a, n)
        case "div" | "rem", (a, Lit(value=int(n))) if n > 0:
            known = ix.bounds(a)
            # Of data nothing is known, and a negative dividend is not an index.
            if known is None or known[0] < 0:
                return plain
            return ix.idiv(a, n) if fn == "div" else ix.imod(a, n)
        case "min" | "max", (a, b):
            return _nearest(fn, a, b)
    return plain


def _nearest(fn: str, a: Expr, b: Expr) -> Expr:
    room = ix.bounds(ix.isub(b, a))
    if room is not None and room[0] >= 0:
        return a if fn == "min" else b
    if room is not None and room[1] <= 0:
        return b if fn == "min" else a
    return Call(fn, (a, b), I64)


def as_index(expr: Expr) -> Expr | None:
    """A whole number as an I64 index, where bounds show that its own type holds every number on the
    way; None elsewhere."""
    if expr.dtype is I64:
        return expr
    limits = CASTS.get(expr.dtype) if expr.dtype is not BOOL else None
    found = None if limits is None else _widened(expr)
    known = None if found is None else ix.bounds(found)
    if limits is None or known is None or known[0] < limits[0] or known[1] > limits[1]:
        return None
    return found


def _widened(expr: Expr) -> Expr | None:
    match expr:
        case Lit(value=value):
            return ix.lit(int(value))
        case Call(fn="cast", args=(source,)):
            return as_index(source)
        case Call(fn="add" | "sub" | "mul" | "min" | "max" as fn, args=(a, b)):
            first, second = as_index(a), as_index(b)
            return None if first is None or second is None else simplified(fn, (first, second))
    return None


@lru_cache(maxsize=1 << 16)
def decided(fn: str, a: Expr, b: Expr) -> bool | None:
    """A comparison of whole numbers, where bounds decide it."""
    known = _room(a, b)
    if known is None:
        return None
    low, high = known
    # What is known of b - a, in terms of which every comparison is an interval.
    inside, outside = {
        "lt": (low > 0, high <= 0), "le": (low >= 0, high < 0),
        "gt": (high < 0, low >= 0), "ge": (high <= 0, low > 0),
        "eq": (low == high == 0, low > 0 or high < 0),
        "ne": (low > 0 or high < 0, low == high == 0),
    }[fn]  # fmt: skip
    return True if inside else False if outside else None


def mostly(fn: str, a: Expr, b: Expr) -> bool | None:
    """What a comparison is for most of the numbers between its bounds; None without bounds."""
    known = _room(a, b)
    if known is None:
        return None
    low, high = known
    more = {"lt": high > -low, "le": high > -low, "gt": -low > high, "ge": -low > high}
    return more.get(fn, fn == "ne")


def _room(a: Expr, b: Expr) -> ix.Bounds | None:
    """Bounds of b - a."""
    first, second = as_index(a), as_index(b)
    return None if first is None or second is None else ix.bounds(ix.isub(second, first))


def cuts(expr: Expr, var: Sym) -> Iterator[Expr]:
    """Values of `var` from which on a comparison or a quotient in `expr` is another."""
    for e in walk(expr):
        match e:
            case Call(fn="div" | "rem", args=(a, Lit(value=int(n))), dtype=DType.I64) if n > 0:
                yield from _multiples(a, n, var)
            case Call(fn=fn, args=(a, b)) if fn in COMPARISONS:
                first, second = as_index(a), as_index(b)
                if first is not None and second is not None:
                    for room in _positive(fn, ix.isub(second, first)):
                        yield from _turn(room, var)


def clamps(expr: Expr, var: Sym) -> Iterator[tuple[Expr, Expr]]:
    """Pairs of values of `var`: from either of them on a minimum or maximum in `expr` is its other
    operand (between the two both are the same)."""
    for e in walk(expr):
        if isinstance(e, Call) and e.fn in ("min", "max"):
            first, second = map(as_index, e.args)
            if first is not None and second is not None:
                room = ix.isub(second, first)
                yield from zip(_turn(room, var), _turn(ix.iadd(room, ix.lit(1)), var), strict=True)


def _positive(fn: str, room: Expr) -> tuple[Expr, ...]:
    """Sums whose turn to positive is where a comparison with so much `room` changes."""
    more, less = ix.iadd(room, ix.lit(1)), ix.isub(ix.lit(0), room)
    match fn:
        case "lt":
            return (room,)
        case "le":
            return (more,)
        case "gt":
            return (less,)
        case "ge":
            return (ix.iadd(less, ix.lit(1)),)
    return (room, more)


def _turn(room: Expr, var: Sym) -> Iterator[Expr]:
    """Where a sum that is even in a variable turns positive, or ceases to be."""
    known = ix.coefficients(room, (var.name,))
    if known is None or not known[0][0]:
        return
    (factor,), rest = known
    if isinstance(rest, Lit):
        least = int(rest.value)
        yield ix.lit(-least // factor + 1 if factor > 0 else -(-least // -factor))
    elif abs(factor) == 1:
        yield ix.isub(ix.lit(1), rest) if factor > 0 else rest


def _multiples(dividend: Expr, divisor: int, var: Sym) -> Iterator[Expr]:
    known, limits = ix.coefficients(dividend, (var.name,)), ix.bounds(dividend)
    if known is None or known[0] != (1,) or limits is None:
        return
    first, last = limits[0] // divisor + 1, limits[1] // divisor
    if last - first < MOST_MULTIPLES:
        for n in range(first, last + 1):
            yield ix.isub(ix.lit(n * divisor), known[1])


def resolved(
    expr: Expr, values: Mapping[str, Expr], facts: Mapping[Expr, Lit] | None = None
) -> Expr:
    """`expr` with symbols replaced by name, index arithmetic simplified anew, and what bounds or
    `facts` (comparisons that are known) decide decided."""
    match expr:
        case Sym(name=name):
            return values.get(name, expr)
        case Load(buffer, index, dtype):
            return Load(buffer, resolved(index, values, facts), dtype)
        case Call(fn, args, dtype):
            new = tuple(resolved(a, values, facts) for a in args)
            return rejoined(Call(fn, new, dtype), facts)
    return expr


def rejoined(plain: Call, facts: Mapping[Expr, Lit] | None = None) -> Expr:
    """A call whose arguments are resolved."""
    fn, args, dtype = plain.fn, plain.args, plain.dtype
    if facts and plain in facts:
        return facts[plain]
    if fn == "select" and isinstance(args[0], Lit):
        return args[1] if args[0].value else args[2]
    if fn in COMPARISONS:
        known = decided(fn, *args)
        return plain if known is None else Lit(known, BOOL)
    if dtype is BOOL and fn in ("and", "or"):
        return _connected(fn, *args)
    if dtype is BOOL and fn == "not" and isinstance(args[0], Lit):
        return Lit(not args[0].value, BOOL)
    if dtype is I64:
        index = as_index(args[0]) if fn == "cast" else simplified(fn, args)
        return plain if index is None else _unclamped(index, facts) if facts else index
    return plain


def _unclamped(index: Expr, facts: Mapping[Expr, Lit]) -> Expr:
    """A minimum or maximum of two positions of which facts say which it is."""
    if not (isinstance(index, Call) and index.fn in ("min", "max")):
        return index
    a, b = index.args
    for fact, value in facts.items():
        least = _at_least_zero(fact, bool(value.value))
        if least is None:
            continue
        for greater, smaller in ((a, b), (b, a)):
            beyond = ix.isub(ix.isub(greater, smaller), least)
            if isinstance(beyond, Lit) and beyond.value >= 0:
                return greater if index.fn == "max" else smaller
    return index


@lru_cache(maxsize=1 << 12)
def _at_least_zero(fact: Expr, value: bool) -> Expr | None:
    """What is no less than 0 where a comparison of whole numbers is so."""
    if not isinstance(fact, Call) or fact.fn not in CONTRARY:
        return None
    a, b = (as_index(arg) for arg in fact.args)
    if a is None or b is None:
        return None
    above, *others = _positive(fact.fn if value else CONTRARY[fact.fn], ix.isub(b, a))
    return None if others else ix.isub(above, ix.lit(1))


def _connected(fn: str, a: Expr, b: Expr) -> Expr:
    """Conjunction or disjunction of two conditions, folded when one is known."""
    neutral = fn == "and"
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Lit):
            return other if bool(one.value) is neutral else one
    return Call(fn, (a, b), BOOL)
