"""split_lanes: lanes are cut where a clamp or a condition on their position is another.

Before: lane l < 100 {out[l] = l < 1 ? 0 : x[max(l - 1, 0)]}
After:  lane a < 1 {out[a] = 0}; lane b < 99 {out[b + 1] = x[b]}
Index-set splitting (Griebl, Feautrier, Lengauer, 2000): the borders of padded, rolled and joined
arrays are loops of their own, and between them neighbouring lanes read neighbouring elements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from autofuse.kernel.ir.indices import has_load, is_multiple, mentions
from autofuse.kernel.ir.spelling import Spelling, indices_of
from autofuse.kernel.ir.types import Kernel, Let, Loop, Stmt, expressions, has_loop
from autofuse.kernel.passes.lane_loops import lane_loops_rewritten
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.positions import clamps, cuts
from autofuse.ops.scalar import Call, Expr, Lit, Sym

I64 = DType.I64
# Loops that one loop may become, and statements that they may have together.
MOST_PARTS, MOST_STATEMENTS = 9, 1500


def split_lanes(kernel: Kernel) -> Kernel:
    """Cut lane loops that load at clamped or wrapped positions, if that makes them straight."""
    starts = Counter[str]()
    return lane_loops_rewritten(kernel, lambda lane, known: _split(lane, known, starts))


def _split(lane: Loop, known: Spelling, starts: Counter[str]) -> list[Stmt]:
    """`starts` counts how often the start of a part has had a name: loops beside each other may
    have one variable."""
    if lane.var.extent is None or has_loop(lane.body):
        return [lane]
    found = _places(lane, known)
    if found is None:
        return [lane]
    base, places = found
    known_range = ix.bounds(ix.isub(lane.var, base))
    assert known_range is not None
    low, high = known_range[0], known_range[1] + 1
    if isinstance(base, Lit) and isinstance(lane.extent, Lit):
        high = int(lane.extent.value)
    edges = _fewer([low, *sorted(p for p in places if low < p < high), high], len(lane.body))
    if len(edges) < 3:
        return [lane]
    edges = _refined(lane, known, base, edges)
    parts = (_Part(lane, base, *ends, number) for number, ends in enumerate(pairwise(edges)))
    return [stmt for part in parts for stmt in part.emit(known, starts)]


def _places(lane: Loop, known: Spelling) -> tuple[Expr, set[int]] | None:
    """Where to cut, counted from a first position: a number, or where the tile of a longer row
    starts. None where no load would become straight."""
    indices, every = _settled(lane.body, known.inner())
    inside = {stmt.sym.name for stmt in lane.body if isinstance(stmt, Let)} | set(known.registers)
    straight = _cuts(lane.var, indices, inside)
    if not straight:
        return None
    base = max(straight, key=lambda b: (len(straight[b]), isinstance(b, Lit), repr(b)))
    return base, _cuts(lane.var, every, inside)[base]


def _settled(body: Sequence[Stmt], known: Spelling) -> tuple[list[Expr], list[Expr]]:
    """Where statements load and store, and all that they compute, spelled out."""
    indices: list[Expr] = []
    every: list[Expr] = []
    for stmt in body:
        indices.extend(map(known.settled, indices_of(stmt)))
        every.extend(map(known.settled, expressions(stmt)))
        known.note(stmt)
    return indices, every


def _cuts(var: Sym, exprs: Sequence[Expr], inside: Collection[str] = ()) -> dict[Expr, set[int]]:
    """Where expressions change, by what it is counted from, which no name of `inside` may be part
    of; clamps last, which have a choice."""
    found: dict[Expr, set[int]] = {}

    def counted(place: Expr) -> tuple[Expr, int] | None:
        base, constant = ix.parted(place)
        return (base, constant) if isinstance(base, Lit) or _is_known(base, var, inside) else None

    for place in (p for e in exprs for p in cuts(e, var)):
        at = counted(place)
        if at is not None:
            found.setdefault(at[0], set()).add(at[1])
    for pair in (p for e in exprs for p in clamps(e, var)):
        at, other = map(counted, pair)
        if at is not None and other is not None and other[1] not in found.get(at[0], ()):
            found.setdefault(at[0], set()).add(at[1])
    return found


def _is_known(base: Expr, var: Sym, inside: Collection[str]) -> bool:
    """Whether a position is the same for all lanes and has bounds: the start of a tile, or where
    data say that a window begins (a roll by a computed distance)."""
    if is_multiple(base, var.extent or 0):
        return True
    fixed = not has_load(base) and not mentions(base, frozenset({var.name, *inside}))
    return fixed and ix.bounds(ix.isub(var, base)) is not None


def _refined(lane: Loop, known: Spelling, base: Expr, edges: list[int]) -> list[int]:
    """More edges: a clamp that one part has decided may show where another one changes (a stencil
    of what a stencil with borders gave)."""
    done: set[tuple[int, int]] = set()
    while True:
        more = {
            edge
            for ends in pairwise(edges)
            if ends not in done
            for edge in _edges_inside(lane, known, base, *ends)
        }
        done.update(pairwise(edges))
        finer = _fewer(sorted({*edges, *more}), len(lane.body)) if more else []
        if len(finer) <= len(edges):
            return edges
        edges = finer


def _edges_inside(lane: Loop, known: Spelling, base: Expr, low: int, high: int) -> Iterator[int]:
    if high - low < 2:
        return
    place = Sym(f"{lane.var.name}_e", I64, high - low)
    inner = known.inner()
    inner.values[lane.var.name] = ix.iadd(place, ix.iadd(base, ix.lit(low)))
    indices, every = _settled(lane.body, inner)
    start = ix.lit(0)
    if start in _cuts(place, indices):
        yield from (low + at for at in _cuts(place, every)[start] if 0 < at < high - low)


def _fewer(edges: list[int], statements_each: int) -> list[int]:
    """The edges, or where there are too many those of the longest part if it is most of all."""
    if len(edges) <= MOST_PARTS + 1 and len(edges) * statements_each <= MOST_STATEMENTS:
        return edges
    start, end = max(pairwise(edges), key=lambda ends: ends[1] - ends[0])
    if 2 * (end - start) < edges[-1] - edges[0] or 3 * statements_each > MOST_STATEMENTS:
        return []
    return sorted({edges[0], start, end, edges[-1]})


@dataclass(frozen=True, slots=True)
class _Part:
    """The lanes of a loop from `low` to `high`, counted from `base`."""

    lane: Loop
    base: Expr
    low: int
    high: int
    number: int

    def emit(self, known: Spelling, starts: Counter[str]) -> Iterator[Stmt]:
        name, most = f"{self.lane.var.name}_{self.number}", self.high - self.low
        if isinstance(self.base, Lit) and isinstance(self.lane.extent, Lit):
            var = Sym(name, I64, most)
            yield self._loop(known, var, ix.lit(most), ix.iadd(var, ix.lit(self.low)), ())
            return
        # A tile has some of the part's lanes, or none.
        first = Call("max", (ix.iadd(self.base, ix.lit(self.low)), ix.lit(0)), I64)
        end = Call("min", (ix.iadd(self.base, ix.lit(self.high)), self.lane.extent), I64)
        again = starts[name]
        starts[name] += 1
        start = Sym(f"{name}_s{again or ''}", I64)
        yield Let(start, first)
        var = Sym(name, I64, min(most, self.lane.var.extent or 0))
        place = Sym(f"{name}_p", I64, most)
        origin = ix.iadd(self.base, ix.lit(self.low))
        moved = Let(place, ix.isub(ix.iadd(var, start), origin))
        extent = ix.isub(end, start)
        yield self._loop(known, var, extent, ix.iadd(place, origin), (moved,))

    def _loop(
        self, known: Spelling, var: Sym, extent: Expr, at: Expr, moved: tuple[Stmt, ...]
    ) -> Loop:
        """The loop's body at `at` in place of its variable."""
        inner = known.inner()
        inner.values[self.lane.var.name] = at
        body = (*moved, *inner.rewritten(self.lane.body))
        return replace(self.lane, var=var, extent=extent, body=body)
