"""Register tiles whose left operand is walked: its rows lie apart in memory (`walks.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.ir.walk import ALWAYS, Walk
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.operands import left_in_memory
from autofuse.kernel.tiles.parts import RightPanel, TermBlock, TileRun
from autofuse.kernel.tiles.walks import Way, inside, span, steps, way_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym
from autofuse.plan.schedules.tiles import Contraction

_NEVER, _NOTHING = Lit(False, DType.BOOL), ix.lit(0)
_Taps = tuple[tuple[Sym, Expr], ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """A position in the loops over taps, and terms of its run that come before the present ones."""

    taps: Index
    skipped: Expr = _NOTHING


@dataclass(frozen=True, slots=True)
class WalkedProduct:
    """Multiplies tiles of one product of a block; `zeros` is what rows have in padding."""

    b: TileBlock
    p: Contraction
    way: Way
    zeros: str

    @staticmethod
    def of(b: TileBlock, p: Contraction) -> WalkedProduct | None:
        """The walker of a product, None where its rows are no such runs of terms in memory."""
        way = block_way(b, p)
        if way is None:
            return None
        size = way.run * way.inner + way.across * b.s.columns
        buffer = b.e.local(b.dtype(p), size, "zeros")
        b.zeros(b.dtype(p), buffer, ix.lit(0), size)
        return WalkedProduct(b, p, way, buffer)

    def multiply(
        self, tile: TileRun, count: int, target: Panel, right: RightPanel, column: Expr,
        block: TermBlock,
    ) -> None:  # fmt: skip
        """One tile of `count` columns from `column` on, at a block of terms."""
        width = count if self.p.diagonal else right.width
        run = min(block.cut or self.way.run, self.way.run)
        made = TileProduct(
            tile.count, width, ix.lit(run), target, Panel(self.way.buffer, ix.lit(0), 0,
            self.way.inner), right.panel, self.b.dtype(self.p), not block.cut,
        )  # fmt: skip
        taps, at = self._taps(block)
        first = ix.iadd(self.b.first_row, tile.first)
        in_line, rows = self._line(first, tile.count, column)
        even: Expr = _NEVER
        if in_line != _NEVER:
            within = inside(self.b.base, self.p, self.way, rows[0], rows[-1])
            even = ix.iand(in_line, _NEVER if within is None else within)
        if even != _NEVER:
            with self.b.only(None if even == ALWAYS else self.b.e.let(even)):
                self._put(made, taps, at, rows, whole=True)
        if even != ALWAYS:
            if in_line != ALWAYS:
                rows = self._rows(first, tile.count, column)
            other = Call("not", (self.b.e.let(even),), DType.BOOL) if even != _NEVER else None
            with self.b.only(other):
                self._put(made, taps, at, rows, whole=False)

    def _put(
        self, made: TileProduct, taps: _Taps, at: _Place, rows: list[Index], whole: bool
    ) -> None:
        """The statement of a tile; `whole`: no row reaches into padding."""
        found = steps(self.b.base, self.p, self.way, at.taps, rows)
        skipped = ix.imul(at.skipped, self.way.inner)
        starts = tuple(ix.iadd(start, skipped) for start in found.starts)
        there = (ALWAYS,) * len(rows) if whole else found.there
        zeros = self.zeros if any(t != ALWAYS for t in there) else ""
        needed = ALWAYS if whole else found.needed
        walk = Walk(taps, starts, there, self.way.across, zeros, needed)
        self.b.e.put(replace(made, walk=walk))

    def _taps(self, block: TermBlock) -> tuple[_Taps, _Place]:
        """The loops over the taps of a block of terms, and the position in all of them."""
        way, e, cut, number = self.way, self.b.e, block.cut, block.number
        if not cut:
            loops = tuple((Sym(e.fresh("p"), DType.I64, n), ix.lit(n)) for n in way.taps)
            return loops, _Place(tuple(sym for sym, _ in loops))
        if cut < way.run:
            parts = way.run // cut
            taps = ix.delinearize(ix.idiv(number, parts), way.taps)
            return (), _Place(taps, ix.imul(ix.imod(number, parts), cut))
        most = cut // way.run
        first = ix.imul(number, most)
        sym = Sym(e.fresh("p"), DType.I64, most)
        at = ix.delinearize(ix.iadd(first, sym), way.taps)
        return ((sym, self.b.count_of(first, way.count, most)),), _Place(at)

    def _rows(self, first: Expr, count: int, column: Expr) -> list[Index]:
        """The output indices of the rows of a tile."""
        b = self.b
        numbers = (b.e.let_index(ix.iadd(first, ix.lit(r)), "m", b.rows) for r in range(count))
        return [b.out_index(self.p, number, column) for number in numbers]

    def _line(self, first: Expr, count: int, column: Expr) -> tuple[Expr, list[Index]]:
        """The output indices of the rows of a tile where they are neighbours along one axis, and
        the condition under which they are."""
        b = self.b
        axes = [a for a in b.tiles.rows if b.form.parallel[a] > 1]
        extents = tuple(b.form.parallel[a] for a in axes)
        if not axes or extents[-1] < count:
            return _NEVER, []
        places = zip(ix.delinearize(first, extents), extents, strict=True)
        at = tuple(b.e.let_index(i, "y", _extent(i, n)) for i, n in places)

        def index(row: int) -> Index:
            place = {**b.batch, **dict(zip(axes, at, strict=True))}
            place[axes[-1]] = ix.iadd(at[-1], ix.lit(row))
            items = tuple(place.get(a, ix.lit(0)) for a in range(len(b.form.parallel)))
            return b.index_at(self.p, items, column)

        in_line = ix.ilt(ix.iadd(at[-1], ix.lit(count - 1)), ix.lit(extents[-1]))
        return in_line, [index(r) for r in range(count)]


def _extent(index: Expr, extent: int) -> int:
    """One more than an index below `extent` can be."""
    known = ix.bounds(index)
    return extent if known is None else min(extent, known[1] + 1)


def block_way(
    b: TileBlock, p: Contraction, *, whole: bool = True, stored: bool = False
) -> Way | None:
    """How the left operand of a product is walked; None also where it lies as a matrix."""
    if not p.diagonal and left_in_memory(b, p) is not None:
        return None
    row = Sym("row", DType.I64, b.rows)
    column = Sym("column", DType.I64, p.width)
    return way_of(b.base, p, b.out_index(p, row, column), column, whole=whole, stored=stored)


def copied_runs(b: TileBlock, p: Contraction) -> Panel | None:
    """A left operand in scratch, copied run by run; None where its rows are no runs in memory, or
    where what of a run is in padding is no end of it."""
    way = block_way(b, p, whole=False) if b.s.walk and not p.diagonal else None
    if way is None:
        return None
    buffer = b.e.local(b.dtype(p), b.height * p.terms, "left")
    with b.each_row() as (row, at_row):
        index = b.out_index(p, at_row, ix.lit(0))
        first, whole = ix.imul(row, p.terms), inside(b.base, p, way, index, index)
        copy = partial(_copy_row, b, p, way, index, Panel(buffer, first, p.terms, 1))
        if whole is None or isinstance(whole, Lit):
            copy(whole=whole is not None and bool(whole.value))
        else:
            condition = b.e.let(whole)
            with b.only(condition):
                copy(whole=True)
            with b.only(Call("not", (condition,), DType.BOOL)):
                copy(whole=False)
    return Panel(buffer, ix.lit(0), p.terms, 1)


def _copy_row(
    b: TileBlock, p: Contraction, way: Way, index: Index, row: Panel, *, whole: bool
) -> None:
    """The terms of a row of scratch. Of one that is not `whole` some are in padding, where they are
    zero."""
    with _each_tap(b, way, row.start) as (taps, place):
        skipped: Expr = _NOTHING
        count: Expr = ix.lit(way.run)
        if whole:
            (start,) = steps(b.base, p, way, taps, [index]).starts
        else:
            found = span(b.base, p, way, taps, index)
            start, count, skipped = found.start, b.e.let(found.count), b.e.let(found.first)
            b.zeros(b.dtype(p), row.buffer, place, way.run)
        lane = b.e.open("l", way.run)
        at = ix.iadd(skipped, lane)
        element = Load(way.buffer, ix.iadd(start, ix.imul(at, way.inner)), b.dtype(p))
        b.e.store(row.buffer, ix.iadd(place, at), element)
        b.e.close("lane", lane, count)


@contextmanager
def _each_tap(b: TileBlock, way: Way, first: Expr) -> Iterator[tuple[Index, Expr]]:
    """Loops over taps: the position in them, and where the terms of a row that starts at `first`
    are."""
    opened = [b.e.open("k", extent) for extent in way.taps]
    number = ix.linearize(opened, way.taps)
    yield tuple(opened), ix.iadd(first, ix.imul(number, way.run))
    for sym in reversed(opened):
        b.e.close("serial", sym, ix.lit(sym.extent or 1))


def walks(b: TileBlock) -> bool:
    """Whether some left operand is walked, or copied run by run."""
    found = (block_way(b, p, whole=p.diagonal) for p in b.tiles.products)
    return any(way is not None and len(way.loops) > 1 for way in found)


def walkers(b: TileBlock) -> Iterator[tuple[int, WalkedProduct]]:
    """The walkers of the products of a block, by node; none where the setting is off."""
    for p in b.tiles.products if b.s.walk else ():
        walker = None if b.pair_unit(p) else WalkedProduct.of(b, p)
        if walker is not None:
            yield p.node, walker


def whole_taps(cut: int, terms: int, ways: Iterable[Way]) -> int:
    """A block of about `cut` terms (0: all) that is whole taps, or an equal part of one."""
    runs = {way.run for way in ways}
    near = (*range(cut, cut // 2, -1), *range(cut + 1, terms))
    fits = (c for c in near if all(c % run == 0 or run % c == 0 for run in runs))
    return next(fits, 0) if 0 < cut < terms else 0
