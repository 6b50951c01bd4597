"""Tile form of one pass whose columns stay in registers: a warp has rows of its own, and a block
of columns of them is a fragment. What is folded of it goes on in registers too
(`running_fragments.py`), and the fragment is the left operand of the products whose terms it has.

Operands that have columns go through a ring of stages in shared memory, one panel after another as
they are multiplied: while one is multiplied the next ones are on their way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count

from autofuse.graph.types import Value
from autofuse.kernel.cuda import fragments
from autofuse.kernel.cuda.fragments import HIGH, PAIR, WARP, WIDE, Lane
from autofuse.kernel.cuda.wgmma import GROUP, ROWS
from autofuse.kernel.elements.values import everywhere, through
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.fragment import (
    Arrival,
    EndProduct,
    Fetch,
    FragmentProduct,
    Pack,
    StagedPanel,
    UnderWay,
    WarpRole,
)
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.types import Let
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.fragment_panels import FragmentRing
from autofuse.kernel.tiles.fragment_results import FragmentResults
from autofuse.kernel.tiles.online_steps import OnlineStep, online_reach, steps_of
from autofuse.kernel.tiles.parts import TileRun, covering
from autofuse.kernel.tiles.powers import ScalarTerms, as_power, replaced
from autofuse.kernel.tiles.rows import KeptRows
from autofuse.kernel.tiles.running_fragments import RunningFragments
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, call
from autofuse.plan.parameters import BLOCK_THREADS, PINGPONG, STAGES, STRICT_MMA
from autofuse.plan.schedules.online import Online, OnlineFold
from autofuse.plan.schedules.separable import EXTREMA
from autofuse.plan.types import LaunchConfig

# Columns of a block where nothing is said.
COLUMNS = 64
# Stages of the ring: one that is multiplied, and one that is on its way.
LEAST_STAGES = 2
# Sums of a thread beyond which there are few registers for anything else, or at which there are
# where a product has more than so many terms: a compiler loads for several steps of them at once.
TIGHT, LONG = 160, 128
# Warpgroups that can take turns.
TAKING_TURNS = 2


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
        self.stages = max(LEAST_STAGES, STAGES.of(launch))
        self.products = {p.node: p for p in b.tiles.products}
        self.sinks = [self.products[f.node] for f in online.folds if f.node in self.products]
        kinds = {b.instruction(p) for p in b.tiles.products}
        types = {b.factor_dtype(p) for p in b.tiles.products}
        if len(kinds) > 1 or "" in kinds or len(types) > 1:
            raise LoweringError("tensor cores multiply no such factors in registers")
        (self.mma,) = kinds
        (self.dtype,) = types
        # One group of warps fetches for the others.
        self.busy = self.threads - GROUP * by_group(self.mma)
        self.rows, rest = divmod(b.height, max(1, self.busy // WARP))
        self.wide, self.width = b.s.column_block or COLUMNS, online.sources[0].width
        least, most = (ROWS, HIGH) if by_group(self.mma) else (PAIR, b.height)
        if rest or self.rows % HIGH or self.wide % least or self.rows > most or self.busy <= 0:
            raise LoweringError(f"{self.threads} threads share no {b.height}x{self.wide} in whole")
        self.turns = PINGPONG.of(launch)
        self.under_way: UnderWay | None = None
        one_each = len(online.sources) == len(self.sinks) == 1
        if self.turns and not (
            by_group(self.mma) and self.busy == TAKING_TURNS * GROUP and one_each
        ):
            raise LoweringError("two warpgroups take turns, with one product before the other")
        self.reach = online_reach(b, online)
        # Of f32 in two parts nothing is to be rounded more than by a library's function.
        self.powers = self.mma != STRICT_MMA
        # What masks let through in blocks that lie wholly before their last columns.
        self.same = dict(self.reach.same) if self.reach is not None else {}

    def emit(self) -> None:
        b, e = self.b, self.e
        # The last rows of a causal mask have most to do: they come first.
        if self.reach is not None and b.rows > b.height:
            b.first_row = ix.isub(ix.lit((-(-b.rows // b.height) - 1) * b.height), b.first_row)
        self.ring = FragmentRing(b, self.online, self.sinks, self.wide, self.stages, self.mma)
        self.lefts = self.ring.lefts()
        self.blocks = self._blocks()
        thread = e.open("thread", self.threads)
        for left in self.lefts.values():
            e.put(Fetch(left, Lit(True, DType.BOOL)))
        if self.ring.grouped:
            self._groups(thread)
        else:
            for k in range(self.stages - 1):
                self._fetch(ix.lit(0), k)
            self._rows_of(thread)
            self._finish()
        e.close("threads", thread, ix.lit(self.threads))

    def _groups(self, thread: Sym) -> None:
        """The last group fetches, the others multiply."""
        b, e = self.b, self.e
        e.put(Arrival(0, shown=True))
        with b.only(call("lt", thread, ix.lit(self.busy))):
            # What only these threads compute stays here: it is bound to a place of theirs.
            own = e.symbol(thread.dtype, "t")
            own = replace(own, extent=self.busy)
            e.put(Let(own, thread))
            e.put(WarpRole(fetches=False, begins=True))
            self._rows_of(own)
            self._finish()
            e.put(WarpRole(fetches=False, begins=False))
        with b.only(call("ge", thread, ix.lit(self.busy))):
            self._feed()
        e.put(Arrival(0))

    def _rows_of(self, thread: Expr) -> None:
        """The columns of all blocks, of the rows of a thread."""
        b, e = self.b, self.e
        top = ix.imul(ix.idiv(thread, WARP), self.rows)
        self.lane = Lane(
            e.let_index(ix.imod(thread, WARP), "l", WARP), e.let_index(top, "w", b.height)
        )
        self.running = RunningFragments(
            b, self.online, self.products, self.lane, self.rows, self.powers, self.ring.sums_of
        )
        if self.turns:
            count = fragments.size(self.rows, self.wide) // 2
            words = e.local(DType.U32, count, "words", private=True)
            self.under_way = UnderWay(self.running.sums[self.sinks[0].node].buffer, words)
        whole = self._whole_blocks()
        if whole != ix.lit(0):
            self._run(ix.lit(0), whole, _Columns(False, self.same))
        if whole != self.blocks:
            self._run(whole, ix.isub(self.blocks, whole), _Columns(True, {}))
        if self.under_way is not None:
            e.put(EndProduct(self.under_way))
        if not self.ring.grouped:
            # The stages may be filled for another block of rows.
            e.put(Arrival(0))

    def _finish(self) -> None:
        b = self.b
        done = KeptRows(totals=self.running.finish())
        done.due = {f.node: f.due for f in self.online.folds if f.node in self.products}
        FragmentResults(b, self.running, self.ring.sums_of, self.lane, self.sinks).store(done)

    def _run(self, first: Expr, count: Expr, columns: _Columns) -> None:
        """So many blocks of columns from the `first` on, all alike."""
        b, e, most = self.b, self.e, -(-self.width // self.wide)
        size = fragments.size(self.rows, self.wide)
        self.words = dict[Value, str]()
        made, steps = steps_of(
            b, self.online, lambda dtype: e.local(dtype, size, "block", private=True), columns.same
        )
        turn = e.open("q", most)
        number = turn if first == ix.lit(0) else e.let_index(ix.iadd(first, turn), "q", most)
        for k, p in enumerate(self.online.sources):
            self._arrive(number, k)
            self._multiply(
                made[Value(p.node)], self.wide, self.lefts[p.node], number, k, fresh=True
            )
        self._follow(number, made, steps, columns)
        e.close("serial", turn, count)

    def _whole_blocks(self) -> Expr:
        """Blocks, the first ones, of whose columns all are there for every row of this one, and are
        let through by a mask if they are by any."""
        full = self.width // self.wide
        if self.reach is None or not self.same:
            return (
                self.blocks
                if self.width % self.wide == 0
                else ix.lit(full if self.reach is None else 0)
            )
        last = self.reach.columns(ix.iadd(self.b.first_row, ix.lit(1)), 0)
        return self.e.let_index(ix.idiv(last, self.wide), "f", full + 1)

    def _blocks(self) -> Expr:
        """Blocks of columns that the rows of the block need."""
        most = -(-self.width // self.wide)
        if self.reach is None:
            return ix.lit(most)
        found = covering(self.reach.columns(self.b.end), self.wide)
        return self.e.let_index(found, "e", most + 1)

    # --- who does what ----------------------------------------------------------------------------

    def _fetch(self, number: Expr, k: int) -> None:
        block = ix.iadd(number, ix.lit(k // len(self.ring.turns)))
        self.e.put(Fetch(self.ring.staged(k, number), ix.ilt(block, self.blocks)))

    def _arrive(self, number: Expr, k: int) -> None:
        """Wait for a panel; what all have read before is the place of one to come. Warpgroups wait
        where they multiply, and others fetch for them."""
        if not self.ring.grouped:
            self.e.put(Arrival(self.stages - 2))
            self._fetch(number, k + self.stages - 1)

    def _multiply(
        self, sums: str, columns: int, left: StagedPanel | str, number: Expr, k: int, fresh: bool
    ) -> None:
        ring, right = self.ring, self.ring.staged(k, number)
        kept = [ring.sums_of(self.wide)] * len(self.online.sources)
        kept += [ring.sums_of(p.width) for p in self.sinks]
        most = TIGHT - (right.run > LONG)
        tight = not isinstance(left, str) and fragments.size(self.rows, sum(kept)) > most
        packed = left in self.words.values()
        made = FragmentProduct(
            sums, self.rows, columns, self.lane.top, left, right, self.mma, fresh, tight, packed
        )
        if self.under_way is not None and fresh:
            made = replace(made, before=self.under_way)
        elif self.under_way is not None:
            made = replace(made, words=self.under_way.words)
        self.e.put(made)

    def _feed(self) -> None:
        """What the group that fetches does: all panels, one after another."""
        e, ring = self.e, self.ring
        e.put(WarpRole(fetches=True, begins=True))
        number = e.open("q", -(-self.width // self.wide))
        for k in range(len(ring.turns)):
            e.put(Fetch(ring.staged(k, number), Lit(True, DType.BOOL), fed=True))
        e.close("serial", number, self.blocks)
        e.put(WarpRole(fetches=True, begins=False))

    # --- one block of columns ---------------------------------------------------------------------

    def _follow(
        self, number: Expr, made: Mapping[Value, str], steps: Iterable[OnlineStep],
        columns: _Columns,
    ) -> None:  # fmt: skip
        turns = count(len(self.online.sources))

        def multiply(fold: OnlineFold, where: Mapping[Value, str]) -> None:
            own, turn = self.running.sums[fold.node], next(turns)
            left = self.words.get(fold.operand, where[fold.operand])
            self._arrive(number, turn)
            self._multiply(own.buffer, own.stride, left, number, turn, False)

        def compute(step: OnlineStep, where: Mapping[Value, str]) -> None:
            self._fold(step, number, where, columns)

        self.running.follow(steps, made, TileRun(ix.lit(0), self.b.height), multiply, compute)

    def _fold(
        self, step: OnlineStep, number: Expr, where: Mapping[Value, str], columns: _Columns
    ) -> None:
        """All rows of a lane: what is folded of a block, or only computed."""
        e, b, p = self.e, self.b, self.online.sources[0]
        first, fold = ix.imul(number, self.wide), step.fold
        terms = ScalarTerms(b.graph, self.online, columns.same, set(where))
        grown = self._grown(step, terms)
        folded = step.value if grown is None else grown[0]
        words = self._words(step)
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
            if words:
                with self.running.unrolled("j", self.wide // WIDE) as across:
                    at = self.running.place_of(self.wide, row, across)
                    e.put(Pack(words, ix.idiv(at, 2), step.kept, at, self.dtype))

    def _words(self, step: OnlineStep) -> str:
        """Where a value is packed as soon as it is kept, for a product of 16-bit factors; "" for
        any other. Warpgroups read words of a whole fragment, which they pack themselves."""
        folds = (f for f in self.online.folds if f.node in self.products)
        factor = step.kept and any(f.operand == step.value for f in folds)
        if not factor or self.dtype.itemsize != DType.BF16.itemsize or by_group(self.mma):
            return ""
        count = fragments.size(self.rows, self.wide) // 2
        self.words[step.value] = self.e.local(DType.U32, count, "words", private=True)
        return self.words[step.value]

    def _grown(
        self, step: OnlineStep, terms: ScalarTerms
    ) -> tuple[Value, Callable[[Expr], Expr]] | None:
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
