"""What conditions on indices say of their variables."""

from __future__ import annotations

from autofuse.ops.dtypes import DType
from autofuse.ops.index import bounds, coefficients, iadd, imul, isub, lit
from autofuse.ops.scalar import Call, Expr, Lit, Sym


def latest(condition: Expr, name: str) -> Expr | None:
    """The largest value of a variable with which a condition can hold, as an index that does not
    read it; None where nothing is known."""
    match condition:
        case Call(fn="and", args=(a, b)):
            found = latest(a, name)
            return latest(b, name) if found is None else found
        case Call(fn="le" | "lt", args=(a, b)):
            return _latest(a, b, name, int(condition.fn == "lt"))
        case Call(fn="ge" | "gt", args=(a, b)):
            return _latest(b, a, name, int(condition.fn == "gt"))
    return None


def _latest(low: Expr, high: Expr, name: str, strict: int) -> Expr | None:
    """The largest value of a variable with low <= high, or low < high where `strict` is 1."""
    a, b = _widened(low), _widened(high)
    found = None if a is None or b is None else coefficients(isub(a, b), (name,))
    if found is None or found[0] != (1,):
        return None
    return isub(lit(-strict), found[1])


def _widened(value: Expr) -> Expr | None:
    """A whole number computed in some type as the same index, or None where it might wrap."""
    match value:
        case Lit(value=int(number)):
            return lit(number)
        case Sym(dtype=DType.I64):
            return value
        case Call(fn="cast", args=(inner,)) if inner.dtype.is_int and value.dtype.is_int:
            found = _widened(inner)
        case Call(fn="add" | "sub" | "mul" as fn, args=(x, y)):
            a, b = _widened(x), _widened(y)
            if a is None or b is None:
                return None
            if fn == "mul":
                found = imul(a, int(b.value)) if isinstance(b, Lit) else None
            else:
                found = iadd(a, b) if fn == "add" else isub(a, b)
        case _:
            return None
    known = None if found is None else bounds(found)
    fits = known is not None and known[0] >= -(1 << 31) and known[1] < 1 << 31
    return found if fits else None
