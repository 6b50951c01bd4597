"""The block of rows (and columns) that a grid iteration of the tile schedule owns: where it lies,
the loops around its register tiles, and the panels that those read.

The loops are those of BLIS (Van Zee, van de Geijn, ACM TOMS 41, 2015): terms in blocks, columns in
panels that are packed just before use, rows in tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from autofuse.graph.types import Graph, Value
from autofuse.kernel.elements.values import ElementSource, Frame, Puller, RowFrame
from autofuse.kernel.ir.emit import Emitter, LoweringError, narrow
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.tiles.factors import (
    factor_dtype,
    from_zero,
    in_boxes,
    instruction,
    instruction_of,
    paired_terms,
)
from autofuse.kernel.tiles.pair_panels import PanelPart, fill_panel, fill_zeros, pack_pairs
from autofuse.kernel.tiles.panels import factor, matrix_of, symbol, walk_terms
from autofuse.kernel.tiles.parts import RightPanel, Scratch, TileRun, TileSettings, asked_ahead
from autofuse.kernel.tiles.tail import Tail, blocks, tail_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Sym
from autofuse.plan.program.packing import PackedOperand, padded, panel_width, tile_columns
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.tiles import Contraction, Tiles, even_parts, line_of


class TileBlock:
    """One segment in the tile schedule, inside its grid loop. `targets` names the buffer of each
    output, `packed` that of right operands that are packed beforehand, by product."""

    def __init__(
        self, graph: Graph, form: Form, tiles: Tiles, emitter: Emitter, frame: Frame,
        targets: dict[Value, str], settings: TileSettings,
        packed: Mapping[int, tuple[str, PackedOperand]] | None = None, *, turned: bool = False,
    ) -> None:  # fmt: skip
        self.graph, self.form, self.tiles, self.e = graph, form, tiles, emitter
        self.base, self.targets, self.tags = frame, targets, dict(form.tags)
        self.packed = packed or {}
        columns = tile_columns(graph, tiles.products, settings.columns)
        self.s = s = replace(settings, columns=columns, lines=settings.lines and not turned)
        self.rows = self._extent(tiles.rows)
        self.columns = self._extent(tiles.columns) // tiles.groups
        self.line = line_of(form, tiles)
        # Blocks of one height, as far as tiles allow (`turned`: rows are columns of tiles).
        own = s.slab if s.pack_left else self.line if s.lines else s.rows
        unit = s.columns if turned else own
        blocks = -(-self.rows // max(s.row_block // unit * unit, unit))
        self.height = -(-self.rows // (blocks * unit)) * unit
        wide = min(s.column_block or self.columns, self.columns)
        self.width = min(-(-wide // s.columns) * s.columns, self.columns)
        self.batch: dict[int, Expr] = {}
        self.matrix: Expr = ix.lit(0)
        # Terms that products need where a mask leaves out the rest, in the present block.
        self.needed_terms: dict[int, Expr] = {}
        # The group that the present block's columns belong to.
        self.group: Expr = ix.lit(0)
        self.first_row: Expr = ix.lit(0)
        self.first_column: Expr = ix.lit(0)
        self.tail: Tail | None = None

    @contextmanager
    def grid(self) -> Iterator[None]:
        """The grid over blocks."""
        high, broad = -(-self.rows // self.height), -(-self.columns // self.width)
        groups = self.tiles.groups
        batches = self._extent(self.tiles.batch) * groups
        count = batches * high * broad
        tail = tail_of(self.tiles, self.s, count, self.height, self.width)
        with blocks(self.e, count, tail) as (block, self.tail):
            batch = self.e.let_index(ix.idiv(block, high * broad), "z", batches)
            if groups > 1:
                self.group = self.e.let_index(ix.imod(batch, groups), "g", groups)
            self.place_batch(ix.idiv(batch, groups))
            row = self.e.let_index(ix.imod(ix.idiv(block, broad), high), "y", high)
            column = self.e.let_index(ix.imod(block, broad), "x", broad)
            self.first_row = ix.imul(row, self.height)
            self.first_column = ix.imul(column, self.width)
            yield

    def _extent(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.form.parallel[a] for a in axes)

    @contextmanager
    def matrices(self, count: int) -> Iterator[Expr]:
        """A grid over `count` pieces that are not blocks of rows."""
        block = self.e.open("b", count)
        yield block
        self.e.close("grid", block, ix.lit(count))

    def place_batch(self, number: Expr) -> None:
        """From here on the batch is its matrix `number`."""
        self.matrix = number
        extents = tuple(self.form.parallel[a] for a in self.tiles.batch)
        at = ix.delinearize(number, extents)
        named = (self.e.let_index(i, "z", n) for i, n in zip(at, extents, strict=True))
        self.batch = dict(zip(self.tiles.batch, named, strict=True))

    def items(self, row: Expr, column: Expr | None = None) -> Index:
        """The item in a row and, where they are parallel, a column of the whole (of its group)."""
        place = dict(self.batch)
        if column is not None:
            column = ix.iadd(ix.imul(self.group, self.columns), column)
        for axes, number in ((self.tiles.rows, row), (self.tiles.columns, column)):
            if axes and number is not None:
                extents = tuple(self.form.parallel[a] for a in axes)
                place.update(zip(axes, ix.delinearize(number, extents), strict=True))
        return tuple(place.get(a, ix.lit(0)) for a in range(len(self.form.parallel)))

    def out_index(self, p: Contraction, row: Expr, column: Expr) -> Index:
        """The element of a product in a row of the whole and a column of its own (group)."""
        return self.index_at(p, self.items(row), column)

    def index_at(self, p: Contraction, items: Index, column: Expr) -> Index:
        """The element of a product at an item, in a column of its own (group)."""
        tags, out = self.tags[Value(p.node)], self.graph.type_of(Value(p.node))
        extents = tuple(out.shape[a] for a in p.columns)
        column = ix.iadd(ix.imul(self.group, p.width), column)
        own = dict(zip(p.columns, ix.delinearize(column, extents), strict=True))
        return tuple(
            own[a] if a in own else items[t] if isinstance(t, int) else ix.lit(0)
            for a, t in enumerate(tags)
        )

    def count_of(self, first: Expr, whole: int, block: int) -> Expr:
        """How many of `whole` rows or columns a block has that starts at `first`."""
        if whole <= block or whole % block == 0:
            return ix.lit(min(whole, block))
        return Call("min", (ix.lit(block), ix.isub(ix.lit(whole), first)), DType.I64)

    def dtype(self, p: Contraction) -> DType:
        return self.graph.type_of(Value(p.node)).dtype.compute

    def element_at(self, p: Contraction, element: Expr, items: Index) -> ElementSource:
        """A product that is known at one item, and asked for nowhere else."""
        tags = self.tags[Value(p.node)]

        def read(index: Index) -> Expr:
            if any(i != items[t] for i, t in zip(index, tags, strict=True) if isinstance(t, int)):
                raise LoweringError("a product is read at another item's index")
            return element

        return read

    def pair_unit(self, p: Contraction) -> int:
        """The multiple of terms of panels where factors stay bf16, in pairs; 0 elsewhere."""
        return paired_terms(self.tiles, self.s, p)

    def instruction(self, p: Contraction) -> str:
        """The instruction class of tensor cores that multiplies, "" for none."""
        return instruction(self.graph, self.s, p)

    def factor_dtype(self, p: Contraction) -> DType:
        """What factors of a product are multiplied as."""
        return factor_dtype(self.graph, self.tiles, self.s, p)

    def place(self, own: Scratch, row: Expr, column: Expr) -> Expr:
        return ix.iadd(ix.imul(row, own.stride), column)

    def zeroed(self, p: Contraction, stride: int) -> Scratch:
        """Sums that start from zero, because terms come in several blocks."""
        dtype = self.dtype(p)
        size = self.height * stride
        buffer = self.e.local(dtype, size, "acc")
        fill_zeros(self.base, dtype, buffer, ix.lit(0), size)
        return Scratch(buffer, stride)

    @contextmanager
    def term_blocks(self, terms: int, cut: int) -> Iterator[tuple[Expr, Expr | None]]:
        """A loop over blocks of terms: the number of the block, and whether it is the last (None:
        there is but one)."""
        if not 0 < cut < terms:
            yield ix.lit(0), None
            return
        blocks = -(-terms // cut)
        number = self.e.open("q", blocks)
        yield number, Call("eq", (number, ix.lit(blocks - 1)), DType.BOOL)
        self.e.close("serial", number, ix.lit(blocks))

    @contextmanager
    def only(self, condition: Expr | None) -> Iterator[None]:
        """A body that runs where a condition holds (None: always)."""
        if condition is None:
            yield
            return
        var = self.e.open("w", 1)
        yield
        self.e.close("when", var, condition)

    def spans(self, first: Expr, whole: int, block: int, step: int) -> Iterator[TileRun]:
        """What a block of rows or columns that starts at `first` consists of: a loop over full
        steps, then what is left in the last block."""
        last = whole - (-(-whole // block) - 1) * block
        full, rest = (block if whole > block else last) // step, last % step
        count = self.count_of(first, whole, block)
        if full:
            number = self.e.open("s", full)
            yield TileRun(ix.imul(number, step), step)
            self.e.close("serial", number, ix.idiv(count, step))
        if rest:
            only = Call("lt", (count, ix.lit(block)), DType.BOOL) if whole > block else None
            with self.only(only):
                yield TileRun(ix.lit(last - rest), rest)

    def row_tiles(self) -> Iterator[TileRun]:
        if self.s.lines:
            return self._line_tiles()
        return self.spans(self.first_row, self.rows, self.height, self.s.rows)

    def _line_tiles(self) -> Iterator[TileRun]:
        """Tiles of nearly one height in each line of rows."""
        y = self.e.open("s", self.height // self.line)
        count, first = self.count_of(self.first_row, self.rows, self.height), 0
        for size, number in even_parts(self.line, self.s.rows):
            x = self.e.open("s", number)
            start = ix.iadd(ix.imul(y, self.line), ix.iadd(ix.imul(x, size), ix.lit(first)))
            yield TileRun(start, size)
            self.e.close("serial", x, ix.lit(number))
            first += size * number
        self.e.close("serial", y, ix.idiv(count, self.line))

    def panels(
        self, first: Expr, whole: int, block: int, wide: int | None = None
    ) -> Iterator[TileRun]:
        """Panels of as many columns as a tile has, or of `wide`."""
        return self.spans(first, whole, block, wide or self.s.columns)

    def reached(self, p: Contraction, offset: int) -> tuple[Expr, Expr]:
        """Of a product of which row r needs its columns up to r + `offset`: how many panels this
        block needs, and how many columns that is."""
        step = self.s.columns
        last = ix.iadd(self.first_row, ix.lit(self.height + offset))
        count = ix.iclamp(last, 1, p.width)
        panels = self.e.let_index(ix.idiv(ix.iadd(count, ix.lit(step - 1)), step), "e", None)
        columns = ix.imul(panels, step)
        if p.width % step:
            columns = Call("min", (columns, ix.lit(p.width)), DType.I64)
        return panels, columns

    def panels_up_to(self, p: Contraction, panels: Expr) -> Iterator[TileRun]:
        """The first panels of a product whose columns are local."""
        full, rest = divmod(p.width, self.s.columns)
        if full:
            number = self.e.open("s", full)
            yield TileRun(ix.imul(number, self.s.columns), self.s.columns)
            extent = Call("min", (panels, ix.lit(full)), DType.I64) if rest else panels
            self.e.close("serial", number, extent)
        if rest:
            with self.only(Call("gt", (panels, ix.lit(full)), DType.BOOL)):
                yield TileRun(ix.lit(full * self.s.columns), rest)

    def block_terms(self, p: Contraction, cut: int, number: Expr) -> Expr:
        """Terms of the present block."""
        if not cut:
            return self.needed_terms.get(p.node, ix.lit(p.terms))
        return self.count_of(ix.imul(number, cut), p.terms, cut)

    def multiply(
        self, p: Contraction, tile: TileRun, target: Panel, left: Panel, right: RightPanel,
        cut: int, number: Expr,
    ) -> None:  # fmt: skip
        """One register tile: sums go on where terms come in several blocks."""
        rows, columns, terms = tile.count, right.width, self.block_terms(p, cut, number)
        dtype, fresh, panel = self.factor_dtype(p), not cut, right.panel
        if self.tail is not None:
            left, panel, terms = self.tail.part_of(left, panel)
        made = TileProduct(rows, columns, terms, target, left, panel, dtype, fresh)
        by = instruction_of(self.graph, self.tiles, self.s, p)
        self.e.put(replace(made, mma=by, from_zero=from_zero(p), there=tile.there))

    def left_in_memory(self, p: Contraction, instead: Value | None = None) -> Panel | None:
        """The left operand, or a value `instead` of it, as rows from the first of the block on,
        where it lies in memory."""
        row, term = symbol("row", self.rows), symbol("term", p.terms)
        index = self.out_index(p, row, ix.lit(0))
        stored = bool(self.pair_unit(p) or self.instruction(p))
        found = matrix_of(self.base, p, p.left, index, row, term, instead, stored=stored)
        if found is None or (self.pair_unit(p) and found.inner != 1):
            return None
        found = in_boxes(self.graph, self.s, p, found, self.rows)
        return found.moved(self.first_row, ix.lit(0))

    @contextmanager
    def each_row(self) -> Iterator[tuple[Sym, Expr]]:
        """A loop over the rows of the block: a row in the block, and in the whole."""
        row = self.e.open("r", self.height)
        yield row, self.e.let_index(ix.iadd(self.first_row, row), "m", self.rows)
        self.e.close("serial", row, self.count_of(self.first_row, self.rows, self.height))

    def left_panel(self, left: Panel, tile: TileRun, cut: int, number: Expr) -> Panel:
        return left.moved(tile.first, ix.imul(number, cut))

    def packed_left(self, p: Contraction, of_row: RowFrame | None = None) -> Panel:
        """A left operand that is computed element by element from what is known `of_row`."""
        dtype = self.factor_dtype(p)
        buffer = self.e.local(dtype, self.height * p.terms, "left")
        with self.each_row() as (row, at_row):
            frame = of_row(row, at_row) if of_row else self.base.fresh()
            index, pull = self.out_index(p, at_row, ix.lit(0)), Puller(frame, p.node, frame.pull)

            def pack(at: Index, number: Expr) -> None:
                element = factor(self.graph, p, p.left, index, at, pull)
                place = ix.iadd(ix.imul(row, p.terms), number)
                self.e.store(buffer, place, narrow(element, dtype))

            walk_terms(self.e, self.graph, p, pack)
        return Panel(buffer, ix.lit(0), p.terms, 1)

    def right_in_memory(self, p: Contraction, stored: bool = False) -> Panel | None:
        """The right operand over columns and terms, where it lies in memory."""
        width, term = symbol("column", p.width), symbol("term", p.terms)
        index, stored = self.out_index(p, ix.lit(0), width), stored or bool(self.instruction(p))
        found = matrix_of(self.base, p, p.right, index, width, term, stored=stored)
        return found and in_boxes(self.graph, self.s, p, found, p.width)

    def right(
        self, p: Contraction, column: Expr, count: int, cut: int, number: Expr, dot: bool = False
    ) -> RightPanel:
        """The right operand of one panel: as it lies (`dot`: term by term), or packed."""
        if p.node in self.packed:
            return self._beforehand(p, column, count, cut, number)
        if self.pair_unit(p):
            wanted = self.part(p, column, count, padded(count), cut, number)
            buffer = self.e.local(DType.BF16, wanted.elements, "panel")
            return RightPanel(pack_pairs(self.base, p, wanted, buffer), wanted.padded)
        packs = not dot and self.packs(p, count)
        lying = None if packs else self.lying_right(p, column, count, cut, number, dot)
        return lying or self._packed(p, column, count, cut, number)

    def part(
        self, p: Contraction, column: Expr, count: int, padded: int, cut: int, number: Expr
    ) -> PanelPart:
        """What a panel of the present terms holds."""

        def place(lane: Expr) -> Index:
            at = self.e.let_index(ix.iadd(column, lane), "n", p.width)
            return self.out_index(p, ix.lit(0), at)

        unit = self.pair_unit(p)
        return PanelPart(
            count, padded, column, place, ix.imul(number, cut), self.block_terms(p, cut, number),
            cut or p.terms, unit, self.right_in_memory(p, stored=True) if unit else None,
        )  # fmt: skip

    def packs(self, p: Contraction, count: int) -> bool:
        """Whether a panel of so many columns is copied although it might be read as it lies. Part
        of a vector is read as two, which are too many where a tile is one vector wide."""
        lanes = self.s.vector_bits // (8 * self.dtype(p).itemsize)
        wanted = self.s.pack or count < lanes >= self.s.columns
        return p.node not in self.packed and wanted and not self.instruction(p)

    def lying_right(
        self, p: Contraction, column: Expr, count: int, cut: int, number: Expr, dot: bool = False
    ) -> RightPanel | None:
        """A panel of the right operand as it lies, columns (`dot`: terms) next to each other."""
        found = self.right_in_memory(p)
        near = found is not None and (found.inner if dot else found.outer) == 1
        if found is None or not (near or self.instruction(p)):
            return None
        panel = found.moved(column, ix.imul(number, cut)).turned()
        return RightPanel(replace(panel, ahead=asked_ahead(panel, count, cut, self.width)), count)

    def _packed(
        self, p: Contraction, column: Expr, count: int, cut: int, number: Expr
    ) -> RightPanel:
        padded = panel_width(count, self.s.columns)
        buffer = self.e.local(self.factor_dtype(p), (cut or p.terms) * padded, "panel")
        self.fill(p, buffer, ix.lit(0), column, count, padded, cut, number)
        return RightPanel(Panel(buffer, ix.lit(0), padded), padded)

    def _beforehand(
        self, p: Contraction, column: Expr, count: int, cut: int, number: Expr
    ) -> RightPanel:
        """A panel that was packed by a kernel of its own (`pack_panels.py`)."""
        buffer, packed = self.packed[p.node]
        width = packed.columns if count == packed.columns else packed.last
        start = ix.iadd(packed.start(self.matrix, column), ix.imul(number, cut * width))
        outer = 2 * width if packed.unit != 1 else width
        return RightPanel(Panel(buffer, start, outer), width)

    def fill(
        self, p: Contraction, buffer: str, begin: Expr, column: Expr, count: int, padded: int,
        cut: int = 0, number: Expr = ix.lit(0),  # noqa: B008 - frozen
    ) -> None:  # fmt: skip
        """Copy the terms of a block of `count` columns of the right operand into a buffer, from
        `begin` on, each with zeros up to `padded` columns, as they are multiplied."""
        part = self.part(p, column, count, padded, cut, number)
        fill_panel(self.base, p, part, buffer, begin, self.factor_dtype(p))
