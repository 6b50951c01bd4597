"""Tile form with vectors along the innermost axis of a batch: as many products at once as a vector
has lanes.

Where operands and result all have a batch axis last, an element of each matrix of a vector lies
beside those of the others. Nothing is packed: a register tile is loads of both operands, each as
they lie, and multiply-adds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from autofuse.graph.types import Value
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.epilogue import at_items, store_outputs
from autofuse.kernel.tiles.panels import element_in_memory, symbol
from autofuse.kernel.tiles.parts import TileRun
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr, Load
from autofuse.plan.schedules.tiles import Contraction


class TileLanes(TileBlock):
    """One segment whose last parallel axis is of the batch: blocks of rows and columns of as many
    products as `lanes`. The last of them may overlap the one before, which computes the same."""

    lanes: int
    first_lane: Expr

    def fit(self, bits: int) -> TileLanes | None:
        """This block for vectors of so many bits; None where operands do not lie so."""
        s, axes = self.s, self.tiles.batch
        if not self.tiles.columns or axes[-1:] != (len(self.form.parallel) - 1,):
            return None
        widest = max(self.dtype(p).itemsize for p in self.tiles.products)
        extent, self.lanes = self.form.parallel[-1], bits // 8 // widest
        while self.lanes > extent:
            self.lanes //= 2
        # Columns of the setting fill vectors; here each is one.
        columns = max(1, s.columns * widest * 8 // bits)
        wide = min(s.column_block or self.columns, self.columns)
        self.s = replace(s, columns=columns)
        self.width = min(-(-wide // columns) * columns, self.columns)
        self.first_lane = ix.lit(0)
        sides = ((p, side) for p in self.tiles.products for side in (p.left, p.right))
        return self if all(self._operand(p, side) is not None for p, side in sides) else None

    @contextmanager
    def grid(self) -> Iterator[None]:
        """The grid over blocks and, innermost, over vectors of the batch."""
        high, broad = -(-self.rows // self.height), -(-self.columns // self.width)
        extent, others = self.form.parallel[-1], self._extent(self.tiles.batch[:-1])
        vectors = -(-extent // self.lanes)
        block = self.e.open("b", others * high * broad * vectors)
        rest = ix.idiv(block, vectors)
        number = self.e.let_index(ix.idiv(rest, high * broad), "z", others)
        extents = tuple(self.form.parallel[a] for a in self.tiles.batch[:-1])
        places = zip(self.tiles.batch, ix.delinearize(number, extents), strict=False)
        self.batch = {a: self.e.let_index(i, "z", self.form.parallel[a]) for a, i in places}
        row = self.e.let_index(ix.imod(ix.idiv(rest, broad), high), "y", high)
        column = self.e.let_index(ix.imod(rest, broad), "x", broad)
        self.first_row, self.first_column = ix.imul(row, self.height), ix.imul(column, self.width)
        first = ix.iclamp(ix.imul(ix.imod(block, vectors), self.lanes), 0, extent - self.lanes)
        self.first_lane = self.e.let_index(first, "v", extent - self.lanes + 1)
        yield
        self.e.close("grid", block, ix.lit(others * high * broad * vectors))

    def _operand(self, p: Contraction, operand: int) -> Panel | None:
        """An operand as a matrix of vectors over its rows or columns, which are `outer`, and terms,
        from the first vector of the block on."""
        along, term = symbol("along", p.width + self.rows), symbol("term", p.terms)
        lane = symbol("lane", self.lanes)
        self.batch[len(self.form.parallel) - 1] = ix.iadd(self.first_lane, lane)
        place = (along, ix.lit(0)) if operand == p.left else (ix.lit(0), along)
        found = element_in_memory(self.base, p, operand, self.out_index(p, *place), term)
        if found is None:
            return None
        known = ix.coefficients(found.index, (along.name, term.name, lane.name))
        if known is None or known[0][2] != 1:
            return None
        return Panel(found.buffer, known[1], known[0][0], known[0][1])

    def emit(self) -> None:
        """The products of the block, and what follows them for each tile."""
        for tile in self.row_tiles():
            for panel in self.panels(self.first_column, self.columns, self.width):
                sums = {p.node: self._multiply(p, tile, panel) for p in self.tiles.products}
                self._finish(tile, panel, sums)

    def _multiply(self, p: Contraction, tile: TileRun, panel: TileRun) -> str:
        left, right = self._operand(p, p.left), self._operand(p, p.right)
        assert left is not None and right is not None
        row = ix.iadd(self.first_row, tile.first)
        column = ix.iadd(self.first_column, panel.first)
        left = replace(left, start=ix.iadd(left.start, ix.imul(row, left.outer)))
        start = ix.iadd(right.start, ix.imul(column, right.outer))
        size = tile.count * panel.count * self.lanes
        buffer = self.e.local(self.dtype(p), size, "acc")
        self.e.put(
            TileProduct(
                tile.count, panel.count, ix.lit(p.terms),
                Panel(buffer, ix.lit(0), panel.count * self.lanes, self.lanes), left,
                Panel(right.buffer, start, right.inner, right.outer), self.dtype(p), True,
                lanes=self.lanes,
            )
        )  # fmt: skip
        return buffer

    def _finish(self, tile: TileRun, panel: TileRun, sums: dict[int, str]) -> None:
        """What follows the products of one tile, lanes along the batch."""
        row, step = self.e.open("r", tile.count), self.e.open("c", panel.count)
        lane = self.e.open("l", self.lanes)
        at_row = self.e.let_index(ix.iadd(self.first_row, ix.iadd(tile.first, row)), "m", self.rows)
        at_column = ix.iadd(self.first_column, ix.iadd(panel.first, step))
        extent = self.form.parallel[-1]
        number = self.e.let_index(ix.iadd(self.first_lane, lane), "i", extent)
        self.batch[len(self.form.parallel) - 1] = number
        items = self.items(at_row, self.e.let_index(at_column, "n", self.columns))
        frame = self.base.fresh()
        place = ix.iadd(ix.imul(ix.iadd(ix.imul(row, panel.count), step), self.lanes), lane)
        for p in self.tiles.products:
            element: Expr = Load(sums[p.node], place, self.dtype(p))
            frame.sources[Value(p.node)] = self.element_at(p, element, items)
        store_outputs(self, self.form.outputs, frame, at_items(self, items))
        self.e.close("lane", lane, ix.lit(self.lanes))
        self.e.close("serial", step, ix.lit(panel.count))
        self.e.close("serial", row, ix.lit(tile.count))
