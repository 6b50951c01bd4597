"""The right operands of a block of columns, packed as a whole before its first tile of rows.

A tile of rows then meets one panel after another: it stays in the nearest cache, and what is read
and written beside the product lies in long runs of few rows, not in a column of short ones.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.kernel.elements.values import Puller
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.panels import factor, term_loops
from autofuse.kernel.tiles.parts import RightPanel, TileRun
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr
from autofuse.plan.program.packing import panel_width
from autofuse.plan.schedules.tiles import Contraction

# The right operand of one panel of the block.
PanelOf = Callable[[TileRun], RightPanel]


def rights_across(b: TileBlock, p: Contraction, cut: int, number: Expr) -> PanelOf:
    """The panels of a product in the present block of terms, packed here where `TileBlock.right`
    would pack each by itself."""
    if b.pair_unit(p) or not b.packs(p, b.s.columns):
        return lambda run: b.right(p, ix.iadd(b.first_column, run.first), run.count, cut, number)
    terms, step = cut or p.terms, b.s.columns
    rest = b.columns % step
    whole = -(-b.width // step) * step if not rest else b.width // step * step + step
    buffer = b.e.local(b.dtype(p), terms * whole, "panel")
    lying = b.right_in_memory(p)
    if lying is not None and lying.outer == 1 and not rest:
        _copy_rows(b, p, buffer, cut, number)
    else:
        for run in b.panels(b.first_column, b.columns, b.width):
            column = ix.iadd(b.first_column, run.first)
            wide = panel_width(run.count, step)
            begin = ix.imul(run.first, terms)
            b.fill(p, buffer, begin, column, run.count, wide, cut, number)

    def panel(run: TileRun) -> RightPanel:
        wide = panel_width(run.count, step)
        return RightPanel(Panel(buffer, ix.imul(run.first, terms), wide), wide)

    return panel


def _copy_rows(b: TileBlock, p: Contraction, buffer: str, cut: int, number: Expr) -> None:
    """Copy the right operand row by row, each from its first to its last column."""
    frame, terms, step = b.base.fresh(), cut or p.terms, b.s.columns
    at_term = b.e.open("k", terms)
    term = b.e.let_index(ix.iadd(ix.imul(number, cut), at_term), "t", p.terms)
    at = ix.delinearize(term, term_loops(b.graph, p))
    for run in b.panels(b.first_column, b.columns, b.width):
        lane = b.e.open("l", run.count)
        column = ix.iadd(b.first_column, ix.iadd(run.first, lane))
        index = b.out_index(p, ix.lit(0), b.e.let_index(column, "n", p.width))
        element = factor(b.graph, p, p.right, index, at, Puller(frame, p.node, frame.pull))
        place = ix.iadd(ix.imul(run.first, terms), ix.iadd(ix.imul(at_term, step), lane))
        b.e.store(buffer, place, element)
        b.e.close("lane", lane, ix.lit(run.count))
    b.e.close("serial", at_term, b.block_terms(p, cut, number))
