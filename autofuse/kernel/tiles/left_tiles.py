"""Left operands that a kernel of the tile schedule copies first as AMX reads them: of each register
tile 32 terms of one row after another, then the next 32 terms.

A tile is then 16 lines of the cache in a row. As they lie, rows of a matrix with long ones push
each other out of the cache, and no processor fetches them ahead.
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
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit
from autofuse.plan.schedules.pairs import TILE_TERMS
from autofuse.plan.schedules.tiles import Contraction


@dataclass(frozen=True, slots=True)
class LeftTiles:
    """Rows of a block as tiles of `depth` terms, a multiple of TILE_TERMS."""

    buffer: str
    depth: int

    def panel(self, tile: TileRun) -> Panel:
        """The rows of one register tile."""
        start = ix.imul(tile.first, self.depth)
        return Panel(self.buffer, start, TILE_TERMS, apart=tile.count * TILE_TERMS)


def left_tiles(b: TileBlock, p: Contraction, cut: int, number: Expr) -> LeftTiles:
    """Copy the rows of a block, those of its terms that are in block `number` of `cut` (0: all),
    with zeros behind the last."""
    depth = -(-(cut or p.terms) // TILE_TERMS) * TILE_TERMS
    made = LeftTiles(b.e.local(b.factor_dtype(p), b.height * depth, "left"), depth)
    for tile in b.row_tiles():
        row = b.e.open("r", tile.count)
        at_row = b.e.let_index(ix.iadd(b.first_row, ix.iadd(tile.first, row)), "m", b.rows)
        start = ix.iadd(made.panel(tile).start, ix.imul(row, TILE_TERMS))
        apart, terms = tile.count * TILE_TERMS, b.block_terms(p, cut, number)
        full, rest = ix.idiv(terms, TILE_TERMS), ix.imod(terms, TILE_TERMS)
        step = b.e.open("q", depth // TILE_TERMS)
        place, first = ix.iadd(start, ix.imul(step, apart)), ix.imul(step, TILE_TERMS)
        _copy(b, p, made, at_row, place, (number, cut, first), ix.lit(TILE_TERMS))
        b.e.close("serial", step, full)
        if rest != ix.lit(0):
            place = ix.iadd(start, ix.imul(full, apart))
            with b.only(Call("gt", (rest, ix.lit(0)), DType.BOOL)):
                lane = b.e.open("l", TILE_TERMS)
                b.e.store(made.buffer, ix.iadd(place, lane), Lit(0.0, b.factor_dtype(p)))
                b.e.close("lane", lane, ix.lit(TILE_TERMS))
                _copy(b, p, made, at_row, place, (number, cut, ix.imul(full, TILE_TERMS)), rest)
        b.e.close("serial", row, ix.lit(tile.count))
    return made


def _copy(
    b: TileBlock, p: Contraction, made: LeftTiles, row: Expr, place: Expr,
    at: tuple[Expr, int, Expr], count: Expr,
) -> None:  # fmt: skip
    """`count` terms of a row, lanes along them: `at` says the block of terms, how many it has at
    most, and the first of them in it."""
    number, cut, first = at
    frame = b.base.fresh()
    lane = b.e.open("l", TILE_TERMS)
    term = ix.iadd(ix.imul(number, cut), ix.iadd(first, lane))
    index = b.out_index(p, row, ix.lit(0))
    terms = ix.delinearize(term, term_loops(b.graph, p))
    element = factor(b.graph, p, p.left, index, terms, Puller(frame, p.node, frame.pull))
    b.e.store(made.buffer, ix.iadd(place, lane), narrow(element, b.factor_dtype(p)))
    b.e.close("lane", lane, count)
