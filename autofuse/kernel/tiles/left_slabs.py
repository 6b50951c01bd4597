"""Left operands that a kernel of the tile schedule copies first: rows in slabs, term by term.

A register tile then reads its rows from one place to the next, whatever is far apart in memory: the
rows of a matrix with long ones, or the terms of a transposed one (the packed blocks of A of BLIS;
Van Zee, van de Geijn, ACM TOMS 41, 2015).
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.elements.values import Puller
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.panels import factor, term_loops
from autofuse.kernel.tiles.parts import TileRun
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr
from autofuse.plan.schedules.tiles import Contraction


@dataclass(frozen=True, slots=True)
class LeftSlabs:
    """Rows of a block in slabs of `high`: term k of a slab's row r is its element k * high + r."""

    buffer: str
    high: int
    terms: int

    def start(self, row: Expr) -> Expr:
        """Where the terms of a row of the block begin."""
        slab = ix.imul(ix.idiv(row, self.high), self.high * self.terms)
        return ix.iadd(slab, ix.imod(row, self.high))

    def panel(self, tile: TileRun) -> Panel:
        """The rows of one register tile, which lie in one slab."""
        return Panel(self.buffer, self.start(tile.first), 1, self.high)


def left_slabs(b: TileBlock, p: Contraction, cut: int, number: Expr) -> LeftSlabs:
    """Copy the rows of a block, those of its terms that are in block `number` of `cut` (0: all)."""
    terms = cut or p.terms
    made = LeftSlabs(b.e.local(b.dtype(p), b.height * terms, "left"), b.s.slab, terms)
    for rows in b.spans(b.first_row, b.rows, b.height, made.high):
        _fill(b, p, made, rows, cut, number)
    return made


def _fill(
    b: TileBlock, p: Contraction, made: LeftSlabs, rows: TileRun, cut: int, number: Expr
) -> None:
    """One slab: a loop over terms, lanes over its rows."""
    frame = b.base.fresh()
    step = b.e.open("k", made.terms)
    term = b.e.let_index(ix.iadd(ix.imul(number, cut), step), "t", p.terms)
    at = ix.delinearize(term, term_loops(b.graph, p))
    lane = b.e.open("l", rows.count)
    row = ix.iadd(b.first_row, ix.iadd(rows.first, lane))
    index = b.out_index(p, b.e.let_index(row, "m", b.rows), ix.lit(0))
    element = factor(b.graph, p, p.left, index, at, Puller(frame, p.node, frame.pull))
    place = ix.iadd(made.start(rows.first), ix.imul(step, made.high))
    b.e.store(made.buffer, ix.iadd(place, lane), narrow(element, b.dtype(p)))
    b.e.close("lane", lane, ix.lit(rows.count))
    b.e.close("serial", step, b.block_terms(p, cut, number))
