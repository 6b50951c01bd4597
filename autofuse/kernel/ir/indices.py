"""What passes ask of index expressions: rewriting with simplification, ranges, divisibility."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice

from autofuse.kernel.ir.types import Let, LoadVector, Stmt, Store, StoreVector, walk
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import CASTS, simplified
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym

I64 = DType.I64
Range = tuple[int, int]
# Parts of an index expression worth looking at as a whole.
LARGEST_INDEX = 200


def rebuild(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """`expr` with symbols replaced by name and its index arithmetic simplified anew."""
    match expr:
        case Sym(name=name):
            return values.get(name, expr)
        case Load(buffer, index, dtype):
            return Load(buffer, rebuild(index, values), dtype)
        case Call(fn, args, dtype):
            new = tuple(rebuild(a, values) for a in args)
            return simplified(fn, new) if dtype is I64 else Call(fn, new, dtype)
    return expr


def spelled_out(value: Expr, names: Mapping[str, Expr], own: Expr) -> Expr:
    """What an index value is in terms of `names`; its `own` name where that is no index any more
    but data, whose spelling out could grow without end."""
    full = rebuild(value, names)
    return own if next(islice(walk(full), LARGEST_INDEX, None), None) is not None else full


def mentions(expr: Expr, names: set[str] | frozenset[str]) -> bool:
    """Some symbol or buffer of `expr` is among `names`."""
    return any(
        (isinstance(e, Sym) and e.name in names) or (isinstance(e, Load) and e.buffer in names)
        for e in walk(expr)
    )


@lru_cache(maxsize=1 << 16)
def has_load(expr: Expr) -> bool:
    """Some part of `expr` is read from memory."""
    return any(isinstance(e, Load) for e in walk(expr))


def is_multiple(expr: Expr, n: int) -> bool:
    """`expr` is a multiple of n, whatever its symbols are."""
    match expr:
        case Lit(value=value):
            return int(value) % n == 0
        case Call(fn="add" | "sub" | "min" | "max", args=(a, b)):
            return is_multiple(a, n) and is_multiple(b, n)
        case Call(fn="mul", args=(a, b)):
            return is_multiple(a, n) or is_multiple(b, n)
        case Call(fn="select", args=(_, a, b)):
            return is_multiple(a, n) and is_multiple(b, n)
    return n == 1


def divided(expr: Expr, n: int) -> Expr:
    """expr / n of an expression that `is_multiple` of n, sum by sum."""
    match expr:
        case Lit(value=value):
            return ix.lit(int(value) // n)
        case Call(fn="add" | "sub" | "min" | "max" as fn, args=(a, b)):
            return Call(fn, (divided(a, n), divided(b, n)), I64)
        case Call(fn="mul", args=(a, b)):
            parts = (divided(a, n), b) if is_multiple(a, n) else (a, divided(b, n))
            return Call("mul", parts, I64)
        case Call(fn="select", args=(c, a, b)):
            return Call("select", (c, divided(a, n), divided(b, n)), I64)
    if n != 1:
        raise AssertionError("only multiples are divided")
    return expr


def value_range(expr: Expr, known: Mapping[str, Range]) -> Range | None:
    """Inclusive bounds of an I64 expression from those of its symbols, None without any."""
    match expr:
        case Lit(value=value):
            return int(value), int(value)
        case Sym(name=name):
            return known.get(name)
        case Call(fn="cast", args=(source,)):
            return CASTS.get(source.dtype) if source.dtype is not I64 else None
        case Call(fn="select", args=(_, a, b)):
            return _hull(value_range(a, known), value_range(b, known))
        case Call(fn="min" | "max", args=(a, b)):
            return _clamped(expr.fn, value_range(a, known), value_range(b, known))
        case Call(fn=fn, args=(a, b)):
            first, second = value_range(a, known), value_range(b, known)
            return None if first is None or second is None else _combined(fn, first, second)
    return None


def _hull(a: Range | None, b: Range | None) -> Range | None:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _clamped(fn: str, a: Range | None, b: Range | None) -> Range | None:
    if a is None or b is None:
        return None
    pick = min if fn == "min" else max
    return pick(a[0], b[0]), pick(a[1], b[1])


def _combined(fn: str, a: Range, b: Range) -> Range | None:
    match fn:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "div" if b[0] == b[1] > 0 and a[0] >= 0:
            return a[0] // b[0], a[1] // b[0]
        case "rem" if b[0] == b[1] > 0 and a[0] >= 0:
            return 0, min(b[0] - 1, a[1])
    return None


def stored_where_data_say(stmts: Iterable[Stmt]) -> frozenset[str]:
    """Buffers of which some element is stored at a place that is computed from loaded numbers.
    Values come before their uses."""
    data: set[str] = set()
    found: set[str] = set()

    def from_data(expr: Expr) -> bool:
        return any(isinstance(e, Load) or getattr(e, "name", "") in data for e in walk(expr))

    for stmt in stmts:
        if isinstance(stmt, Let) and from_data(stmt.value):
            data.add(stmt.sym.name)
        if isinstance(stmt, LoadVector):
            data |= {sym.name for sym in stmt.syms}
        if isinstance(stmt, Store | StoreVector) and from_data(stmt.index):
            found.add(stmt.buffer)
    return frozenset(found)
