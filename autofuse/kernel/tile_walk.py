"""Register tiles whose left operand is walked: its rows lie apart in memory (`walks.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autofuse.kernel.ir import Panel, TileProduct
from autofuse.kernel.tile_block import TileBlock
from autofuse.kernel.tile_parts import RightPanel, TileRun
from autofuse.kernel.walk_ir import Walk
from autofuse.kernel.walks import Way, inside, span, steps, way_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym
from autofuse.ops.spec import Index
from autofuse.plan.tiles import Contraction

_ALWAYS = Lit(True, DType.BOOL)


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
        lane = b.e.open("l", size)
        b.e.store(buffer, lane, Lit(0.0, b.dtype(p)))
        b.e.close("lane", lane, ix.lit(size))
        return WalkedProduct(b, p, way, buffer)

    def multiply(
        self, tile: TileRun, count: int, target: Panel, right: RightPanel, column: Expr,
        cut: int, number: Expr,
    ) -> None:  # fmt: skip
        """One tile of `count` columns from `column` on, at block `number` of `cut` terms."""
        width = count if self.p.diagonal else right.width
        made = TileProduct(
            tile.count, width, ix.lit(self.way.run), target, Panel(self.way.buffer, ix.lit(0), 0,
            self.way.inner), right.panel, self.b.dtype(self.p), not cut,
        )  # fmt: skip
        taps, at = self._taps(cut, number)
        first = ix.iadd(self.b.first_row, tile.first)
        even, rows = self._even_rows(first, tile.count, column)
        if rows:
            with self.b.only(None if isinstance(even, Lit) else self.b.e.let(even)):
                self._put(made, taps, at, rows, whole=True)
        if even != _ALWAYS:
            other = Call("not", (self.b.e.let(even),), DType.BOOL) if rows else None
            with self.b.only(other):
                rows = self._rows(first, tile.count, column)
                self._put(made, taps, at, rows, whole=False)

    def _put(
        self, made: TileProduct, taps: tuple[tuple[Sym, Expr], ...], at: Index, rows: list[Index],
        whole: bool,
    ) -> None:  # fmt: skip
        """The statement of a tile; `whole`: no row reaches into padding."""
        starts, there = steps(self.b.base, self.p, self.way, at, rows)
        there = (_ALWAYS,) * len(rows) if whole else there
        padded = any(t != _ALWAYS for t in there)
        walk = Walk(taps, starts, there, self.way.across, self.zeros if padded else "")
        self.b.e.put(replace(made, walk=walk))

    def _taps(self, cut: int, number: Expr) -> tuple[tuple[tuple[Sym, Expr], ...], Index]:
        """The loops over the taps of a block of terms, and the position in all of them."""
        way, e = self.way, self.b.e
        if not cut:
            loops = tuple((Sym(e.fresh("p"), DType.I64, n), ix.lit(n)) for n in way.taps)
            return loops, tuple(sym for sym, _ in loops)
        most = cut // way.run
        first = ix.imul(number, most)
        sym = Sym(e.fresh("p"), DType.I64, most)
        at = ix.delinearize(ix.iadd(first, sym), way.taps)
        return ((sym, self.b.count_of(first, way.count, most)),), at

    def _rows(self, first: Expr, count: int, column: Expr) -> list[Index]:
        """The output indices of the rows of a tile."""
        b = self.b
        numbers = (b.e.let_index(ix.iadd(first, ix.lit(r)), "m", b.rows) for r in range(count))
        return [b.out_index(self.p, number, column) for number in numbers]

    def _even_rows(self, first: Expr, count: int, column: Expr) -> tuple[Expr, list[Index]]:
        """The output indices of the rows of a tile where they are neighbours along one axis (none:
        they never are), and the condition under which that is so and none of them reaches into
        padding. There is but one address to compute then."""
        b, never = self.b, (Lit(False, DType.BOOL), list[Index]())
        axes = [a for a in b.tiles.rows if b.form.parallel[a] > 1]
        extents = tuple(b.form.parallel[a] for a in axes)
        if not axes or extents[-1] < count:
            return never
        at = tuple(
            b.e.let_index(i, "y", n)
            for i, n in zip(ix.delinearize(first, extents), extents, strict=True)
        )

        def index(row: int) -> Index:
            place = {**b.batch, **dict(zip(axes, at, strict=True))}
            place[axes[-1]] = ix.iadd(at[-1], ix.lit(row))
            items = tuple(place.get(a, ix.lit(0)) for a in range(len(b.form.parallel)))
            return b.index_at(self.p, items, column)

        rows = [index(r) for r in range(count)]
        within = inside(b.base, self.p, self.way, rows[0], rows[-1])
        if within is None:
            return never
        within = ix.iand(ix.ilt(ix.iadd(at[-1], ix.lit(count - 1)), ix.lit(extents[-1])), within)
        return (within, rows) if within != never[0] else never


def block_way(b: TileBlock, p: Contraction, *, whole: bool = True) -> Way | None:
    """How the left operand of a product is walked; None also where it lies as a matrix."""
    if not p.diagonal and b.left_in_memory(p) is not None:
        return None
    row = Sym("row", DType.I64, b.rows)
    column = Sym("column", DType.I64, p.width)
    return way_of(b.base, p, b.out_index(p, row, column), column, whole=whole)


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
        if isinstance(whole, Lit) and whole.value:
            _copy_runs(b, p, way, index, buffer, first)
        elif whole is None or isinstance(whole, Lit):
            _copy_spans(b, p, way, index, buffer, first)
        else:
            condition = b.e.let(whole)
            with b.only(condition):
                _copy_runs(b, p, way, index, buffer, first)
            with b.only(Call("not", (condition,), DType.BOOL)):
                _copy_spans(b, p, way, index, buffer, first)
    return Panel(buffer, ix.lit(0), p.terms, 1)


def _copy_runs(
    b: TileBlock, p: Contraction, way: Way, index: Index, buffer: str, first: Expr
) -> None:
    """A row none of whose terms are in padding."""
    with _each_tap(b, way, first) as (taps, place):
        (start,), _ = steps(b.base, p, way, taps, [index])
        lane = b.e.open("l", way.run)
        element = Load(way.buffer, ix.iadd(start, ix.imul(lane, way.inner)), b.dtype(p))
        b.e.store(buffer, ix.iadd(place, lane), element)
        b.e.close("lane", lane, ix.lit(way.run))


def _copy_spans(
    b: TileBlock, p: Contraction, way: Way, index: Index, buffer: str, first: Expr
) -> None:
    """A row some of whose terms are in padding, where they are zero."""
    with _each_tap(b, way, first) as (taps, place):
        found = span(b.base, p, way, taps, index)
        count, skipped = b.e.let(found.count), b.e.let(found.first)
        lane = b.e.open("l", way.run)
        b.e.store(buffer, ix.iadd(place, lane), Lit(0.0, b.dtype(p)))
        b.e.close("lane", lane, ix.lit(way.run))
        lane = b.e.open("l", way.run)
        at = ix.iadd(skipped, lane)
        element = Load(way.buffer, ix.iadd(found.start, ix.imul(at, way.inner)), b.dtype(p))
        b.e.store(buffer, ix.iadd(place, at), element)
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
        walker = None if b.paired(p) else WalkedProduct.of(b, p)
        if walker is not None:
            yield p.node, walker


def whole_taps(cut: int, terms: int, walking: Iterable[WalkedProduct]) -> int:
    """A block of `cut` terms (0: all) as so many whole taps."""
    for walker in walking if cut else ():
        cut = max(1, cut // walker.way.run) * walker.way.run
    return cut if cut < terms else 0
