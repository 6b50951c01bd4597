"""What is kept of each row while the columns of its products come in blocks: running totals, and
the factors that bring them up to date when an extremum has moved (`plan/schedules/online.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce

from autofuse.graph.types import Value
from autofuse.kernel.elements.values import ElementSource, Frame, everywhere, through
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.online_steps import OnlineStep
from autofuse.kernel.tiles.parts import Scratch, TileRun
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Load, Sym, call
from autofuse.ops.spec import Fold
from autofuse.plan.program.packing import padded
from autofuse.plan.schedules.online import Online, OnlineFold
from autofuse.plan.schedules.separable import identity, neutral
from autofuse.plan.schedules.tiles import Contraction


def lanes(count: int) -> int:
    """A bound of the number of a lane under which one of a single lane still counts as a variable:
    what differs between lanes keeps its place among the statements of a loop."""
    return max(count, 2)


class Running:
    """Totals of the rows of a block: `state` has the accumulators of each reduction, `sums` the
    rows of each product. An extremum that others depend on is never infinite to them: what it is
    the extremum of is then all the same, and adds nothing."""

    def __init__(self, b: TileBlock, online: Online, products: Mapping[int, Contraction]) -> None:
        self.b, self.e, self.online = b, b.e, online
        self.products = products
        self.anchors = sorted({a for fold in online.folds for a in fold.anchors})
        self.sums = {
            f.node: self._zeroed(products[f.node]) for f in online.folds if f.node in products
        }
        self.state = {f.node: self._begun(f.node) for f in online.folds if f.node not in products}
        self.before = {a: self._per_row(self._accumulators(a)[0].dtype) for a in self.anchors}
        self.factors = {
            f.operand: self._per_row(self._dtype(f.operand)) for f in online.folds if f.anchors
        }

    def _zeroed(self, p: Contraction) -> Scratch:
        return self.b.zeroed(p, padded(p.width))

    @contextmanager
    def over_rows(self, first: Expr, most: int, count: Expr) -> Iterator[Expr]:
        """A loop over rows of the block (at most `most`): the place of the numbers of each."""
        lane = self.e.open("l", most)
        yield ix.iadd(first, lane)
        self.e.close("lane", lane, count)

    def row_of(self, place: Expr) -> Expr:
        """The row of the whole whose numbers have a place."""
        return self.e.let_index(ix.iadd(self.b.first_row, place), "m", self.b.rows)

    def _dtype(self, value: Value) -> DType:
        return self.b.graph.type_of(value).dtype.compute

    def _per_row(self, dtype: DType) -> str:
        return self.e.local(dtype, padded(self.b.height), "each")

    def _accumulators(self, n: int) -> tuple[Expr, ...]:
        return self._fold(n).init(self.b.graph.call(n))

    def _fold(self, n: int) -> Fold:
        fold = self.b.graph[n].spec.fold
        assert fold is not None
        return fold

    def _begun(self, n: int) -> tuple[tuple[str, DType], ...]:
        """Accumulators of nothing for all rows."""
        made: list[tuple[str, DType]] = []
        for start in self._accumulators(n):
            buffer = self._per_row(start.dtype)
            with self.over_rows(ix.lit(0), self.b.height, ix.lit(self.b.height)) as row:
                self.e.store(buffer, row, start)
            made.append((buffer, start.dtype))
        return tuple(made)

    def frame(self, sources: Mapping[Value, ElementSource]) -> Frame:
        """The group where some values are given, and scalings are left for later."""
        frame = Frame(self.b.graph, self.e, {**self.b.base.sources, **sources})
        for scaling in (s for f in self.online.folds for s in f.due):
            frame.sources[Value(scaling.node)] = through(frame, scaling.scaled)
        return frame

    def extrema(self, row: Expr) -> dict[Value, ElementSource]:
        """The extrema that others depend on, as those see them."""
        return {Value(a): everywhere(self._seen(a, self._now(a, row))) for a in self.anchors}

    def _now(self, a: int, row: Expr) -> Expr:
        ((buffer, dtype),) = self.state[a]
        return self._read(buffer, row, dtype)

    def _read(self, buffer: str, row: Expr, dtype: DType) -> Sym:
        """What changes from block to block, here and now."""
        return self.e.bind(Load(buffer, row, dtype))

    def _seen(self, a: int, value: Expr) -> Expr:
        zero = Lit(0.0, value.dtype)
        return self.e.let(call("select", self._is_empty(a, value), zero, value))

    def _is_empty(self, a: int, value: Expr) -> Expr:
        return call("eq", value, identity(self.b.graph, a))

    def fold(
        self, fold: OnlineFold, row: Expr, element: Callable[[Sym], tuple[Expr, Expr]],
        count: Expr, most: int,
    ) -> None:  # fmt: skip
        """`count` more columns (at most `most`), inside a loop over lanes: `element` is what is
        folded at a column of the block, and which column of the whole that is."""
        own, node_call = self._fold(fold.node), self.b.graph.call(fold.node)
        with self._total_of_block(fold, row) as registers:
            step = self.e.open("c", most)
            new = own.combine(registers, own.lift(node_call, *element(step)))
            self._assign(registers, new)
            self.e.close("serial", step, count)

    @contextmanager
    def _total_of_block(self, fold: OnlineFold, row: Expr) -> Iterator[tuple[Sym, ...]]:
        """Registers that begin with the total of nothing; in the end they are added to the row's.
        A block has totals of its own, so that long sums err less."""
        n, e = fold.node, self.e
        own = self._fold(n)
        old: tuple[Expr, ...] = tuple(
            self._read(buffer, row, dtype) for buffer, dtype in self.state[n]
        )
        if n in self.before:
            e.store(self.before[n], row, old[0])
        registers = tuple(e.variable(start) for start in self._accumulators(n))
        yield registers
        if fold.anchors:
            old = (call("mul", old[0], self._factor(fold, row)),)
        self._assign(registers, own.combine(old, registers))
        for (buffer, _), register in zip(self.state[n], registers, strict=True):
            e.store(buffer, row, e.bind(register))

    def _assign(self, registers: tuple[Sym, ...], new: tuple[Expr, ...]) -> None:
        """Bound before any assignment: accumulators may depend on each other."""
        values = [self.e.bind(v) for v in new] if len(registers) > 1 else list(new)
        for register, value in zip(registers, values, strict=True):
            self.e.assign(register, value)

    def _factor(self, fold: OnlineFold, row: Expr) -> Expr:
        return self._read(self.factors[fold.operand], row, self._dtype(fold.operand))

    def follow(
        self, steps: Iterable[OnlineStep], made: Mapping[Value, str], run: TileRun,
        multiply: Callable[[OnlineFold, Mapping[Value, str]], None],
        compute: Callable[[OnlineStep, Mapping[Value, str]], None],
    ) -> None:  # fmt: skip
        """What is done with a block of columns before the next one, for a run of rows: products
        `multiply`, any other step is what to `compute`; each is given the buffers of the values
        that are kept of the block, at first those that are `made`."""
        where, compared = dict(made), set[Value]()
        for step in steps:
            fold = step.fold
            if fold is not None and fold.anchors and fold.operand not in compared:
                self.compare(fold, run)
                self.scale(fold.operand, run)
                compared.add(fold.operand)
            if fold is not None and fold.node in self.products:
                multiply(fold, where)
            else:
                compute(step, where)
            if step.kept:
                where = {v: name for v, name in where.items() if name != step.kept}
                where[step.value] = step.kept

    def compare(self, fold: OnlineFold, run: TileRun) -> None:
        """The factors of a run of rows whose extrema may have moved."""
        with self.over_rows(run.first, lanes(run.count), ix.lit(run.count)) as row:
            old: dict[int, Expr] = {}
            now: dict[int, Expr] = {}
            still: list[Expr] = []
            empty: list[Expr] = []
            for a in fold.anchors:
                was = self._read(self.before[a], row, self._accumulators(a)[0].dtype)
                true = self._now(a, row)
                still.append(call("eq", was, true))
                empty.append(self._is_empty(a, was))
                old[a], now[a] = self._seen(a, was), self._seen(a, true)
            same = _joined("or", (*empty, _joined("and", still)))
            ratio = self._ratio(fold, row, now, old)
            factor = call("select", same, Lit(1.0, ratio.dtype), ratio)
            self.e.store(self.factors[fold.operand], row, factor)

    def _ratio(
        self, fold: OnlineFold, row: Expr, new: Mapping[int, Expr], old: Mapping[int, Expr]
    ) -> Expr:
        """How a term changes when extrema do, seen at a term that is about as large as they
        were."""
        graph = self.b.graph
        fixed = {v: everywhere(neutral(graph, v)) for v in fold.frontier}
        fixed |= {graph[a].inputs[0]: everywhere(value) for a, value in old.items()}
        index = self.b.out_index(self.online.sources[0], self.row_of(row), ix.lit(0))

        def at(extrema: Mapping[int, Expr]) -> Expr:
            given = {Value(a): everywhere(value) for a, value in extrema.items()}
            return self._framed({**fixed, **given}, fold).pull(fold.operand, index)

        return at(new) if fold.unit else call("div", at(new), at(old))

    def _framed(self, sources: Mapping[Value, ElementSource], fold: OnlineFold) -> Frame:
        """The frame that a term of a fold is computed in where its extrema are given."""
        return self.frame(sources)

    def scale(self, operand: Value, rows: TileRun | None) -> None:
        """Rows of products brought up to date, of a run of rows or of all."""
        e, b = self.e, self.b
        numbers = [f.node for f in self.online.folds if f.operand == operand]
        numbers = [n for n in numbers if n in self.sums]
        if not numbers:
            return
        step = e.open("r", b.height if rows is None else rows.count)
        row = step if rows is None else ix.iadd(rows.first, step)
        factor = self._read(self.factors[operand], row, self._dtype(operand))
        with b.only(call("ne", factor, Lit(1.0, factor.dtype))):
            for n in numbers:
                width, own, dtype = self.products[n].width, self.sums[n], b.dtype(self.products[n])
                lane = e.open("l", width)
                at = b.place(own, row, lane)
                e.store(own.buffer, at, call("mul", Load(own.buffer, at, dtype), factor))
                e.close("lane", lane, ix.lit(width))
        e.close("serial", step, self._all_rows() if rows is None else ix.lit(rows.count))

    def _all_rows(self) -> Expr:
        return self.b.count_of(self.b.first_row, self.b.rows, self.b.height)

    def finish(self) -> dict[Value, str]:
        """One total a row of each reduction, when all columns have been folded."""
        for operand in dict.fromkeys(f.operand for f in self.online.folds if f.anchors):
            self._mend([f for f in self.online.folds if f.operand == operand])
        return {Value(n): self._total(n) for n in self.state}

    def _mend(self, folds: list[OnlineFold]) -> None:
        """Rows of which an extremum is still infinite: what others were given instead of it is put
        right, so that they are what they are without blocks, not a number in most cases."""
        first, e = folds[0], self.e
        with self.over_rows(ix.lit(0), self.b.height, self._all_rows()) as row:
            true = {a: self._now(a, row) for a in first.anchors}
            seen = {a: self._seen(a, value) for a, value in true.items()}
            empty = _joined("or", [self._is_empty(a, true[a]) for a in first.anchors])
            ratio = self._ratio(first, row, true, seen)
            factor = e.let(call("select", empty, ratio, Lit(1.0, ratio.dtype)))
            e.store(self.factors[first.operand], row, factor)
            for fold in folds:
                for buffer, dtype in self.state.get(fold.node, ()):
                    e.store(buffer, row, call("mul", Load(buffer, row, dtype), factor))
        self.scale(first.operand, None)

    def _total(self, n: int) -> str:
        buffers, node_call = self.state[n], self.b.graph.call(n)
        if self._fold(n).operator is not None:
            return buffers[0][0]
        made = self._per_row(node_call.out.dtype.compute)
        with self.over_rows(ix.lit(0), self.b.height, self._all_rows()) as row:
            found = self._fold(n).finish(node_call, tuple(Load(x, row, t) for x, t in buffers))
            self.e.store(made, row, found)
        return made


def _joined(fn: str, tests: Iterable[Expr]) -> Expr:
    return reduce(lambda a, b: call(fn, a, b), tests)
