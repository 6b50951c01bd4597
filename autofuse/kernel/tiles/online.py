"""Tile form of one pass: columns of products come in blocks, and what is folded of them goes on
from block to block (`running.py`).

Blocks are turned: a column of the product is a row of scratch, so that lanes are rows of the whole.
Folds over columns then need no total across lanes, the operand that has the columns is read as it
lies, and the other one is packed once for a block of rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import everywhere
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.online_steps import OnlineStep, online_reach, steps_of
from autofuse.kernel.tiles.operands import (
    left_in_memory,
    lying_right,
    packed_left,
    right_matrix,
    right_panel,
)
from autofuse.kernel.tiles.parts import TermBlock, TileRun, covering
from autofuse.kernel.tiles.rows import KeptRows, emit_rest
from autofuse.kernel.tiles.running import Running, lanes
from autofuse.kernel.tiles.staging import Lines, TileOperand, stage, stage_along
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym
from autofuse.ops.spec import Motion
from autofuse.plan.program.packing import padded
from autofuse.plan.schedules.forms import Tags
from autofuse.plan.schedules.online import Online, OnlineFold
from autofuse.plan.schedules.tiles import Contraction, even_parts

# Columns of a block where nothing is said and whole rows are too long.
COLUMNS = 128


@dataclass(frozen=True, slots=True)
class _Columns:
    """A block of columns: its number, the first of them, and how many they are."""

    number: Expr
    first: Expr
    count: Expr


def emit_online(b: TileBlock, online: Online) -> None:
    """The work of one block of rows."""
    _OnePass(b, online).emit()


class _OnePass:
    def __init__(self, b: TileBlock, online: Online) -> None:
        self.b, self.e, self.graph, self.online = b, b.e, b.graph, online
        self.width = online.sources[0].width
        # Columns of a tile, and rows of a run, which are its lanes.
        self.step = step = b.s.columns if b.s.dot else b.s.rows
        self.most = (
            min(max((b.s.column_block or COLUMNS) // step, 1), -(-self.width // step)) * step
        )
        self.stride = b.s.rows if b.s.dot else padded(b.s.columns)
        self.products = {p.node: p for p in b.tiles.products}
        self.reach = online_reach(b, online)

    def emit(self) -> None:
        b, e = self.b, self.e
        self.running = Running(b, self.online, self.products)
        lefts = {p.node: self._left(p) for p in self.online.sources}
        size = self.most * self.stride
        made, steps = steps_of(b, self.online, lambda dtype: e.local(dtype, size, "block"))
        beside = self._beside()
        needed = self._needed()
        number = e.open("q", -(-self.width // self.most))
        first = ix.imul(number, self.most)
        count: Expr = ix.lit(self.most)
        if needed != ix.lit(self.width) or self.width % self.most:
            left = ix.isub(needed, first)
            count = e.let_index(Call("min", (count, left), DType.I64), "n", self.most + 1)
        at = _Columns(number, first, count)
        rights = {p.node: self._columns(p, at) for p in self.online.sources}
        for run in self._runs():
            some = self._reached_columns(run, at)
            for p in self.online.sources:
                self._source(p, run, some, lefts[p.node], rights[p.node], made[Value(p.node)])
            self._copy_beside(run, some, beside)
            self.running.follow(
                steps, {**made, **beside}, run, partial(self._sink, run, some),
                partial(self._fold, run, some),
            )  # fmt: skip
        e.close("serial", number, covering(needed, self.most))
        done = KeptRows(products=dict(self.running.sums), totals=self.running.finish())
        done.due = {f.node: f.due for f in self.online.folds if f.node in self.products}
        emit_rest(b, done)

    # --- operands ---

    def _runs(self) -> Iterator[TileRun]:
        b = self.b
        return b.row_tiles() if b.s.dot else b.panels(b.first_row, b.rows, b.height)

    def _left(self, p: Contraction) -> Panel:
        """The operand that has the rows: in panels of rows side by side, or row by row where
        vectors run along terms."""
        b = self.b
        if not b.s.dot:
            return Panel(self._turned_left(p), ix.lit(0), 1)
        found = left_in_memory(b, p)
        return found if found is not None and found.inner == 1 else packed_left(b, p)

    def _turned_left(self, p: Contraction) -> str:
        b, o = self.b, TileOperand(self.b, p, p.left, self.b.dtype(p))
        made = self.e.local(o.dtype, p.terms * padded(b.height), "turned")
        for run in b.panels(b.first_row, b.rows, b.height):
            panel = Panel(made, ix.imul(run.first, p.terms), self._lanes(run))
            stage(o, [Lines(ix.iadd(b.first_row, run.first), run.count, panel)])
        return made

    def _lanes(self, run: TileRun) -> int:
        """Columns of a tile for a run of rows."""
        return run.count if run.count == self.b.s.columns else padded(run.count)

    def _end(self, run: TileRun) -> Expr:
        """The first row behind a run."""
        return ix.iadd(self.b.first_row, ix.iadd(run.first, ix.lit(run.count)))

    def _needed(self) -> Expr:
        """How many columns the rows of the block need: in whole tiles, or all."""
        if self.reach is None:
            return ix.lit(self.width)
        tiles = ix.imul(covering(self.reach.columns(self.b.end), self.step), self.step)
        return self.e.let_index(ix.iclamp(tiles, 1, self.width), "e", self.width + 1)

    def _reached_columns(self, run: TileRun, at: _Columns) -> _Columns:
        """Columns of a block that some row of a run needs, in whole tiles or all."""
        if self.reach is None or run.count >= self.b.height:
            return at
        tiles = ix.imul(covering(self.reach.beyond(self._end(run), at.first), self.step), self.step)
        count = self.e.let_index(Call("min", (tiles, at.count), DType.I64), "n", self.most + 1)
        return _Columns(at.number, at.first, count)

    def _columns(self, p: Contraction, at: _Columns) -> Panel:
        """The operand that has the columns, from the first of the block on: as it lies if the terms
        of a column are neighbours, else in scratch."""
        b = self.b
        found = right_matrix(b, p)
        if found is not None and (found.inner == 1 or b.instruction(p)):
            return found.moved(at.first, ix.lit(0))
        made = b.e.local(b.dtype(p), self.most * p.terms, "side")
        # Lanes run along what is next to each other.
        along_terms = found is None or found.outer != 1 or b.s.dot
        panel = Panel(made, ix.lit(0), *((1, p.terms) if along_terms else (self.most, 1)))
        lines = Lines(at.first, self.most, panel, at.count, filled=False)
        o = TileOperand(b, p, p.right, b.dtype(p))
        (stage_along if along_terms else stage)(o, [lines])
        return panel.turned()

    def _beside(self) -> dict[Value, str]:
        """Scratch for values of every row and column that lie in memory, rows apart: lanes, which
        are rows, would find each in a line of its own."""
        found: dict[Value, str] = {}
        tags = self.b.tags[Value(self.online.sources[0].node)]
        sources = {Value(p.node) for p in self.online.sources}
        for value in sorted(self.online.block - sources):
            for v in self.graph[value.node].inputs:
                if v not in self.online.block and v not in found and self._lies(v, tags):
                    dtype = self.graph.type_of(v).dtype.compute
                    found[v] = self.e.local(dtype, self.most * self.stride, "beside")
        return found

    def _lies(self, value: Value, tags: Tags) -> bool:
        """Whether a value has an element in memory for every row and column."""
        node, axes = self.graph[value.node], range(len(tags))
        mapping: tuple[int | None, ...] = tuple(axes)
        if self.graph.type_of(value).rank != len(tags):
            return False
        if node.spec.motion is Motion.REPEAT and node.spec.axes is not None:
            (mapping,) = node.spec.axes(self.graph.call(value.node))
            value = node.inputs[0]
        ours = [a for a, t in enumerate(tags) if not isinstance(t, int) or t in self.b.tiles.rows]
        inside = value.node in self.b.form.nodes or value not in self.b.base.sources
        return not inside and all(mapping[a] is not None for a in ours)

    def _copy_beside(self, run: TileRun, at: _Columns, beside: Mapping[Value, str]) -> None:
        b, e = self.b, self.e
        for value, buffer in beside.items():
            step = e.open("r", run.count)
            at_row, frame = self.running.row_of(ix.iadd(run.first, step)), b.base.fresh()
            lane = e.open("l", self.most)
            whole = e.let_index(ix.iadd(at.first, lane), "n", self.width)
            element = frame.pull(value, b.out_index(self.online.sources[0], at_row, whole))
            e.store(buffer, ix.iadd(ix.imul(lane, self.stride), step), element)
            e.close("lane", lane, at.count)
            e.close("serial", step, ix.lit(run.count))

    # --- one block of columns for a run of rows ---

    def _source(
        self, p: Contraction, run: TileRun, at: _Columns, left: Panel, right: Panel, made: str
    ) -> None:
        """A block of a product, turned."""
        dtype, mma = self.b.factor_dtype(p), self.b.instruction(p)
        if self.b.s.dot:
            wide, start = run.count, ix.iadd(left.start, ix.imul(run.first, left.outer))
            rows = Panel(left.buffer, start, 1, left.outer)
        else:
            wide = self._lanes(run)
            rows = Panel(left.buffer, ix.imul(run.first, p.terms), wide)
        for tile in self._column_tiles(at):
            place = ix.iadd(right.start, ix.imul(tile.first, right.outer))
            target = Panel(made, ix.imul(tile.first, self.stride), self.stride)
            self.e.put(
                TileProduct(
                    tile.count, wide, ix.lit(p.terms), target, replace(right, start=place), rows,
                    dtype, fresh=True, mma=mma,
                )
            )  # fmt: skip

    def _column_tiles(self, at: _Columns) -> Iterator[TileRun]:
        """Full tiles, and in the last block what is left."""
        step, rest = self.step, self.width % self.step
        number = self.e.open("s", self.most // step)
        yield TileRun(ix.imul(number, step), step)
        self.e.close("serial", number, ix.idiv(at.count, step))
        if rest:
            last = Call("eq", (ix.iadd(at.first, at.count), ix.lit(self.width)), DType.BOOL)
            with self.b.only(last):
                yield TileRun(ix.isub(at.count, ix.lit(rest)), rest)

    def _fold(
        self, run: TileRun, at: _Columns, step: OnlineStep, where: Mapping[Value, str]
    ) -> None:
        """One loop over the block: lanes are rows, columns come one after another."""
        e, b, p = self.e, self.b, self.online.sources[0]
        lane = e.open("l", lanes(run.count))
        row = ix.iadd(run.first, lane)
        at_row = self.running.row_of(row)
        frame = self.running.frame(self.running.extrema(row))

        def element(column: Sym) -> tuple[Expr, Expr]:
            place = ix.iadd(ix.imul(column, self.stride), lane)
            for value, buffer in where.items():
                dtype = b.graph.type_of(value).dtype.compute
                frame.sources[value] = everywhere(e.bind(Load(buffer, place, dtype)))
            whole = e.let_index(ix.iadd(at.first, column), "n", self.width)
            found = frame.pull(step.value, b.out_index(p, at_row, whole))
            if step.kept:
                e.store(step.kept, place, found)
            return found, whole

        if step.fold is not None:
            self.running.fold(step.fold, row, element, at.count, self.most)
        else:
            column = e.open("c", self.most)
            element(column)
            e.close("serial", column, at.count)
        e.close("lane", lane, ix.lit(run.count))

    def _sink(
        self, run: TileRun, at: _Columns, fold: OnlineFold, where: Mapping[Value, str]
    ) -> None:
        """A product that has the columns as its terms goes on by one block of them."""
        b, p, own = self.b, self.products[fold.node], self.running.sums[fold.node]
        block = TermBlock(self.most, at.number)
        for panel in self._panels(p):
            lying = None if b.s.pack or p.node in b.packed else lying_right(
                b, p, panel.first, panel.count, block
            )  # fmt: skip
            right = lying or right_panel(b, p, panel.first, panel.count, block)
            for tile in self._row_tiles(run):
                target = Panel(own.buffer, b.place(own, tile.first, panel.first), own.stride)
                inside = ix.isub(tile.first, run.first)
                rows = Panel(where[fold.operand], inside, 1, self.stride)
                terms = self._terms(tile, at)
                b.e.put(
                    TileProduct(
                        tile.count, right.width, terms, target, rows, right.panel,
                        b.factor_dtype(p), fresh=False, mma=b.instruction(p),
                    )
                )  # fmt: skip

    def _panels(self, p: Contraction) -> Iterator[TileRun]:
        """Columns of a later product: in vectors as many as a tile along terms has sums of."""
        b = self.b
        wide = b.s.columns * b.s.vector_bits // (8 * b.dtype(p).itemsize) if b.s.dot else None
        return b.panels(ix.lit(0), p.width, p.width, wide)

    def _row_tiles(self, run: TileRun) -> Iterator[TileRun]:
        """Tiles of almost equal height: one of few rows would wait for its own sums."""
        first = run.first
        for height, count in even_parts(run.count, self.b.s.rows):
            number = self.e.open("s", count)
            yield TileRun(ix.iadd(first, ix.imul(number, height)), height)
            self.e.close("serial", number, ix.lit(count))
            first = ix.iadd(first, ix.lit(height * count))

    def _terms(self, tile: TileRun, at: _Columns) -> Expr:
        """Columns of the block that some row of a tile needs."""
        if self.reach is None:
            return at.count
        inside = self.reach.beyond(self._end(tile), at.first)
        return Call("min", (inside, at.count), DType.I64)
