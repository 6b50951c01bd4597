"""Where the operands of a block's products lie: as they are in memory, or in scratch, copied in the
way in which a register tile reads them (`staging.py`).

A tile reads its rows from one place to the next where they are in slabs, whatever is far apart in
memory: the rows of a matrix with long ones, or the terms of a transposed one. AMX reads 16 lines of
the cache in a row where they are in tiles: as they lie, rows of a matrix with long ones push each
other out of the cache, and no processor fetches them ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import Puller, RowFrame
from autofuse.kernel.ir.emit import narrow
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.factors import in_boxes
from autofuse.kernel.tiles.panels import factor, matrix_of, symbol, walk_terms
from autofuse.kernel.tiles.parts import ALL_TERMS, RightPanel, TermBlock, TileRun, asked_ahead
from autofuse.kernel.tiles.staging import Lines, TileOperand, stage, stage_pairs, stage_tiles
from autofuse.ops import index as ix
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Expr
from autofuse.plan.program.packing import padded, panel_width
from autofuse.plan.schedules.pairs import TILE_TERMS
from autofuse.plan.schedules.tiles import Contraction

# The left operand of a tile of rows, the right one of a panel of the block.
LeftOf = Callable[[TileRun], Panel]
RightOf = Callable[[TileRun], RightPanel]

# --- left operands --------------------------------------------------------------------------------


def left_in_memory(b: TileBlock, p: Contraction, instead: Value | None = None) -> Panel | None:
    """The left operand, or a value `instead` of it, as rows from the first of the block on, where
    it lies in memory."""
    row, term = symbol("row", b.rows), symbol("term", p.terms)
    index = b.out_index(p, row, ix.lit(0))
    stored = bool(b.pair_unit(p) or b.instruction(p))
    found = matrix_of(b.base, p, p.left, index, row, term, instead, stored=stored)
    if found is None or (b.pair_unit(p) and found.inner != 1):
        return None
    found = in_boxes(b.graph, b.s, p, found, b.rows)
    return found.moved(b.first_row, ix.lit(0))


def packed_left(b: TileBlock, p: Contraction, of_row: RowFrame | None = None) -> Panel:
    """A left operand that is computed element by element from what is known `of_row`."""
    dtype = b.factor_dtype(p)
    buffer = b.e.local(dtype, b.height * p.terms, "left")
    with b.each_row() as (row, at_row):
        frame = of_row(row, at_row) if of_row else b.base.fresh()
        index, pull = b.out_index(p, at_row, ix.lit(0)), Puller(frame, p.node, frame.pull)

        def pack(at: Index, number: Expr) -> None:
            element = factor(b.graph, p, p.left, index, at, pull)
            place = ix.iadd(ix.imul(row, p.terms), number)
            b.e.store(buffer, place, narrow(element, dtype))

        walk_terms(b.e, b.graph, p, pack)
    return Panel(buffer, ix.lit(0), p.terms, 1)


def copied_left(b: TileBlock, p: Contraction, block: TermBlock) -> LeftOf:
    """The rows of a block, copied here: those of their terms that are in a block of them."""
    o = TileOperand(b, p, p.left, b.factor_dtype(p), block)
    return _in_tiles(b, o) if b.pair_unit(p) else _in_slabs(b, o)


def _in_slabs(b: TileBlock, o: TileOperand) -> LeftOf:
    """Rows side by side in slabs of whole register tiles, term by term."""
    high, buffer = b.s.slab, b.e.local(o.dtype, b.height * o.most, "left")

    def start(row: Expr) -> Expr:
        """Where the terms of a row of the block begin."""
        return ix.iadd(ix.imul(ix.idiv(row, high), high * o.most), ix.imod(row, high))

    for rows in b.spans(b.first_row, b.rows, b.height, high):
        panel, first = Panel(buffer, start(rows.first), high), ix.iadd(b.first_row, rows.first)
        stage(o, [Lines(first, rows.count, panel, filled=False)])
    return lambda tile: Panel(buffer, start(tile.first), 1, high)


def _in_tiles(b: TileBlock, o: TileOperand) -> LeftOf:
    """Rows as tiles of TILE_TERMS terms, with zeros behind the last."""
    depth = -(-o.most // TILE_TERMS) * TILE_TERMS
    buffer = b.e.local(o.dtype, b.height * depth, "left")

    def panel(tile: TileRun) -> Panel:
        start = ix.imul(tile.first, depth)
        return Panel(buffer, start, TILE_TERMS, apart=tile.count * TILE_TERMS)

    for tile in b.row_tiles():
        stage_tiles(o, ix.iadd(b.first_row, tile.first), tile.count, panel(tile))
    return panel


# --- right operands -------------------------------------------------------------------------------


def right_matrix(b: TileBlock, p: Contraction, stored: bool = False) -> Panel | None:
    """The right operand over columns and terms, where it lies in memory."""
    column, term = symbol("column", p.width), symbol("term", p.terms)
    index, stored = b.out_index(p, ix.lit(0), column), stored or bool(b.instruction(p))
    return matrix_of(b.base, p, p.right, index, column, term, stored=stored)


def right_in_memory(b: TileBlock, p: Contraction, stored: bool = False) -> Panel | None:
    """The same, with what its boxes are found by where those may be copied."""
    found = right_matrix(b, p, stored)
    return found and in_boxes(b.graph, b.s, p, found, p.width)


def right_panel(
    b: TileBlock, p: Contraction, column: Expr, count: int, block: TermBlock,
    dot: bool = False,
) -> RightPanel:  # fmt: skip
    """The right operand of one panel: as it lies (`dot`: term by term), or packed."""
    if p.node in b.packed:
        return _beforehand(b, p, column, count, block)
    if not b.pair_unit(p) and (dot or not packs(b, p, count)):
        found = lying_right(b, p, column, count, block, dot)
        if found is not None:
            return found
    unit, depth = b.pair_unit(p), block.cut or p.terms
    width = padded(count) if unit else panel_width(count, b.s.columns)
    size = -(-depth // unit) * unit * width if unit else depth * width
    buffer = b.e.local(b.factor_dtype(p), size, "panel")
    lines = Lines(column, count, Panel(buffer, ix.lit(0), width))
    return RightPanel(fill(b, p, lines, block), width)


def packs(b: TileBlock, p: Contraction, count: int) -> bool:
    """Whether a panel of so many columns is copied although it might be read as it lies. Part of a
    vector is read as two, which are too many where a tile is one vector wide."""
    lanes = b.s.vector_bits // (8 * b.dtype(p).itemsize)
    wanted = b.s.pack or count < lanes >= b.s.columns
    return p.node not in b.packed and wanted and not b.instruction(p)


def lying_right(
    b: TileBlock, p: Contraction, column: Expr, count: int, block: TermBlock,
    dot: bool = False,
) -> RightPanel | None:  # fmt: skip
    """A panel of the right operand as it lies, columns (`dot`: terms) next to each other."""
    found = right_in_memory(b, p)
    near = found is not None and (found.inner if dot else found.outer) == 1
    if found is None or not (near or b.instruction(p)):
        return None
    panel = found.moved(column, block.first).turned()
    return RightPanel(replace(panel, ahead=asked_ahead(panel, count, block.cut, b.width)), count)


def _beforehand(
    b: TileBlock, p: Contraction, column: Expr, count: int, block: TermBlock
) -> RightPanel:
    """A panel that was packed by a kernel of its own (`pack_panels.py`)."""
    buffer, packed = b.packed[p.node]
    width = packed.columns if count == packed.columns else packed.last
    start = ix.iadd(packed.start(b.matrix, column), ix.imul(block.first, width))
    outer = 2 * width if packed.unit != 1 else width
    return RightPanel(Panel(buffer, start, outer), width)


def fill(b: TileBlock, p: Contraction, lines: Lines, block: TermBlock = ALL_TERMS) -> Panel:
    """Copy the present terms of columns of the right operand into their panel, each with zeros up
    to the panel's width, as they are multiplied; what is multiplied in pairs lies two and two."""
    unit, o = b.pair_unit(p), TileOperand(b, p, p.right, b.factor_dtype(p), block)
    if unit:
        lines = replace(lines, panel=replace(lines.panel, outer=2 * lines.panel.outer))
        stage_pairs(o, lines, unit, right_in_memory(b, p, stored=True))
    else:
        stage(o, [lines])
    return lines.panel


def rights_across(b: TileBlock, p: Contraction, block: TermBlock) -> RightOf:
    """The panels of a product in the present block of terms, packed as a whole before the first
    tile of rows where `right_panel` would pack each by itself. A tile of rows then meets one panel
    after another: it stays in the nearest cache, and what is read and written beside the product
    lies in long runs of few rows, not in a column of short ones."""
    if b.pair_unit(p) or not packs(b, p, b.s.columns):
        return lambda run: right_panel(b, p, ix.iadd(b.first_column, run.first), run.count, block)
    terms, step = block.cut or p.terms, b.s.columns
    rest = b.columns % step
    whole = -(-b.width // step) * step if not rest else b.width // step * step + step
    buffer = b.e.local(b.dtype(p), terms * whole, "panel")

    def lines(run: TileRun) -> Lines:
        panel = Panel(buffer, ix.imul(run.first, terms), panel_width(run.count, step))
        return Lines(ix.iadd(b.first_column, run.first), run.count, panel)

    runs = map(lines, b.panels(b.first_column, b.columns, b.width))
    o, lying = TileOperand(b, p, p.right, b.dtype(p), block), right_in_memory(b, p)
    if lying is not None and lying.outer == 1 and not rest:
        # Row by row, each from its first to its last column.
        stage(o, runs)
    else:
        for each in runs:
            stage(o, [each])

    def panel(run: TileRun) -> RightPanel:
        made = lines(run).panel
        return RightPanel(made, made.outer)

    return panel
