"""Tile form where columns are local to a row: whole rows of products stay in scratch, and what
happens between products is done row by row, as in the block-per-row schedule.

Rows that are only scaled before they are multiplied again are scaled afterwards
(`plan/schedules/scalings.py`). This is what is left of separability
(`plan/schedules/online.py`) where the first reduction is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from autofuse.graph.types import Value
from autofuse.kernel.elements.block_per_row import BlockPerRow
from autofuse.kernel.elements.values import ElementSource, Frame, everywhere, through
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.epilogue import IndexOf, TileCell, epilogue
from autofuse.kernel.tiles.operands import left_in_memory, packed_left, right_panel
from autofuse.kernel.tiles.panels import column_number, left_index, symbol
from autofuse.kernel.tiles.parts import ALL_TERMS, Scratch, TileRun, covering
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Load
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import needed
from autofuse.plan.program.packing import padded
from autofuse.plan.schedules.forms import LOCAL, Tag, Tags, join
from autofuse.plan.schedules.masks import reach_of
from autofuse.plan.schedules.scalings import Scaling, core_of, is_of_an_item, scalings
from autofuse.plan.schedules.tiles import Contraction, ends_in_tiles


@dataclass
class KeptRows:
    """What is in scratch so far: rows of products with the scalings that are still due, and one
    number a row of reductions; of values that a mask cuts short how many columns there are."""

    products: dict[int, Scratch] = field(default_factory=dict)
    due: dict[int, tuple[Scaling, ...]] = field(default_factory=dict)
    totals: dict[Value, str] = field(default_factory=dict)
    reach: dict[Value, Expr] = field(default_factory=dict)


def emit_rows(b: TileBlock) -> None:
    """Products one after another, each for all rows of the block; then the rest, row by row."""
    done = KeptRows()
    by_tiles = ends_in_tiles(b.graph, b.form, b.tiles)
    for p in b.tiles.products[:-1] if by_tiles else b.tiles.products:
        left = _left(b, p, done)
        done.products[p.node] = _whole_rows(b, p, left, done)
    if by_tiles:
        _emit_last(b, b.tiles.products[-1], done)
    else:
        emit_rest(b, done)


def _emit_last(b: TileBlock, p: Contraction, done: KeptRows) -> None:
    """The last product, and what follows it for each tile while it is in the nearest cache."""
    left = _left(b, p, done)
    for panel in b.panels(ix.lit(0), p.width, p.width):
        right = right_panel(b, p, panel.first, panel.count, ALL_TERMS)
        stride = padded(panel.count)
        for tile in b.row_tiles():
            own = Scratch(b.e.local(b.dtype(p), tile.count * stride, "acc"), stride)
            target = Panel(own.buffer, ix.lit(0), stride)
            b.multiply(p, tile, target, b.left_panel(left, ALL_TERMS, tile), right, ALL_TERMS)
            _epilogue(b, p, done, tile, panel, own)


def _epilogue(
    b: TileBlock, p: Contraction, done: KeptRows, tile: TileRun, panel: TileRun, own: Scratch
) -> None:
    """What follows a product of which no whole row is kept."""

    def known(cell: TileCell) -> tuple[Frame, IndexOf]:
        frame = frame_of_row(b, done, ix.iadd(tile.first, cell.row), cell.at_row)
        index = b.index_at(p, b.items(cell.at_row), cell.at_column)
        at = ix.iadd(ix.imul(cell.row, own.stride), cell.column)
        element = rescaled(b, p, done, frame, cell.at_row, Load(own.buffer, at, b.dtype(p)))
        frame.sources[Value(p.node)] = only_at(index, element)
        return frame, lambda value: index

    epilogue(b, tile, panel, ix.lit(0), p.width, known)


def only_at(place: Index, element: Expr) -> ElementSource:
    """An element that is known at one place, and asked for nowhere else."""

    def read(index: Index) -> Expr:
        if index != place:
            raise LoweringError("a product is read at another item's index")
        return element

    return read


def emit_rest(b: TileBlock, done: KeptRows) -> None:
    """What follows the products, row by row."""
    with b.each_row() as (row, at_row):
        outputs = b.form.outputs
        program = _program(b, done, frame_of_row(b, done, row, at_row), outputs)
        program.emit_row(b.items(at_row), b.s.stage)


def _whole_rows(b: TileBlock, p: Contraction, left: Panel, done: KeptRows) -> Scratch:
    """All columns of a product for the rows of the block."""
    stride = padded(p.width)
    cut = b.s.term_block if b.s.term_block < p.terms and p.node not in b.needed_terms else 0
    own = (
        b.zeroed(p, stride)
        if cut
        else Scratch(b.e.local(b.dtype(p), b.height * stride, "acc"), stride)
    )
    with b.term_blocks(p.terms, cut) as (block, _):
        for panel in _panels(b, p, done):
            right = right_panel(b, p, panel.first, panel.count, block)
            for tile in b.row_tiles():
                target = Panel(own.buffer, b.place(own, tile.first, panel.first), own.stride)
                at = b.left_panel(left, block, tile)
                b.multiply(p, tile, target, at, right, block)
    return own


def _panels(b: TileBlock, p: Contraction, done: KeptRows) -> Iterator[TileRun]:
    """The panels of a product that some row of the block needs."""
    reach = reach_of(b.graph, b.form, b.tiles, p)
    if reach is None:
        yield from b.panels(ix.lit(0), p.width, p.width)
        return
    step = b.s.columns
    panels = b.e.let_index(covering(reach.columns(b.end), step), "e", None)
    columns = ix.imul(panels, step)
    if p.width % step:
        columns = Call("min", (columns, ix.lit(p.width)), DType.I64)
    done.reach.update(dict.fromkeys(reach.values, columns))
    for other in b.tiles.products:
        if b.graph[other.node].inputs[other.left] in reach.values:
            b.needed_terms[other.node] = columns
    yield from b.panels_up_to(p, panels)


def _left(b: TileBlock, p: Contraction, done: KeptRows) -> Panel:
    """The left operand: where it lies, or computed into scratch with every total that its rows are
    to be scaled by."""
    value = b.graph[p.node].inputs[p.left]
    own = done.products.get(value.node)
    if own is not None and not done.due.get(value.node):
        return Panel(own.buffer, ix.lit(0), own.stride, 1)
    tags = _left_tags(b, p)
    if tags is None:
        return left_in_memory(b, p) or packed_left(b, p, partial(frame_of_row, b, done))
    due = scalings(b.graph, b.form, value, tags)
    core = core_of(value, due)
    found = left_in_memory(b, p, core)
    wanted = () if found is not None else (core,)
    totals = _totals(b, done, (*wanted, *(s.factor for s in due)))
    buffer = "" if found is not None else b.e.local(b.dtype(p), b.height * p.terms, "left")
    fresh = {t: b.e.local(b.graph.type_of(t).dtype.compute, b.height, "total") for t in totals}
    if wanted or totals:
        with b.each_row() as (row, at_row):
            kept: dict[Value, tuple[str, Expr]] = {t: (name, row) for t, name in fresh.items()}
            kept |= {v: (buffer, ix.imul(row, p.terms)) for v in wanted}
            outputs, marks = (*wanted, *totals), dict.fromkeys(wanted, tags)
            frame = frame_of_row(b, done, row, at_row)
            for scaling in due:
                frame.sources[Value(scaling.node)] = through(frame, scaling.scaled)
            program = _program(b, done, frame, outputs, kept, marks)
            program.emit_row(b.items(at_row), b.s.stage)
    done.totals.update(fresh)
    done.due[p.node] = due
    return found or Panel(buffer, ix.lit(0), p.terms, 1)


def _totals(b: TileBlock, done: KeptRows, values: Iterable[Value]) -> list[Value]:
    """Reductions to one number a row that some values depend on and that are not in scratch."""
    found: list[Value] = []
    for n in needed(b.graph, (v.node for v in values), {*b.form.nodes} - {*done.products}):
        tags = b.tags.get(Value(n))
        if b.graph[n].spec.family is not Family.REDUCTION or tags is None:
            continue
        if Value(n) not in done.totals and is_of_an_item(b.graph, Value(n), tags):
            found.append(Value(n))
    return found


def _program(
    b: TileBlock, done: KeptRows, frame: Frame, outputs: tuple[Value, ...],
    kept: Mapping[Value, tuple[str, Expr]] | None = None, tags: Mapping[Value, Tags] | None = None,
) -> BlockPerRow:  # fmt: skip
    """What is to be done for the row of a frame, given what is in scratch. Of `kept` outputs the
    row goes to scratch."""
    have = {*done.products, *(t.node for t in done.totals)}
    own = replace(
        b.form,
        kind="row",
        nodes=needed(b.graph, (v.node for v in outputs), {*b.form.nodes} - have),
        outputs=outputs,
        tags=tuple(sorted({**b.tags, **(tags or {})}.items())),
    )
    return BlockPerRow(own, frame, b.targets, kept, done.reach)


def frame_of_row(b: TileBlock, done: KeptRows, row: Expr, at_row: Expr) -> Frame:
    """What is in scratch of a row of the block."""
    frame = b.base.fresh()
    for p in b.tiles.products:
        if p.node in done.products:
            frame.sources[Value(p.node)] = _element(b, p, done, frame, row, at_row)
    for total, buffer in done.totals.items():
        dtype = b.graph.type_of(total).dtype.compute
        frame.sources[total] = everywhere(Load(buffer, row, dtype))
    return frame


def _element(
    b: TileBlock, p: Contraction, done: KeptRows, frame: Frame, row: Expr, at_row: Expr
) -> ElementSource:
    """An element of a product, scaled as far as that is still due."""
    call, dtype, own = b.graph.call(p.node), b.dtype(p), done.products[p.node]

    def read(index: Index) -> Expr:
        at = ix.iadd(ix.imul(row, own.stride), column_number(call, p, index))
        return rescaled(b, p, done, frame, at_row, Load(own.buffer, at, dtype))

    return read


def rescaled(
    b: TileBlock, p: Contraction, done: KeptRows, frame: Frame, at_row: Expr, element: Expr
) -> Expr:
    """An element of a product with the scalings of its row that are still due."""
    tags = _left_tags(b, p) or ()
    local = tuple(ix.lit(0) for t in tags if not isinstance(t, int))
    for scaling in done.due.get(p.node, ()):
        factor = frame.pull(scaling.factor, join(tags, b.items(at_row), local))
        element = _scaled(b, scaling, frame.e.let(element), factor)
    return element


def _scaled(b: TileBlock, scaling: Scaling, element: Expr, factor: Expr) -> Expr:
    """What a scaling makes of one element."""
    body = b.graph[scaling.node].spec.body
    assert body is not None
    operands = [factor, factor]
    operands[scaling.operand] = element
    (made,) = body(b.graph.call(scaling.node), (), _Given(tuple(operands)))
    return made


@dataclass(frozen=True, slots=True)
class _Given:
    """A puller of operands that are known."""

    operands: tuple[Expr, ...]

    def __call__(self, operand: int, index: Index) -> Expr:
        return self.operands[operand]

    def let(self, value: Expr) -> Expr:
        return value


def _left_tags(b: TileBlock, p: Contraction) -> Tags | None:
    """The tags of a left operand: its terms are local. None where terms move along rows, as in a
    convolution of more than single places."""
    own = b.tags[Value(p.node)]
    marks = tuple(symbol(f"t{a}", 1 << 20) for a in range(len(own)))
    terms: tuple[Expr, ...] = tuple(
        symbol(f"k{k}", extent) if extent > 1 else ix.lit(0) for k, extent in enumerate(p.loops)
    )
    at = left_index(b.graph, p, marks, terms)
    names: dict[Expr, Tag] = {**dict(zip(marks, own, strict=True)), **dict.fromkeys(terms, LOCAL)}
    return tuple(names[i] for i in at) if all(i in names for i in at) else None
