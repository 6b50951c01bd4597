"""Tile form: a grid iteration computes a block of rows (and columns) of one or more products.

Where columns are parallel axes, what follows a product is computed for each register tile while it
is in the nearest cache. Where they are local to a row (it is reduced, or multiplied again), whole
rows of products stay in scratch (`kernel/tiles/rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from autofuse.graph.types import Value
from autofuse.kernel.cuda.mma import SUMS_PAD
from autofuse.kernel.elements.values import Frame
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import Local, Panel, statements
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.computed import ComputedProduct, computed_products, is_along
from autofuse.kernel.tiles.edges import row_tiles
from autofuse.kernel.tiles.epilogue import IndexOf, TileCell, at_items, epilogue
from autofuse.kernel.tiles.fragment_online import emit_fragments
from autofuse.kernel.tiles.lanes import TileLanes
from autofuse.kernel.tiles.online import emit_online
from autofuse.kernel.tiles.operands import (
    LeftOf,
    copied_left,
    left_in_memory,
    packed_left,
    right_panel,
    rights_across,
)
from autofuse.kernel.tiles.parts import RightPanel, Scratch, TermBlock, TileRun, TileSettings
from autofuse.kernel.tiles.patches import PatchedProduct, patched
from autofuse.kernel.tiles.rows import emit_rows
from autofuse.kernel.tiles.walk import WalkedProduct, copied_runs, walkers, whole_taps
from autofuse.ops import index as ix
from autofuse.ops.scalar import Expr, Load
from autofuse.plan.parameters import BATCH_LANES, FRAGMENTS, VECTOR_BITS
from autofuse.plan.program.packing import PackedOperand, padded
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.online import online_under
from autofuse.plan.schedules.pairs import TILE_TERMS
from autofuse.plan.schedules.tiles import Contraction, Tiles
from autofuse.plan.types import LaunchConfig

# Bytes of scratch that a block may keep: more would leave the caches that it is kept for.
MOST_SCRATCH = 4 << 20


def emit_tiles(
    form: Form, tiles: Tiles, frame: Frame, targets: dict[Value, str], launch: LaunchConfig,
    packed: Mapping[int, tuple[str, PackedOperand]],
) -> None:  # fmt: skip
    """One segment in the tile schedule: the grid over blocks, and the work of each. `targets` names
    the buffer of each output, `packed` that of operands that are packed beforehand. Raises
    LoweringError where a block would keep more than MOST_SCRATCH bytes."""
    chosen, where = TileSettings.of(launch), (form, tiles, frame, targets)
    along = None
    if BATCH_LANES.of(launch):
        along = TileLanes(*where, chosen, packed).fit(VECTOR_BITS.of(launch))
    online = online_under(frame.graph, form, tiles, launch) if along is None else None
    in_registers = online is not None and FRAGMENTS.of(launch)
    if in_registers:
        chosen = replace(chosen, rows=chosen.row_block)
    elif online is not None:
        chosen = replace(chosen, turned=not chosen.dot)
    block = along or TileBlock(*where, chosen, packed)
    before = len(frame.e.body)
    with block.grid():
        if along is not None:
            along.emit()
        elif online is not None and in_registers:
            emit_fragments(block, online, launch)
        elif online is not None:
            emit_online(block, online)
        elif tiles.columns:
            _emit_columns(block)
        else:
            emit_rows(block)
    kept = [s for s in statements(frame.e.body[before:]) if isinstance(s, Local)]
    needed = sum(s.size * s.dtype.itemsize for s in kept)
    if needed > MOST_SCRATCH:
        raise LoweringError(f"a block would keep {needed} bytes, more than {MOST_SCRATCH}")


def _emit_columns(b: TileBlock) -> None:
    """Every product of the block, and what follows it for each tile."""
    products = b.tiles.products
    walking: dict[int, WalkedProduct | PatchedProduct] = {**dict(walkers(b)), **dict(patched(b))}
    own = [p for p in products if p.node not in walking]
    lefts = {p.node: _left(b, p) for p in own if not _is_copied(b, p)}
    terms = {p.terms for p in products}
    cut = b.s.term_block if len(terms) == 1 and b.s.term_block < max(terms) else 0
    cut = 0 if any(is_along(b, p) for p in own) else cut
    # What is multiplied at once, a pair of terms or a tile of them, is in one block of them.
    unit = max(2, *map(b.pair_unit, products))
    ways = (w.way for w in walking.values())
    cut = whole_taps(-(-cut // unit) * unit, max(terms), ways)
    cut = cut if cut < max(terms) else 0
    computed = computed_products(b, own, lefts, cut)
    shared = {p.node: b.zeroed(p, _stride(b, b.width)) for p in products} if cut else {}
    with b.term_blocks(max(terms), cut) as (block, last):
        here: dict[int, LeftOf] = {}
        for p in own:
            known = lefts.get(p.node)
            here[p.node] = (
                copied_left(b, p, block) if known is None else partial(b.left_panel, known, block)
            )
        work = _Columns(b, walking, computed, here, shared, block)
        if b.s.across:
            work.emit_across(last)
        else:
            work.emit_down(last)


@dataclass(frozen=True)
class _Columns:
    """The register tiles of a block whose columns are parallel axes. Of `walking` products patches
    are read where they lie, of `computed` ones the right operand is made in registers, of others
    there are `lefts`; sums are `shared` by blocks of terms, of which this is one."""

    b: TileBlock
    walking: Mapping[int, WalkedProduct | PatchedProduct]
    computed: Mapping[int, ComputedProduct]
    lefts: Mapping[int, LeftOf]
    shared: Mapping[int, Scratch]
    block: TermBlock

    def emit_down(self, last: Expr | None) -> None:
        """A panel meets all rows; what follows a tile comes right after it."""
        b = self.b
        for panel in b.panels(b.first_column, b.columns, b.width):
            column = ix.iadd(b.first_column, panel.first)
            rights = {
                p.node: right_panel(b, p, column, panel.count, self.block, b.s.dot)
                for p in b.tiles.products
                if p.node not in self.computed
            }
            for tile in row_tiles(b):
                places = self.places(tile, panel.count)
                self.multiply(tile, panel, places, rights, ix.lit(0))
                with b.only(last if b.tail is None else self.joined(tile, panel, places)):
                    _epilogue(b, tile, panel, places, self.start(tile, panel, ix.lit(0)))

    def emit_across(self, last: Expr | None) -> None:
        """A tile of rows meets all panels; what follows runs along all columns of the block."""
        b = self.b
        panels = {p.node: rights_across(b, p, self.block) for p in b.tiles.products}
        for tile in b.row_tiles():
            places = self.places(tile, b.width)
            for panel in b.panels(b.first_column, b.columns, b.width):
                rights = {node: panel_of(panel) for node, panel_of in panels.items()}
                self.multiply(tile, panel, places, rights, panel.first)
            with b.only(last):
                for run in b.panels(b.first_column, b.columns, b.width, b.width):
                    _epilogue(b, tile, run, places, self.start(tile, run, run.first))

    def places(self, tile: TileRun, columns: int) -> dict[int, Scratch]:
        """Where the sums of a tile of so many columns are kept."""
        b, stride, found = self.b, _stride(self.b, columns), dict(self.shared)
        for p in b.tiles.products:
            if p.node not in found:
                found[p.node] = Scratch(b.e.local(b.dtype(p), tile.count * stride, "acc"), stride)
        return found

    def joined(
        self, tile: TileRun, panel: TileRun, places: Mapping[int, Scratch]
    ) -> Expr:  # fmt: skip
        """Whether this block goes on with the sums of a tile, which other blocks may have parts
        of."""
        b, p = self.b, self.b.tiles.products[0]
        place = places[p.node]
        assert b.tail is not None
        target = Panel(place.buffer, ix.lit(0), place.stride)
        room = b.s.rows * b.s.columns
        return b.tail.join(b.e, target, tile.count, panel.count, room, b.dtype(p))

    def start(self, tile: TileRun, run: TileRun, own: Expr) -> Callable[[Scratch], Expr]:
        """Where sums of a tile begin: in the block where terms come in several, else at `own`."""
        if not self.block.cut:
            return lambda place: own
        return lambda place: self.b.place(place, tile.first, run.first)

    def multiply(
        self, tile: TileRun, panel: TileRun, places: Mapping[int, Scratch],
        rights: Mapping[int, RightPanel], own: Expr,
    ) -> None:  # fmt: skip
        """One register tile of every product."""
        b, begin = self.b, self.start(tile, panel, own)
        column = ix.iadd(b.first_column, panel.first)
        for p in b.tiles.products:
            place = places[p.node]
            target = Panel(place.buffer, begin(place), place.stride)
            if p.node in self.computed:
                made = self.computed[p.node]
                made.multiply(tile, panel.count, target, column, self.block)
                continue
            right = rights[p.node]
            if p.node in self.walking:
                walker = self.walking[p.node]
                walker.multiply(tile, panel.count, target, right, column, self.block)
                continue
            b.multiply(p, tile, target, self.lefts[p.node](tile), right, self.block)


def _stride(b: TileBlock, columns: int) -> int:
    """Elements from one row of sums to the next."""
    return padded(columns) + (SUMS_PAD if any(map(b.instruction, b.tiles.products)) else 0)


def _is_copied(b: TileBlock, p: Contraction) -> bool:
    """Whether the left operand is copied block of terms by block, which vectors along terms have no
    use for, and pairs only in tiles."""
    return b.s.pack_left and not b.s.dot and b.pair_unit(p) in (0, TILE_TERMS)


def _left(b: TileBlock, p: Contraction) -> Panel:
    """The left operand of a block: as it lies, or in scratch where it is computed, or its terms
    must be neighbours and are not."""
    found = left_in_memory(b, p)
    if found is not None and (found.inner == 1 or not b.s.dot):
        return found
    return copied_runs(b, p) or packed_left(b, p)


def _epilogue(
    b: TileBlock, tile: TileRun, run: TileRun, places: Mapping[int, Scratch],
    start: Callable[[Scratch], Expr],
) -> None:  # fmt: skip
    """What follows the products of a tile."""

    def known(cell: TileCell) -> tuple[Frame, IndexOf]:
        items, frame = b.items(cell.at_row, cell.at_column), b.base.fresh()
        for p in b.tiles.products:
            own = places[p.node]
            at = ix.iadd(start(own), ix.iadd(ix.imul(cell.row, own.stride), cell.column))
            # Read here: what is known before the loop over terms, as a single row's place is, would
            # be read before it.
            product = b.e.bind(Load(own.buffer, at, b.dtype(p)))
            frame.sources[Value(p.node)] = b.element_at(p, product, items)
        return frame, at_items(b, items)

    epilogue(b, tile, run, b.first_column, b.columns, known)
