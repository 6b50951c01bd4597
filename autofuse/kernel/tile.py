"""Tile form: a grid iteration computes a block of rows (and columns) of one or more products.

Where columns are parallel axes, what follows a product is computed for each register tile while it
is in the nearest cache. Where they are local to a row (it is reduced, or multiplied again), whole
rows of products stay in scratch, and what happens between products is done row by row, as in the
block-per-row schedule. Loops around a register tile are those of BLIS (Van Zee, van de Geijn, ACM
TOMS 41, 2015): terms in blocks, columns in panels that are packed just before use, rows in tiles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from autofuse.graph.types import Graph, Value
from autofuse.kernel.block_per_row import BlockPerRow
from autofuse.kernel.emit import Emitter, LoweringError, narrow
from autofuse.kernel.ir import Panel, TileProduct
from autofuse.kernel.panels import Matrix, column_number, matrix_of, operand_at, symbol
from autofuse.kernel.values import ElementSource, Frame
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym
from autofuse.ops.spec import Index
from autofuse.plan.forms import LOCAL, Form, Tags
from autofuse.plan.parameters import COLUMN_BLOCK, MICRO, PACK, ROW_BLOCK, STAGE, TERM_BLOCK
from autofuse.plan.tiles import Product, Tiles
from autofuse.plan.types import LaunchConfig

# Columns that the last panel of a product is filled up to.
LANES = 16


@dataclass(frozen=True, slots=True)
class TileSettings:
    """What is chosen of a tile kernel: the register tile (columns of 4 bytes), the block of rows,
    columns and terms (0: all), whether right operands are packed where they need not be, whether
    rows are staged."""

    rows: int
    columns: int
    row_block: int
    column_block: int
    term_block: int
    pack: bool
    stage: bool

    @staticmethod
    def of(launch: LaunchConfig) -> TileSettings:
        rows, columns = str(launch.get(MICRO.name, MICRO.default)).split("x")
        return TileSettings(
            int(rows), int(columns), ROW_BLOCK.of(launch), COLUMN_BLOCK.of(launch),
            TERM_BLOCK.of(launch), PACK.of(launch), STAGE.of(launch),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Span:
    """A run of rows or columns of a block: the first of them in the block, and how many."""

    first: Expr
    count: int


@dataclass(frozen=True, slots=True)
class _Scratch:
    """Rows of a product in scratch: `stride` elements from one to the next."""

    buffer: str
    stride: int


@dataclass(frozen=True, slots=True)
class _Right:
    """A panel of a right operand, and the columns that a tile of it has."""

    panel: Panel
    width: int


class TileSchedule:
    """Emits one segment in the tile schedule. `targets` names the buffer of each output."""

    def __init__(
        self, graph: Graph, form: Form, tiles: Tiles, emitter: Emitter, frame: Frame,
        targets: dict[Value, str],
    ) -> None:  # fmt: skip
        self.graph, self.form, self.tiles, self.e = graph, form, tiles, emitter
        self.base, self.targets = frame, targets
        self.tags = dict(form.tags)
        self.batch: dict[int, Expr] = {}

    def emit(self, s: TileSettings) -> None:
        """The grid over blocks, and the work of each."""
        widest = max(self._dtype(p).itemsize for p in self.tiles.products)
        self.s = s = replace(s, columns=max(1, s.columns * 4 // widest))
        rows, columns = self._extent(self.tiles.rows), self._extent(self.tiles.columns)
        self.height = min(-(-s.row_block // s.rows), -(-rows // s.rows)) * s.rows
        wide = min(s.column_block or columns, columns)
        self.width = min(-(-wide // s.columns) * s.columns, columns)
        high, broad = -(-rows // self.height), -(-columns // self.width)
        batches = self._extent(self.tiles.batch)
        block = self.e.open("b", batches * high * broad)
        self._place_batch(self.e.let_index(ix.idiv(block, high * broad), "z", batches))
        self.row_number = self.e.let_index(ix.imod(ix.idiv(block, broad), high), "y", high)
        self.column_number = self.e.let_index(ix.imod(block, broad), "x", broad)
        self.first_row = ix.imul(self.row_number, self.height)
        self.first_column = ix.imul(self.column_number, self.width)
        if self.tiles.columns:
            self._columnwise()
        else:
            self._rowwise()
        self.e.close("grid", block, ix.lit(batches * high * broad))

    # --- positions --------------------------------------------------------------------------------

    def _extent(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.form.parallel[a] for a in axes)

    def _place_batch(self, number: Expr) -> None:
        extents = tuple(self.form.parallel[a] for a in self.tiles.batch)
        at = ix.delinearize(number, extents)
        named = (self.e.let_index(i, "z", n) for i, n in zip(at, extents, strict=True))
        self.batch = dict(zip(self.tiles.batch, named, strict=True))

    def _items(self, row: Expr, column: Expr | None = None) -> Index:
        """The item in a row and, where they are parallel, a column of the whole."""
        place = dict(self.batch)
        for axes, number in ((self.tiles.rows, row), (self.tiles.columns, column)):
            if axes and number is not None:
                extents = tuple(self.form.parallel[a] for a in axes)
                place.update(zip(axes, ix.delinearize(number, extents), strict=True))
        return tuple(place.get(a, ix.lit(0)) for a in range(len(self.form.parallel)))

    def _out_index(self, p: Product, row: Expr, column: Expr) -> Index:
        """The element of a product in a row of the whole and a column of its own."""
        tags, out = self.tags[Value(p.node)], self.graph.type_of(Value(p.node))
        items = self._items(row)
        extents = tuple(out.shape[a] for a in p.columns)
        own = dict(zip(p.columns, ix.delinearize(column, extents), strict=True))
        return tuple(
            own[a] if a in own else items[t] if isinstance(t, int) else ix.lit(0)
            for a, t in enumerate(tags)
        )

    def _rows_of(self, first: Expr, whole: int, block: int) -> Expr:
        """How many of `whole` rows or columns a block has that starts at `first`."""
        if whole <= block or whole % block == 0:
            return ix.lit(min(whole, block))
        return Call("min", (ix.lit(block), ix.isub(ix.lit(whole), first)), DType.I64)

    # --- columns are parallel: tile by tile -------------------------------------------------------

    def _columnwise(self) -> None:
        """Every product of the block, and what follows it for each tile."""
        products = self.tiles.products
        lefts = {p.node: self._left(p) for p in products}
        terms = {p.terms for p in products}
        cut = self.s.term_block if len(terms) == 1 else 0
        scratch: dict[int, _Scratch] = {}
        stride = -(-self.width // LANES) * LANES
        if 0 < cut < max(terms):
            for p in products:
                scratch[p.node] = self._zeroed(p, stride)
        columns = self._extent(self.tiles.columns)
        with self._term_blocks(max(terms), cut) as (number, last):
            for panel in self._panels(self.first_column, columns, self.width):
                self._panel(panel, lefts, scratch, cut, number, last)

    def _panel(
        self, panel: _Span, lefts: dict[int, Matrix], scratch: dict[int, _Scratch], cut: int,
        number: Expr, last: Expr | None,
    ) -> None:  # fmt: skip
        """All rows of the block in one panel of columns."""
        products, column = self.tiles.products, ix.iadd(self.first_column, panel.first)
        rights = {p.node: self._right(p, column, panel.count, cut, number) for p in products}
        padded = -(-panel.count // LANES) * LANES
        for tile in self._row_tiles():
            places = dict(scratch)
            for p in products:
                fresh = p.node not in places
                if fresh:
                    buffer = self.e.local(self._dtype(p), tile.count * padded, "acc")
                    places[p.node] = _Scratch(buffer, padded)
                own = places[p.node]
                at = ix.lit(0) if fresh else self._place(own, tile.first, panel.first)
                target = Panel(own.buffer, at, own.stride)
                left = self._left_panel(lefts[p.node], tile, cut, number)
                self._multiply(p, tile, panel, target, left, rights[p.node], cut, number, fresh)
            with self._only(last):
                self._epilogue(tile, panel, places, scratch)

    def _epilogue(
        self, tile: _Span, panel: _Span, places: dict[int, _Scratch], shared: dict[int, _Scratch]
    ) -> None:
        """What follows the products of one tile, row by row, lanes over its columns."""
        row = self.e.open("r", tile.count)
        lane = self.e.open("l", panel.count)
        rows, columns = self._extent(self.tiles.rows), self._extent(self.tiles.columns)
        here = ix.iadd(tile.first, row)
        at_row = self.e.let_index(ix.iadd(self.first_row, here), "m", rows)
        at_column = ix.iadd(self.first_column, ix.iadd(panel.first, lane))
        at_column = self.e.let_index(at_column, "n", columns)
        items = self._items(at_row, at_column)
        frame = Frame(self.graph, self.e, dict(self.base.sources))
        for p in self.tiles.products:
            own = places[p.node]
            at = ix.iadd(ix.imul(row, own.stride), lane)
            if p.node in shared:
                at = ix.iadd(at, self._place(own, tile.first, panel.first))
            frame.sources[Value(p.node)] = self._element(p, own, at, items)
        for value in self.form.outputs:
            out = self.graph.type_of(value)
            index = tuple(items[t] for t in self.tags[value] if isinstance(t, int))
            element = narrow(frame.pull(value, index), out.dtype)
            self.e.store(self.targets[value], ix.linearize(index, out.shape), element)
        self.e.close("lane", lane, ix.lit(panel.count))
        self.e.close("serial", row, ix.lit(tile.count))

    def _element(self, p: Product, own: _Scratch, at: Expr, items: Index) -> ElementSource:
        tags, dtype = self.tags[Value(p.node)], self._dtype(p)

        def read(index: Index) -> Expr:
            if any(i != items[t] for i, t in zip(index, tags, strict=True) if isinstance(t, int)):
                raise LoweringError("a product is read at another item's index")
            return Load(own.buffer, at, dtype)

        return read

    # --- columns are local: whole rows in scratch -------------------------------------------------

    def _rowwise(self) -> None:
        """Products one after another, each for all rows of the block; then the rest, row by row."""
        done: dict[int, _Scratch] = {}
        for p in self.tiles.products:
            left = self._left(p, done)
            done[p.node] = self._whole_rows(p, left)
        with self._each_row() as (row, at_row):
            self._row_program(row, done).emit_row(self._items(at_row), self.s.stage)

    def _whole_rows(self, p: Product, left: Matrix) -> _Scratch:
        """All columns of a product for the rows of the block."""
        own = _Scratch("", -(-p.width // LANES) * LANES)
        cut = self.s.term_block if self.s.term_block < p.terms else 0
        fresh = not cut
        if fresh:
            own = replace(own, buffer=self.e.local(self._dtype(p), self.height * own.stride, "acc"))
        else:
            own = self._zeroed(p, own.stride)
        with self._term_blocks(p.terms, cut) as (number, _):
            for panel in self._panels(ix.lit(0), p.width, p.width):
                right = self._right(p, panel.first, panel.count, cut, number)
                for tile in self._row_tiles():
                    target = Panel(
                        own.buffer, self._place(own, tile.first, panel.first), own.stride
                    )
                    at = self._left_panel(left, tile, cut, number)
                    self._multiply(p, tile, panel, target, at, right, cut, number, fresh)
        return own

    @contextmanager
    def _each_row(self) -> Iterator[tuple[Sym, Expr]]:
        """A loop over the rows of the block: a row in the block, and in the whole."""
        rows = self._extent(self.tiles.rows)
        row = self.e.open("r", self.height)
        yield row, self.e.let_index(ix.iadd(self.first_row, row), "m", rows)
        self.e.close("serial", row, self._rows_of(self.first_row, rows, self.height))

    def _row_program(
        self, row: Sym, done: dict[int, _Scratch], value: Value | None = None,
        kept: tuple[str, Expr] | None = None,
    ) -> BlockPerRow:  # fmt: skip
        """What is to be done for one row given products: the outputs, or one value into scratch."""
        frame = Frame(self.graph, self.e, dict(self.base.sources))
        for p in self.tiles.products:
            if p.node in done:
                frame.sources[Value(p.node)] = self._row_element(p, done[p.node], row)
        outputs = self.form.outputs if value is None else (value,)
        tags = dict(self.tags)
        if value is not None:
            tags[value] = self._left_tags(value)
        nodes = _needed(self.graph, self.form.nodes, outputs, set(done))
        form = replace(
            self.form, kind="row", nodes=nodes, outputs=outputs, tags=tuple(sorted(tags.items()))
        )
        rows = {} if value is None or kept is None else {value: kept}
        return BlockPerRow(self.graph, form, self.e, frame, self.targets, rows)

    def _left_tags(self, value: Value) -> Tags:
        """The tags of a left operand: terms are local."""
        for p in self.tiles.products:
            node = self.graph[p.node]
            if node.inputs[p.left] == value:
                call, own = self.graph.call(p.node), self.tags[Value(p.node)]
                marks = tuple(symbol(f"t{a}", 1 << 20) for a in range(len(own)))
                at, _ = operand_at(call, p, marks, symbol("k", p.terms))
                names = dict(zip(marks, own, strict=True))
                return tuple(names.get(i, LOCAL) if isinstance(i, Sym) else LOCAL for i in at)
        raise AssertionError("not a left operand")

    def _row_element(self, p: Product, own: _Scratch, row: Sym) -> ElementSource:
        call, dtype = self.graph.call(p.node), self._dtype(p)

        def read(index: Index) -> Expr:
            at = ix.iadd(ix.imul(row, own.stride), column_number(call, p, index))
            return Load(own.buffer, at, dtype)

        return read

    # --- what both have in common -----------------------------------------------------------------

    def _dtype(self, p: Product) -> DType:
        return self.graph.type_of(Value(p.node)).dtype.compute

    def _place(self, own: _Scratch, row: Expr, column: Expr) -> Expr:
        return ix.iadd(ix.imul(row, own.stride), column)

    def _zeroed(self, p: Product, stride: int) -> _Scratch:
        """Sums that start from zero, because terms come in several blocks."""
        dtype = self._dtype(p)
        buffer = self.e.local(dtype, self.height * stride, "acc")
        lane = self.e.open("l", self.height * stride)
        self.e.store(buffer, lane, Lit(0.0, dtype))
        self.e.close("lane", lane, ix.lit(self.height * stride))
        return _Scratch(buffer, stride)

    @contextmanager
    def _term_blocks(self, terms: int, cut: int) -> Iterator[tuple[Expr, Expr | None]]:
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
    def _only(self, condition: Expr | None) -> Iterator[None]:
        """A body that runs where a condition holds (None: always)."""
        if condition is None:
            yield
            return
        var = self.e.open("w", 1)
        yield
        self.e.close("when", var, condition)

    def _spans(self, first: Expr, whole: int, block: int, step: int) -> Iterator[_Span]:
        """What a block of rows or columns that starts at `first` consists of: a loop over full
        steps, then what is left in the last block."""
        last = whole - (-(-whole // block) - 1) * block
        full, rest = (block if whole > block else last) // step, last % step
        count = self._rows_of(first, whole, block)
        if full:
            number = self.e.open("s", full)
            yield _Span(ix.imul(number, step), step)
            self.e.close("serial", number, ix.idiv(count, step))
        if rest:
            only = Call("lt", (count, ix.lit(block)), DType.BOOL) if whole > block else None
            with self._only(only):
                yield _Span(ix.lit(last - rest), rest)

    def _row_tiles(self) -> Iterator[_Span]:
        return self._spans(self.first_row, self._extent(self.tiles.rows), self.height, self.s.rows)

    def _panels(self, first: Expr, whole: int, block: int) -> Iterator[_Span]:
        return self._spans(first, whole, block, self.s.columns)

    def _terms(self, p: Product, cut: int, number: Expr) -> Expr:
        """Terms of the present block."""
        if not cut:
            return ix.lit(p.terms)
        return self._rows_of(ix.imul(number, cut), p.terms, cut)

    def _multiply(
        self, p: Product, tile: _Span, panel: _Span, target: Panel, left: Panel, right: _Right,
        cut: int, number: Expr, fresh: bool,
    ) -> None:  # fmt: skip
        terms, dtype = self._terms(p, cut, number), self._dtype(p)
        self.e.put(
            TileProduct(tile.count, right.width, terms, target, left, right.panel, dtype, fresh)
        )

    def _left(self, p: Product, done: dict[int, _Scratch] | None = None) -> Matrix:
        """The left operand as rows of the whole: where it lies, or computed into scratch."""
        call, value = self.graph.call(p.node), self.graph[p.node].inputs[p.left]
        rows = self._extent(self.tiles.rows)
        row, term = symbol("row", rows), symbol("term", p.terms)
        at, _ = operand_at(call, p, self._out_index(p, row, ix.lit(0)), term)
        known = {Value(node) for node in done or ()}
        found = None if value in known else matrix_of(self.base, value, at, row, term)
        if found is not None:
            start = ix.iadd(found.start, ix.imul(self.first_row, found.along))
            return replace(found, start=start)
        buffer = self.e.local(self._dtype(p), self.height * p.terms, "left")
        with self._each_row() as (inner, at_row):
            if self.tiles.columns:
                self._pack_row(p, buffer, inner, at_row)
            else:
                place = (buffer, ix.imul(inner, p.terms))
                program = self._row_program(inner, done or {}, value, place)
                program.emit_row(self._items(at_row), self.s.stage)
        return Matrix(buffer, ix.lit(0), p.terms, 1)

    def _pack_row(self, p: Product, buffer: str, inner: Sym, at_row: Expr) -> None:
        """One row of a left operand that is computed element by element."""
        call, value = self.graph.call(p.node), self.graph[p.node].inputs[p.left]
        frame = Frame(self.graph, self.e, dict(self.base.sources))
        lane = self.e.open("l", p.terms)
        at, _ = operand_at(call, p, self._out_index(p, at_row, ix.lit(0)), lane)
        self.e.store(buffer, ix.iadd(ix.imul(inner, p.terms), lane), frame.pull(value, at))
        self.e.close("lane", lane, ix.lit(p.terms))

    def _left_panel(self, left: Matrix, tile: _Span, cut: int, number: Expr) -> Panel:
        at = ix.iadd(left.start, ix.imul(tile.first, left.along))
        at = ix.iadd(at, ix.imul(ix.imul(number, cut), left.term))
        return Panel(left.buffer, at, left.along, left.term)

    def _right(self, p: Product, column: Expr, count: int, cut: int, number: Expr) -> _Right:
        """The right operand of one panel: as it lies, or packed, the last one filled up."""
        call, value = self.graph.call(p.node), self.graph[p.node].inputs[p.right]
        if not self.s.pack and count == self.s.columns:
            width = symbol("column", p.width)
            term = symbol("term", p.terms)
            _, at = operand_at(call, p, self._out_index(p, ix.lit(0), width), term)
            found = matrix_of(self.base, value, at, width, term)
            if found is not None and found.along == 1:
                start = ix.iadd(found.start, column)
                start = ix.iadd(start, ix.imul(ix.imul(number, cut), found.term))
                return _Right(Panel(found.buffer, start, found.term), count)
        return self._packed(p, value, column, count, cut, number)

    def _packed(
        self, p: Product, value: Value, column: Expr, count: int, cut: int, number: Expr
    ) -> _Right:
        call, dtype = self.graph.call(p.node), self._dtype(p)
        padded = -(-count // LANES) * LANES
        buffer = self.e.local(dtype, (cut or p.terms) * padded, "panel")
        frame = Frame(self.graph, self.e, dict(self.base.sources))
        step = self.e.open("k", cut or p.terms)
        term = self.e.let_index(ix.iadd(ix.imul(number, cut), step), "t", p.terms)
        lane = self.e.open("l", count)
        place = self.e.let_index(ix.iadd(column, lane), "n", p.width)
        _, at = operand_at(call, p, self._out_index(p, ix.lit(0), place), term)
        start = ix.imul(step, padded)
        self.e.store(buffer, ix.iadd(start, lane), frame.pull(value, at))
        self.e.close("lane", lane, ix.lit(count))
        if padded > count:
            lane = self.e.open("l", padded - count)
            self.e.store(buffer, ix.iadd(start, ix.iadd(lane, ix.lit(count))), Lit(0.0, dtype))
            self.e.close("lane", lane, ix.lit(padded - count))
        self.e.close("serial", step, self._terms(p, cut, number))
        return _Right(Panel(buffer, ix.lit(0), padded), padded)


def _needed(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...], done: set[int]
) -> tuple[int, ...]:
    """Nodes of a group that some values depend on, not through what is done."""
    inside, found = set(nodes) - done, set[int]()
    stack = [v.node for v in outputs]
    while stack:
        n = stack.pop()
        if n in inside and n not in found:
            found.add(n)
            stack += [v.node for v in graph[n].inputs]
    return tuple(sorted(found))
