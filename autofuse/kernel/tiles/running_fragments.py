"""Running totals of rows whose columns are fragments: every lane has those of its rows in
registers, the same as the lanes that share them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from autofuse.graph.types import Value
from autofuse.kernel.cuda import fragments
from autofuse.kernel.cuda.fragments import FLIPS, WIDE, Lane
from autofuse.kernel.elements.values import ElementSource, Frame
from autofuse.kernel.ir.fragment import Exchange, Vote
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.parts import Scratch, TileRun
from autofuse.kernel.tiles.powers import ScalarTerms, as_power
from autofuse.kernel.tiles.running import Running
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Load, Sym, call
from autofuse.plan.schedules.online import Online, OnlineFold
from autofuse.plan.schedules.tiles import Contraction


class RunningFragments(Running):
    """As `Running`, of the `rows` rows of a warp: two rows of a lane in each part of 16. With
    `powers` terms that are one where extrema are theirs are powers of two; of so many columns there
    are sums of `sums_of` them."""

    def __init__(
        self, b: TileBlock, online: Online, products: Mapping[int, Contraction], lane: Lane,
        rows: int, powers: bool, sums_of: Callable[[int], int],
    ) -> None:  # fmt: skip
        self.lane, self.rows, self.powers, self.sums_of = lane, rows, powers, sums_of
        super().__init__(b, online, products)

    def _per_row(self, dtype: DType) -> str:
        return self.e.local(dtype, self.rows // WIDE, "each", private=True)

    def _zeroed(self, p: Contraction) -> Scratch:
        columns = self.sums_of(p.width)
        count = fragments.size(self.rows, columns)
        made = self.e.local(self.b.dtype(p), count, "sums", private=True)
        with self.unrolled("e", count) as place:
            self.e.store(made, place, Lit(0.0, self.b.dtype(p)))
        return Scratch(made, columns)

    @contextmanager
    def unrolled(self, prefix: str, count: int) -> Iterator[Sym]:
        """A loop whose turns the compiler knows."""
        turn = self.e.open(prefix, count)
        yield turn
        self.e.close("unrolled", turn, ix.lit(count))

    @contextmanager
    def over_rows(self, first: Expr, most: int, count: Expr) -> Iterator[Expr]:
        """All rows of a lane."""
        with self.unrolled("r", self.rows // WIDE) as place:
            yield place

    @contextmanager
    def over_columns(self, columns: int, row: Expr) -> Iterator[tuple[Expr, Expr]]:
        """The columns of a fragment in a row of a lane: where a sum is kept, and its column."""
        with self.unrolled("j", columns // WIDE) as across, self.unrolled("k", 2) as which:
            place = self.place_of(columns, row, across, which)
            yield place, self.lane.column(across, which)

    def place_of(self, columns: int, row: Expr, across: Expr, which: Expr | None = None) -> Expr:
        """Where a sum of a row of a lane is kept; without `which`, the first of two neighbours."""
        first = ix.lit(0) if which is None else which
        return fragments.element(columns, ix.idiv(row, 2), ix.imod(row, 2), across, first)

    def own_row(self, place: Expr) -> Expr:
        """The row of the block that has a place, also where the block has fewer."""
        return self.lane.row(ix.idiv(place, 2), ix.imod(place, 2))

    def row_of(self, place: Expr) -> Expr:
        whole, last = ix.iadd(self.b.first_row, self.own_row(place)), ix.lit(self.b.rows - 1)
        if self.b.rows % self.b.height:
            whole = Call("min", (whole, last), DType.I64)
        return self.e.let_index(whole, "m", self.b.rows)

    def add(
        self, fold: OnlineFold, row: Expr, columns: int,
        element: Callable[[Expr, Expr], tuple[Expr, Expr, Expr | None]],
        grown: Callable[[Expr], Expr] | None = None,
    ) -> None:  # fmt: skip
        """The columns of a block, of one row: `element` is what is folded at a place, which column
        of the whole that is, and whether it is there (None: it is). `grown`: what is folded is that
        of an element, which never falls where that rises, so it is that of the total."""
        n = fold.node
        own, node_call = self._fold(n), self.b.graph.call(n)
        with self._total_of_block(fold, row) as registers:
            with self.over_columns(columns, row) as (place, column):
                found, whole, there = element(place, column)
                new = own.combine(registers, own.lift(node_call, found, whole))
                if there is not None:
                    new = tuple(
                        call("select", there, x, r) for x, r in zip(new, registers, strict=True)
                    )
                self._assign(registers, new)
            if grown is not None:
                self._assign(registers, tuple(grown(r) for r in registers))
            # What others depend on is a total of all columns; any other may wait for the last ones.
            if n in self.before:
                self._join(n, registers)

    def _join(self, n: int, registers: tuple[Sym, ...]) -> None:
        """The totals of the lanes that share a row, in each of them."""
        for flip in FLIPS:
            others = []
            for register in registers:
                others.append(self.e.symbol(register.dtype))
                self.e.put(Exchange(others[-1], register, flip))
            self._assign(registers, self._fold(n).combine(registers, tuple(others)))

    def scale(self, operand: Value, rows: TileRun | None) -> None:
        numbers = [f.node for f in self.online.folds if f.operand == operand]
        numbers = [n for n in numbers if n in self.sums]
        if not numbers:
            return
        with self.over_rows(ix.lit(0), 0, ix.lit(0)) as row:
            factor = self._read(self.factors[operand], row, self._dtype(operand))
            moved = self.e.symbol(DType.BOOL)
            self.e.put(Vote(moved, call("ne", factor, Lit(1.0, factor.dtype))))
            # All lanes of a warp or none: a branch that some take costs more than the products.
            with self.b.only(moved):
                for n in numbers:
                    own, dtype = self.sums[n], self.b.dtype(self.products[n])
                    with self.over_columns(own.stride, row) as (place, _):
                        scaled = call("mul", Load(own.buffer, place, dtype), factor)
                        self.e.store(own.buffer, place, scaled)

    def _framed(self, sources: Mapping[Value, ElementSource], fold: OnlineFold) -> Frame:
        frame = self.frame(sources)
        if self.powers and fold.unit:
            terms = ScalarTerms(self.b.graph, self.online, {}, set(sources))
            made = as_power(terms, frame, fold.operand, of_source=False)
            if made is not None:
                frame.sources[fold.operand] = made
        return frame

    def finish(self) -> dict[Value, str]:
        for n in self.state.keys() - self.before.keys():
            with self.over_rows(ix.lit(0), 0, ix.lit(0)) as row:
                registers = tuple(
                    self.e.variable(Load(buffer, row, dtype)) for buffer, dtype in self.state[n]
                )
                self._join(n, registers)
                for (buffer, _), register in zip(self.state[n], registers, strict=True):
                    self.e.store(buffer, row, self.e.bind(register))
        return super().finish()
