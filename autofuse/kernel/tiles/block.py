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

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import ElementSource, Frame
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.tiles.factors import (
    factor_dtype,
    from_zero,
    instruction,
    instruction_of,
    paired_terms,
)
from autofuse.kernel.tiles.parts import (
    ALL_TERMS,
    RightPanel,
    Scratch,
    TermBlock,
    TileRun,
    TileSettings,
)
from autofuse.kernel.tiles.tail import Tail, blocks, tail_of
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index
from autofuse.ops.scalar import Call, Expr, Lit, Sym
from autofuse.plan.program.packing import PackedOperand, tile_columns
from autofuse.plan.schedules.forms import Form
from autofuse.plan.schedules.tiles import Contraction, Tiles, even_parts, line_of


class TileBlock:
    """One segment in the tile schedule, inside its grid loop. `targets` names the buffer of each
    output, `packed` that of right operands that are packed beforehand, by product."""

    def __init__(
        self, form: Form, tiles: Tiles, frame: Frame, targets: dict[Value, str],
        settings: TileSettings, packed: Mapping[int, tuple[str, PackedOperand]] | None = None,
    ) -> None:  # fmt: skip
        self.graph, self.form, self.tiles, self.e = frame.graph, form, tiles, frame.e
        self.base, self.targets, self.tags = frame, targets, dict(form.tags)
        self.packed = packed or {}
        turned = settings.turned
        columns = tile_columns(self.graph, tiles.products, settings.columns)
        self.s = s = replace(settings, columns=columns, lines=settings.lines and not turned)
        self.rows = self._extent(tiles.rows)
        self.columns = self._extent(tiles.columns) // tiles.groups
        self.line = line_of(form, tiles)
        # Blocks of one height, as far as tiles allow (where they are `turned`: columns).
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

    @property
    def end(self) -> Expr:
        """The first row behind the block, if all of its rows are there."""
        return ix.iadd(self.first_row, ix.lit(self.height))

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
        self.zeros(dtype, buffer, ix.lit(0), size)
        return Scratch(buffer, stride)

    def zeros(self, dtype: DType, buffer: str, start: Expr, count: int) -> None:
        """Zeros in so many elements of a buffer."""
        lane = self.e.open("l", count)
        self.e.store(buffer, ix.iadd(start, lane), Lit(0.0, dtype))
        self.e.close("lane", lane, ix.lit(count))

    @contextmanager
    def term_blocks(self, terms: int, cut: int) -> Iterator[tuple[TermBlock, Expr | None]]:
        """A loop over blocks of terms, and whether one is the last (None: there is but one)."""
        if not 0 < cut < terms:
            yield ALL_TERMS, None
            return
        blocks = -(-terms // cut)
        number = self.e.open("q", blocks)
        yield TermBlock(cut, number), Call("eq", (number, ix.lit(blocks - 1)), DType.BOOL)
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

    def count_terms(self, p: Contraction, block: TermBlock) -> Expr:
        """Terms of the present block."""
        if not block.cut:
            return self.needed_terms.get(p.node, ix.lit(p.terms))
        return self.count_of(block.first, p.terms, block.cut)

    def multiply(
        self, p: Contraction, tile: TileRun, target: Panel, left: Panel, right: RightPanel,
        block: TermBlock,
    ) -> None:  # fmt: skip
        """One register tile: sums go on where terms come in several blocks."""
        rows, columns, terms = tile.count, right.width, self.count_terms(p, block)
        dtype, fresh, panel = self.factor_dtype(p), not block.cut, right.panel
        if self.tail is not None:
            left, panel, terms = self.tail.part_of(left, panel)
        made = TileProduct(rows, columns, terms, target, left, panel, dtype, fresh)
        by = instruction_of(self.graph, self.tiles, self.s, p)
        self.e.put(replace(made, mma=by, from_zero=from_zero(p), there=tile.there))

    @contextmanager
    def each_row(self) -> Iterator[tuple[Sym, Expr]]:
        """A loop over the rows of the block: a row in the block, and in the whole."""
        row = self.e.open("r", self.height)
        yield row, self.e.let_index(ix.iadd(self.first_row, row), "m", self.rows)
        self.e.close("serial", row, self.count_of(self.first_row, self.rows, self.height))

    def left_panel(self, left: Panel, block: TermBlock, tile: TileRun) -> Panel:
        """The rows of a tile in the present block of terms."""
        return left.moved(tile.first, block.first)
