"""Left operands that are read where they lie, tap after tap, though their rows are no matrix.

The rows of a convolution are patches of an image. For one tap of its kernel (a position of the
outer loops over terms) every row has a run of terms in memory, or none where the patch reaches into
padding. So nothing is copied; as in Dukhan, "The Indirect Convolution Algorithm" (arXiv 1907.02129),
but with addresses computed, not stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from autofuse.kernel.ir import substitute
from autofuse.kernel.panels import element_in_memory, symbol, term_loops
from autofuse.kernel.values import Frame
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, walk
from autofuse.ops.spec import Index
from autofuse.plan.tiles import Contraction

# Terms that a row needs in one place: computing where they are must cost less than summing them.
LEAST_RUN = 8
# The output index of a row, given its number from the tile's first row on.
RowIndex = Callable[[int], Index]


@dataclass(frozen=True, slots=True)
class Way:
    """How a left operand is walked: its buffer, loops over taps, and in one tap `run` terms that
    lie `inner` apart, each column `across` further."""

    buffer: str
    taps: tuple[int, ...]
    run: int
    inner: int
    across: int

    @property
    def count(self) -> int:
        """All taps."""
        return math.prod(self.taps)


@dataclass(frozen=True, slots=True)
class _Found:
    """An element in memory, and the conditions under which there is one (else it is zero)."""

    buffer: str
    index: Expr
    there: tuple[Expr, ...]


def way_of(frame: Frame, p: Contraction, index: Index, column: Sym) -> Way | None:
    """The way to walk along the left operand, whose rows are at a made-up output `index`; a
    `column` is a variable of it. None where the operand is not just memory of the type that it is
    computed in, or where runs of terms would be too short."""
    loops = term_loops(frame.graph, p)
    marks = tuple(symbol(f"k{k}", extent) for k, extent in enumerate(loops))
    found = _find(frame, p, index, marks)
    if found is None:
        return None
    across = _along(found, column)
    inner, run, outer = 1, 1, len(loops)
    while outer and across is not None:
        mark, extent = marks[outer - 1], loops[outer - 1]
        step = _along(found, mark) if extent > 1 else inner * run
        if step is None or not step or (run > 1 and step != inner * run):
            break
        inner = step if run == 1 else inner
        run, outer = run * extent, outer - 1
    if across is None or across != p.diagonal or not (run >= LEAST_RUN or p.diagonal):
        return None
    taps = tuple(extent for extent in loops[:outer] if extent > 1)
    return Way(found.buffer, taps, run, inner, across)


def _along(found: _Found, mark: Sym) -> int | None:
    """How far an element moves with a variable; None where not evenly, or where the variable
    decides whether there is one."""
    if any(mark in walk(condition) for condition in found.there):
        return None
    known = ix.coefficients(found.index, (mark.name,))
    return None if known is None else known[0][0]


def _find(frame: Frame, p: Contraction, index: Index, term: Index) -> _Found | None:
    """An element of the left operand."""
    element = element_in_memory(frame, p, p.left, index, term)
    conditions: tuple[Expr, ...] = ()
    if isinstance(element, Call) and element.fn == "select":
        condition, element, other = element.args
        if not isinstance(other, Lit) or other.value != 0:
            return None
        conditions = tuple(_conjuncts(condition))
    own = frame.graph.type_of(frame.graph[p.node].inputs[p.left]).dtype.compute
    if not isinstance(element, Load) or element.dtype is not own:
        return None
    return _Found(element.buffer, _unclamped(element.index, conditions), conditions)


def _conjuncts(condition: Expr) -> Sequence[Expr]:
    if isinstance(condition, Call) and condition.fn == "and":
        return [c for a in condition.args for c in _conjuncts(a)]
    return [condition]


def _unclamped(expr: Expr, known: tuple[Expr, ...]) -> Expr:
    """An index without the clamps that never act where some conditions hold."""
    match expr:
        case Call(fn="max", args=(a, Lit(value=int(low)))):
            a = _unclamped(a, known)
            return a if _holds(ix.ige(a, ix.lit(low)), known) else ix.iclamp(a, low, 1 << 62)
        case Call(fn="min", args=(a, Lit(value=int(high)))):
            a = _unclamped(a, known)
            least = -(1 << 62)
            return a if _holds(ix.ilt(a, ix.lit(high + 1)), known) else ix.iclamp(a, least, high)
        case Call(fn="add", args=(a, b)):
            return ix.iadd(_unclamped(a, known), _unclamped(b, known))
        case Call(fn="sub", args=(a, b)):
            return ix.isub(_unclamped(a, known), _unclamped(b, known))
        case Call(fn="mul", args=(a, Lit(value=int(times)))):
            return ix.imul(_unclamped(a, known), times)
        case Call(fn="div", args=(a, Lit(value=int(divisor)))):
            return ix.idiv(_unclamped(a, known), divisor)
    return expr


def _holds(condition: Expr, known: tuple[Expr, ...]) -> bool:
    return condition in known or (isinstance(condition, Lit) and bool(condition.value))


def steps(
    frame: Frame, p: Contraction, way: Way, taps: Sequence[Expr], rows: Sequence[Index]
) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """Where the terms of each row start at a tap, and whether there are any."""
    found = [_found_at(frame, p, way, taps, index) for index in rows]
    there = tuple(_all(f.there) for f in found)
    return tuple(f.index for f in found), there


def _found_at(frame: Frame, p: Contraction, way: Way, taps: Sequence[Expr], index: Index) -> _Found:
    """The first term of a row at a tap."""
    loops, given = term_loops(frame.graph, p), iter(taps)
    outer, left = [], len(way.taps)
    for extent in loops:
        outer.append(next(given) if extent > 1 and left else ix.lit(0))
        left -= extent > 1 and left > 0
    found = _find(frame, p, index, tuple(outer))
    assert found is not None
    return found


def _all(conditions: Sequence[Expr]) -> Expr:
    found: Expr = Lit(True, DType.BOOL)
    for condition in conditions:
        found = ix.iand(found, condition)
    return found


def inside(frame: Frame, p: Contraction, way: Way, last: Index, first: Index) -> Expr | None:
    """A condition under which every tap of rows from `first` to `last` has terms; None where no
    corners of the taps and rows decide that."""
    marks = tuple(symbol(f"t{k}", extent) for k, extent in enumerate(way.taps))
    found: list[Expr] = []
    for index in (first, last):
        for condition in _found_at(frame, p, way, marks, index).there:
            corner = _worst(condition, marks)
            if corner is None:
                return None
            found.append(corner)
    return _all(tuple(dict.fromkeys(found)))


def _worst(condition: Expr, marks: tuple[Sym, ...]) -> Expr | None:
    """A comparison where it is hardest to meet, if it is even in some variables."""
    if not isinstance(condition, Call) or condition.fn != "lt":
        return None
    room = ix.isub(condition.args[1], condition.args[0])
    known = ix.coefficients(room, tuple(m.name for m in marks))
    if known is None:
        return None
    values: dict[str, Expr] = {
        mark.name: ix.lit(0 if step >= 0 or mark.extent is None else mark.extent - 1)
        for mark, step in zip(marks, known[0], strict=True)
    }
    least = ix.iadd(substitute(room, values), ix.lit(0))
    return ix.ilt(ix.lit(0), least)
