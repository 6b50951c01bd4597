"""Tile form of one pass whose columns stay in registers: a warp has rows of its own, and a block
of columns of them is a fragment. What is folded of it goes on in registers too
(`running_fragments.py`), and the fragment is the left operand of the products whose terms it has.

Operands that have columns go through a ring of stages in shared memory, one panel after another as
they are multiplied: while one is multiplied the next ones are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from autofuse.graph.types import Value
from autofuse.kernel import fragments
from autofuse.kernel.emit import LoweringError, narrow
from autofuse.kernel.fragment_ir import Arrival, Fetch, FragmentProduct, StagedPanel
from autofuse.kernel.fragments import HIGH, PAIR, ROW_LANES, WARP, Lane
from autofuse.kernel.ir import Panel
from autofuse.kernel.online_steps import OnlineStep, steps_of
from autofuse.kernel.panels import matrix_of, symbol
from autofuse.kernel.powers import Terms, as_power, replaced
from autofuse.kernel.running_fragments import RunningFragments
from autofuse.kernel.tile_block import TileBlock
from autofuse.kernel.tile_parts import TileRun
from autofuse.kernel.tile_rows import KeptRows, frame_of_row, only_at, rescaled
from autofuse.kernel.values import everywhere, through
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, call
from autofuse.plan.forms import join, local_shape
from autofuse.plan.masks import reach_of
from autofuse.plan.online import Online
from autofuse.plan.parameters import BLOCK_THREADS, STAGES, STRICT_MMA
from autofuse.plan.separable import EXTREMA
from autofuse.plan.tiles import Contraction
from autofuse.plan.types import LaunchConfig

# Columns of a block where nothing is said.
COLUMNS = 64
# Stages of the ring: one that is multiplied, and one that is on its way.
LEAST_STAGES = 2
# Sums of a thread from which there are few registers for anything else.
TIGHT = 160
NO_PANEL = "an operand is no matrix in memory"


@dataclass(frozen=True, slots=True)
class _Turn:
    """A panel that every block of columns has: the product, where its columns (or terms) start in
    memory, and how far it is from one of them to the next."""

    product: Contraction
    panel: Panel
    step: int


@dataclass(frozen=True, slots=True)
class _Columns:
    """Of blocks of columns: whether some may not be there (`checked`), and values that are others
    as they are."""

    checked: bool
    same: Mapping[Value, Value]


def emit_fragments(b: TileBlock, online: Online, launch: LaunchConfig) -> None:
    """The work of one block of rows. Raises LoweringError where rows, operands or results are none
    that warps can have in registers."""
    _Fragments(b, online, launch).emit()


class _Fragments:
    def __init__(self, b: TileBlock, online: Online, launch: LaunchConfig) -> None:
        self.b, self.e, self.graph, self.online = b, b.e, b.graph, online
        self.threads = BLOCK_THREADS.of(launch)
        self.rows, rest = divmod(b.height, max(1, self.threads // WARP))
        self.wide, self.width = b.s.column_block or COLUMNS, online.sources[0].width
        if rest or self.rows % HIGH or self.wide % PAIR:
            raise LoweringError(f"{self.threads} threads share no {b.height}x{self.wide} in whole")
        self.stages = max(LEAST_STAGES, STAGES.of(launch))
        self.products = {p.node: p for p in b.tiles.products}
        self.sinks = [self.products[f.node] for f in online.folds if f.node in self.products]
        kinds = {b.instruction(p) for p in b.tiles.products}
        types = {b.factor_dtype(p) for p in b.tiles.products}
        if len(kinds) > 1 or "" in kinds or len(types) > 1:
            raise LoweringError("tensor cores multiply no such factors in registers")
        (self.mma,) = kinds
        (self.dtype,) = types
        # The Local that panels go through, and elements of each of its stages.
        self.stage, self.slot = "", 0
        reach = reach_of(b.graph, b.form, b.tiles, online.sources[0])
        self.offset = reach.offset if reach is not None and len(online.sources) == 1 else None
        # Of f32 in two parts nothing is to be rounded more than by a library's function.
        self.powers = self.mma != STRICT_MMA
        # What masks let through in blocks that lie wholly before their last columns.
        self.same = dict(reach.same) if reach is not None and self.offset is not None else {}

    def emit(self) -> None:
        b, e = self.b, self.e
        # The last rows of a causal mask have most to do: they come first.
        if self.offset is not None and b.rows > b.height:
            b.first_row = ix.isub(ix.lit((-(-b.rows // b.height) - 1) * b.height), b.first_row)
        self.turns = [*map(self._columns, self.online.sources), *map(self._terms, self.sinks)]
        self.slot = max(self._size(self._staged(k, ix.lit(0))) for k in range(len(self.turns)))
        first: int = self.slot * self.stages
        lefts: dict[int, StagedPanel] = {}
        for p in self.online.sources:
            lefts[p.node] = self._left(p, ix.lit(first))
            first += self._size(lefts[p.node])
        self.stage = e.local(self.dtype, first, "stage")
        lefts = {n: replace(p, stage=self.stage) for n, p in lefts.items()}
        self.blocks = self._blocks()
        thread = e.open("thread", self.threads)
        self._thread(thread, lefts)
        e.close("threads", thread, ix.lit(self.threads))

    def _thread(self, thread: Expr, lefts: Mapping[int, StagedPanel]) -> None:
        b, e = self.b, self.e
        top = ix.imul(ix.idiv(thread, WARP), self.rows)
        self.lane = Lane(
            e.let_index(ix.imod(thread, WARP), "l", WARP), e.let_index(top, "w", b.height)
        )
        for left in lefts.values():
            e.put(Fetch(left, Lit(True, DType.BOOL)))
        for k in range(self.stages - 1):
            self._fetch(ix.lit(0), k)
        self.running = RunningFragments(
            b, self.online, self.products, self.lane, self.rows, self.powers
        )
        whole = self._whole_blocks()
        if whole != ix.lit(0):
            self._run(lefts, ix.lit(0), whole, _Columns(False, self.same))
        if whole != self.blocks:
            self._run(lefts, whole, ix.isub(self.blocks, whole), _Columns(True, {}))
        # The stages may be filled for another block of rows.
        e.put(Arrival(0))
        done = KeptRows(totals=self.running.finish())
        done.due = {f.node: f.due for f in self.online.folds if f.node in self.products}
        self._results(done)

    def _run(
        self, lefts: Mapping[int, StagedPanel], first: Expr, count: Expr, columns: _Columns
    ) -> None:
        """So many blocks of columns from the `first` on, all alike."""
        b, e, most = self.b, self.e, -(-self.width // self.wide)
        size = fragments.size(self.rows, self.wide)
        made, steps = steps_of(
            b, self.online, lambda dtype: e.local(dtype, size, "block", private=True), columns.same
        )
        turn = e.open("q", most)
        number = turn if first == ix.lit(0) else e.let_index(ix.iadd(first, turn), "q", most)
        for k, p in enumerate(self.online.sources):
            self._arrive(number, k)
            self._multiply(made[Value(p.node)], self.wide, lefts[p.node], number, k, fresh=True)
        self._follow(number, made, steps, columns)
        e.close("serial", turn, count)

    def _whole_blocks(self) -> Expr:
        """Blocks, the first ones, of whose columns all are there for every row of this one, and are
        let through by a mask if they are by any."""
        full = self.width // self.wide
        if not self.same:
            return (
                self.blocks
                if self.width % self.wide == 0
                else ix.lit(full if self.offset is None else 0)
            )
        assert self.offset is not None
        last = ix.iclamp(ix.iadd(self.b.first_row, ix.lit(self.offset + 1)), 0, self.width)
        return self.e.let_index(ix.idiv(last, self.wide), "f", full + 1)

    # --- panels -----------------------------------------------------------------------------------

    @property
    def wide_factors(self) -> bool:
        """Whether factors have 32 bits."""
        return self.dtype.itemsize == DType.F32.itemsize

    def _columns(self, p: Contraction) -> _Turn:
        """The operand that has the columns of a source."""
        column, term = symbol("column", p.width), symbol("term", p.terms)
        index = self.b.out_index(p, ix.lit(0), column)
        found = matrix_of(self.b.base, p, p.right, index, column, term, stored=True)
        if found is None:
            raise LoweringError(NO_PANEL)
        return _Turn(p, found, found.outer)

    def _terms(self, p: Contraction) -> _Turn:
        """The operand whose terms are the columns of a source."""
        found = self.b.right_in_memory(p)
        if found is None:
            raise LoweringError(NO_PANEL)
        if self.wide_factors and found.inner == 1:
            raise LoweringError("terms that are neighbours are taken two by two of 16 bits only")
        return _Turn(p, found, found.inner)

    def _left(self, p: Contraction, place: Expr) -> StagedPanel:
        found = self.b.left_in_memory(p)
        if found is None:
            raise LoweringError(NO_PANEL)
        count = self.b.count_of(self.b.first_row, self.b.rows, self.b.height)
        run = fragments.run_of(p.terms, self.dtype.itemsize)
        return StagedPanel("", place, found, count, self.b.height, ix.lit(p.terms), run, self.dtype)

    def _staged(self, k: int, number: Expr) -> StagedPanel:
        """The k-th panel of the blocks from `number` on, in its place of the ring."""
        turns, ahead = len(self.turns), k // len(self.turns)
        turn, block = self.turns[k % turns], ix.iadd(number, ix.lit(ahead))
        slot = ix.imod(ix.iadd(ix.imul(number, turns), ix.lit(k)), self.stages)
        first = ix.imul(block, self.wide)
        panel = replace(
            turn.panel, start=ix.iadd(turn.panel.start, ix.imul(block, self.wide * turn.step))
        )
        count: Expr = ix.lit(self.wide)
        if self.width % self.wide:
            count = Call("min", (count, ix.isub(ix.lit(self.width), first)), DType.I64)
        p, place = turn.product, ix.imul(slot, self.slot)
        if k % turns < len(self.online.sources):
            run = fragments.run_of(p.terms, self.dtype.itemsize)
            columns = self.wide, ix.lit(p.terms), run
            return StagedPanel(self.stage, place, panel, count, *columns, self.dtype)
        width, padded = ix.lit(p.width), fragments.up(p.width, PAIR)
        terms = count, self.wide, self.dtype, self.wide_factors
        return StagedPanel(self.stage, place, panel, width, padded, *terms)

    def _size(self, staged: StagedPanel) -> int:
        return fragments.factor_of(staged, 0).size

    def _blocks(self) -> Expr:
        """Blocks of columns that the rows of the block need."""
        b, most = self.b, -(-self.width // self.wide)
        if self.offset is None:
            return ix.lit(most)
        last = ix.iclamp(ix.iadd(b.first_row, ix.lit(b.height + self.offset)), 1, self.width)
        found = ix.idiv(ix.iadd(last, ix.lit(self.wide - 1)), self.wide)
        return self.e.let_index(found, "e", most + 1)

    def _fetch(self, number: Expr, k: int) -> None:
        block = ix.iadd(number, ix.lit(k // len(self.turns)))
        self.e.put(Fetch(self._staged(k, number), ix.ilt(block, self.blocks)))

    def _arrive(self, number: Expr, k: int) -> None:
        """Wait for a panel; what all have read before is the place of one to come."""
        self.e.put(Arrival(self.stages - 2))
        self._fetch(number, k + self.stages - 1)

    def _multiply(
        self, sums: str, columns: int, left: StagedPanel | str, number: Expr, k: int, fresh: bool
    ) -> None:
        right, kept = self._staged(k, number), [self.wide] * len(self.online.sources)
        kept += [fragments.up(p.width, PAIR) for p in self.sinks]
        tight = not isinstance(left, str) and fragments.size(self.rows, sum(kept)) > TIGHT
        made = FragmentProduct(
            sums, self.rows, columns, self.lane.top, left, right, self.mma, fresh, tight
        )
        self.e.put(made)

    # --- one block of columns ---------------------------------------------------------------------

    def _follow(
        self, number: Expr, made: Mapping[Value, str], steps: Iterable[OnlineStep],
        columns: _Columns,
    ) -> None:  # fmt: skip
        where, compared, turn = dict(made), set[Value](), len(self.online.sources)
        rows = TileRun(ix.lit(0), self.b.height)
        for step in steps:
            fold = step.fold
            if fold is not None and fold.anchors and fold.operand not in compared:
                self.running.compare(fold, rows)
                self.running.scale(fold.operand, rows)
                compared.add(fold.operand)
            if fold is not None and fold.node in self.products:
                own = self.running.sums[fold.node]
                self._arrive(number, turn)
                self._multiply(own.buffer, own.stride, where[fold.operand], number, turn, False)
                turn += 1
            else:
                self._fold(step, number, where, columns)
            if step.kept:
                where = {v: name for v, name in where.items() if name != step.kept}
                where[step.value] = step.kept

    def _fold(
        self, step: OnlineStep, number: Expr, where: Mapping[Value, str], columns: _Columns
    ) -> None:
        """All rows of a lane: what is folded of a block, or only computed."""
        e, b, p = self.e, self.b, self.online.sources[0]
        first, fold = ix.imul(number, self.wide), step.fold
        terms = Terms(b.graph, self.online, columns.same, set(where))
        grown = self._grown(step, terms)
        folded = step.value if grown is None else grown[0]
        with self.running.over_rows(ix.lit(0), 0, ix.lit(0)) as row:
            at_row = self.running.row_of(row)
            frame = self.running.frame(self.running.extrema(row))
            for value, other in columns.same.items():
                frame.sources[value] = through(frame, other)
            power = None
            if self.powers and fold is not None and fold.unit:
                power = as_power(terms, frame, step.value)
            if power is not None:
                frame.sources[step.value] = power

            def element(place: Expr, column: Expr) -> tuple[Expr, Expr, Expr | None]:
                for value, buffer in where.items():
                    dtype = b.graph.type_of(value).dtype.compute
                    frame.sources[value] = everywhere(e.bind(Load(buffer, place, dtype)))
                whole, there = ix.iadd(first, column), None
                if columns.checked and self.width % self.wide:
                    there = e.let(ix.ilt(whole, ix.lit(self.width)))
                    whole = Call("min", (whole, ix.lit(self.width - 1)), DType.I64)
                whole = e.let_index(whole, "n", self.width)
                found = frame.pull(folded, b.out_index(p, at_row, whole))
                if step.kept:
                    # Beyond the last column there is nothing: the terms of a product are zero.
                    nothing = Lit(0.0, found.dtype)
                    kept = found if there is None else call("select", there, found, nothing)
                    e.store(step.kept, place, kept)
                return found, whole, there

            if fold is not None:
                self.running.add(fold, row, self.wide, element, None if grown is None else grown[1])
            else:
                with self.running.over_columns(self.wide, row) as (place, column):
                    element(place, column)

    def _grown(self, step: OnlineStep, terms: Terms) -> tuple[Value, Callable[[Expr], Expr]] | None:
        """What an extremum may be taken of instead, and what is made of that."""
        own = None if step.fold is None else self.graph[step.fold.node].spec.fold
        if own is None or own.operator not in EXTREMA or step.kept:
            return None
        found = terms.grown(step.value)
        if found is None:
            return None
        source, made = found
        (name,) = (n for n, v in terms.leaves.items() if v == source)
        return source, lambda total: replaced(made, name, total)

    # --- results ----------------------------------------------------------------------------------

    def _results(self, done: KeptRows) -> None:
        """The outputs: elements of the later products, or one number a row."""
        b = self.b
        tags = dict(b.form.tags)
        wide = [v for v in b.form.outputs if local_shape(self.graph, v, tags[v])]
        widths = {p.width for p in self.sinks}
        if wide and len(widths) != 1:
            raise LoweringError("the products of a row have different columns")
        for v in wide:
            shape = local_shape(self.graph, v, tags[v])
            if ix.linearize([ix.lit(n - 1) for n in shape], shape) != ix.lit(max(widths) - 1):
                raise LoweringError("a result has other columns than the products of its row")
        with self.running.over_rows(ix.lit(0), 0, ix.lit(0)) as row:
            at_row = self.running.row_of(row)
            inside: Expr | None = None
            if b.rows % b.height:
                whole = ix.iadd(b.first_row, self.running.own_row(row))
                inside = ix.ilt(whole, ix.lit(b.rows))
            with b.only(inside):
                self._row(done, row, at_row, wide)

    def _row(self, done: KeptRows, row: Expr, at_row: Expr, wide: list[Value]) -> None:
        b, e = self.b, self.e
        for v in b.form.outputs:
            if v not in wide:
                with b.only(call("eq", ix.imod(self.lane.number, ROW_LANES), ix.lit(0))):
                    frame = frame_of_row(b, done, row, at_row)
                    self._store(v, frame.pull(v, join(b.tags[v], b.items(at_row), ())), at_row, ())
        if not wide:
            return
        columns = fragments.up(self.sinks[0].width, PAIR)
        width = self.sinks[0].width
        with (
            self.running.over_columns(columns, row) as (place, column),
            b.only(None if width == columns else ix.ilt(column, ix.lit(width))),
        ):
            # What is read for a column may be read before it is known to be there.
            if width < columns:
                column = Call("min", (column, ix.lit(width - 1)), DType.I64)
            column = e.let_index(column, "n", width)
            frame = frame_of_row(b, done, row, at_row)
            for p in self.sinks:
                own = self.running.sums[p.node]
                found: Expr = e.bind(Load(own.buffer, place, b.dtype(p)))
                found = rescaled(b, p, done, frame, at_row, found)
                index = b.index_at(p, b.items(at_row), column)
                frame.sources[Value(p.node)] = only_at(index, found)
            for v in wide:
                shape = local_shape(self.graph, v, b.tags[v])
                local = ix.delinearize(column, shape)
                index = join(b.tags[v], b.items(at_row), local)
                self._store(v, frame.pull(v, index), at_row, local)

    def _store(self, value: Value, found: Expr, at_row: Expr, local: tuple[Expr, ...]) -> None:
        b, out = self.b, self.graph.type_of(value)
        index = join(b.tags[value], b.items(at_row), local)
        self.e.store(b.targets[value], ix.linearize(index, out.shape), narrow(found, out.dtype))
