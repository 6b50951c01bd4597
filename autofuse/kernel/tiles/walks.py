"""Left operands that are read where they lie, tap after tap, though their rows are no matrix.

The rows of a convolution are patches of an image. For one tap of its kernel (a position of the
outer loops over terms) every row has a run of terms in memory, or none where the patch reaches into
padding. So nothing is copied, as in Dukhan, "The Indirect Convolution Algorithm" (arXiv
1907.02129), but with addresses computed, not stored. Where such runs are short, longer ones may be
copied, of which a part may be in padding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.kernel.elements.values import Frame
from autofuse.kernel.ir.types import substitute
from autofuse.kernel.tiles.panels import element_of_memory, symbol, term_loops
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, walk
from autofuse.plan.schedules.tiles import Contraction

# Terms that a row needs in one place: finding them must cost less than what is done with them.
LEAST_RUN = 8
_FAR, _NEVER = 1 << 62, Lit(False, DType.BOOL)


@dataclass(frozen=True, slots=True)
class Way:
    """How a left operand is walked: its buffer, the loops over terms, of which the first `outer`
    are over taps; in one tap `run` terms lie `inner` apart, for each column `across` further. As
    `stored` they are of their own type, else of the one that they are computed in."""

    buffer: str
    loops: tuple[int, ...]
    outer: int
    run: int
    inner: int
    across: int
    stored: bool = False

    @property
    def taps(self) -> tuple[int, ...]:
        """The loops over taps, those of one turn left out."""
        return tuple(extent for extent in self.loops[: self.outer] if extent > 1)

    @property
    def count(self) -> int:
        """All taps."""
        return math.prod(self.taps)

    def term(self, taps: Sequence[Expr]) -> Index:
        """The first term at a tap."""
        given = iter(taps)
        outer = (next(given) if extent > 1 else ix.lit(0) for extent in self.loops[: self.outer])
        return (*outer, *(ix.lit(0) for _ in self.loops[self.outer :]))


@dataclass(frozen=True, slots=True)
class _Found:
    """An element in memory, and the conditions under which there is one (else it is zero)."""

    buffer: str
    index: Expr
    there: tuple[Expr, ...]


def way_of(
    frame: Frame, p: Contraction, index: Index, column: Sym, *, whole: bool = True,
    stored: bool = False,
) -> Way | None:  # fmt: skip
    """The way to walk along the left operand, whose rows are at a made-up output `index`; `column`
    is a variable of it. None where the operand is not just memory of the type that it is computed
    in (`stored`: of its own), or where runs of terms would be too short. `whole`: every run is
    there or is not."""
    loops = term_loops(frame.graph, p)
    marks = _marks(loops)
    found = _find(frame, p, index, marks, stored)
    if found is None or _NEVER in found.there:
        return None
    # A column never decides what is there.
    across = _along(found, column, whole=True)
    inner, run, outer = 1, 1, len(loops)
    while outer:
        mark, extent = marks[outer - 1], loops[outer - 1]
        step = _along(found, mark, whole) if extent > 1 else inner * run
        if not step or (run > 1 and step != inner * run):
            break
        inner = step if run == 1 and extent > 1 else inner
        run, outer = run * extent, outer - 1
    if across != p.diagonal or not (run >= LEAST_RUN or p.diagonal):
        return None
    cut = [c for c in found.there if any(m in walk(c) for m in marks[outer:])]
    if not all(_ends(c, marks[outer], marks[outer + 1 :]) for c in cut):
        return None
    return Way(found.buffer, loops, outer, run, inner, across, stored)


def _ends(condition: Expr, mark: Sym, others: Sequence[Sym]) -> bool:
    """Whether a condition that decides which terms of a run are there holds up to one position of
    the run's first loop, or from one on."""
    known = _room(condition, (mark, *others))
    return known is not None and abs(known[0][0]) == 1 and not any(known[0][1:])


def _marks(loops: Sequence[int]) -> tuple[Sym, ...]:
    return tuple(symbol(f"k{k}", extent) for k, extent in enumerate(loops))


def _along(found: _Found, mark: Sym, whole: bool) -> int | None:
    """How far an element moves with a variable; None where not evenly, or where the variable
    decides whether there is one."""
    if whole and any(mark in walk(condition) for condition in found.there):
        return None
    known = ix.coefficients(found.index, (mark.name,))
    return None if known is None else known[0][0]


def _zero_elsewhere(element: Expr | None) -> tuple[Expr | None, tuple[Expr, ...]] | None:
    """What it is, and on which conditions; None where it is not zero without them."""
    if not isinstance(element, Call) or element.fn != "select":
        return element, ()
    condition, inside, other = element.args
    if not isinstance(other, Lit) or other.value != 0:
        return None
    return inside, tuple(_conjuncts(condition))


def _find(
    frame: Frame, p: Contraction, index: Index, term: Index, stored: bool
) -> _Found | None:  # fmt: skip
    """An element of the left operand."""
    element = element_of_memory(frame, p, p.left, index, term)
    inside = _zero_elsewhere(element)
    if inside is None:
        return None
    element, conditions = inside
    if isinstance(element, Lit) and element.value == 0:
        return _Found("", ix.lit(0), (_NEVER,))
    own = frame.graph.type_of(frame.graph[p.node].inputs[p.left]).dtype
    if stored and isinstance(element, Call) and element.fn == "cast":
        (element,) = element.args
    if not isinstance(element, Load) or element.dtype is not (own if stored else own.compute):
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
            return a if _holds(ix.ige(a, ix.lit(low)), known) else ix.iclamp(a, low, _FAR)
        case Call(fn="min", args=(a, Lit(value=int(high)))):
            a = _unclamped(a, known)
            return a if _holds(ix.ilt(a, ix.lit(high + 1)), known) else ix.iclamp(a, -_FAR, high)
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


@dataclass(frozen=True, slots=True)
class TapSteps:
    """Where the terms of each row start at a tap, whether a row has some if any has, and whether
    any may have."""

    starts: tuple[Expr, ...]
    there: tuple[Expr, ...]
    needed: Expr


def steps(
    frame: Frame, p: Contraction, way: Way, taps: Sequence[Expr], rows: Sequence[Index]
) -> TapSteps:
    """The steps of some rows at a tap."""
    found = [_found(frame, p, way, index, way.term(taps)) for index in rows]
    shared = [c for c in found[0].there if all(c in f.there for f in found)]
    own = (_all([c for c in f.there if c not in shared]) for f in found)
    return TapSteps(tuple(f.index for f in found), tuple(own), _all(shared))


def _found(frame: Frame, p: Contraction, way: Way, index: Index, term: Index) -> _Found:
    """An element of an operand that is known to be walked."""
    found = _find(frame, p, index, term, way.stored)
    assert found is not None
    return found


def _all(conditions: Sequence[Expr]) -> Expr:
    found: Expr = Lit(True, DType.BOOL)
    for condition in conditions:
        found = ix.iand(found, condition)
    return found


def inside(frame: Frame, p: Contraction, way: Way, last: Index, first: Index) -> Expr | None:
    """A condition under which rows from `first` to `last` have all their terms; None where no
    corners of the loops decide that."""
    marks = _marks(way.loops)
    found: list[Expr] = []
    for index in (first, last):
        for condition in _found(frame, p, way, index, marks).there:
            corner = _worst(condition, marks)
            if corner is None:
                return None
            found.append(corner)
    return _all(tuple(dict.fromkeys(found)))


def _room(condition: Expr, marks: Sequence[Sym]) -> tuple[tuple[int, ...], Expr] | None:
    """A comparison as a sum of variables times whole numbers and a rest, positive where it holds;
    None where it is no such."""
    if not isinstance(condition, Call) or condition.fn != "lt":
        return None
    room = ix.isub(condition.args[1], condition.args[0])
    return ix.coefficients(room, tuple(m.name for m in marks))


def _worst(condition: Expr, marks: Sequence[Sym]) -> Expr | None:
    """A comparison where it is hardest to meet, if it is even in some variables."""
    known = _room(condition, marks)
    if known is None:
        return None
    factors, least = known
    for mark, factor in zip(marks, factors, strict=True):
        least = ix.iadd(least, ix.lit(min(factor, 0) * ((mark.extent or 1) - 1)))
    return ix.ilt(ix.lit(0), least)


@dataclass(frozen=True, slots=True)
class RunPart:
    """The part of a run that is there: `count` terms from number `first` on, and where the run
    starts in memory (an element before the buffer it may be, which is not read)."""

    start: Expr
    first: Expr
    count: Expr


def span(frame: Frame, p: Contraction, way: Way, taps: Sequence[Expr], index: Index) -> RunPart:
    """The span of a row at a tap."""
    mark = symbol("k", way.loops[way.outer])
    term = list(way.term(taps))
    term[way.outer] = mark
    found = _found(frame, p, way, index, tuple(term))
    always: list[Expr] = []
    low: list[Expr] = [ix.lit(0)]
    high: list[Expr] = [ix.lit(way.loops[way.outer])]
    for condition in found.there:
        known = _room(condition, (mark,))
        if known is None or not any(known[0]):
            always.append(condition)
            continue
        (factor,), rest = known
        if factor > 0:
            low.append(ix.isub(ix.lit(1), rest))
        else:
            high.append(rest)
    first, last = _fold("max", low), _fold("min", high)
    each = way.run // way.loops[way.outer]
    count = ix.imul(_fold("max", [ix.lit(0), ix.isub(last, first)]), each)
    start = substitute(found.index, {mark.name: ix.lit(0)})
    return RunPart(start, ix.imul(first, each), ix.iselect(_all(always), count, ix.lit(0)))


def _fold(fn: str, values: Sequence[Expr]) -> Expr:
    found = values[0]
    for value in values[1:]:
        found = Call(fn, (found, value), DType.I64)
    return found
