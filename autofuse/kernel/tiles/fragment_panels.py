"""How the operands of products whose sums stay in registers lie in shared memory: left ones for as
long as a block of rows takes, panels of the others in a ring of stages, in the order in which they
are multiplied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autofuse.kernel.cuda import fragments
from autofuse.kernel.cuda.fragments import PAIR
from autofuse.kernel.cuda.wgmma import BLOCK_BYTES, ROWS, WIDTHS
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.fragment import StagedPanel
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.types import Panel
from autofuse.kernel.tiles.block import TileBlock
from autofuse.kernel.tiles.operands import left_in_memory, right_in_memory, right_matrix
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr
from autofuse.plan.schedules.online import Online
from autofuse.plan.schedules.tiles import Contraction

NO_PANEL = "an operand is no matrix in memory"


@dataclass(frozen=True, slots=True)
class Turn:
    """A panel that every block of columns has: the product, where its columns (or terms) start in
    memory, and how far it is from one of them to the next."""

    product: Contraction
    panel: Panel
    step: int


class FragmentRing:
    """The `turns` of a block of columns, stages of `slot` elements each, and the Local `stage` that
    all is in. `grouped`: warpgroups multiply, by the layout of their hardware. Raises LoweringError
    where operands are no matrices in memory."""

    def __init__(
        self, b: TileBlock, online: Online, sinks: Sequence[Contraction], wide: int, stages: int,
        mma: str,
    ) -> None:  # fmt: skip
        self.b, self.sources, self.wide, self.stages = b, online.sources, wide, stages
        self.grouped, self.width = by_group(mma), online.sources[0].width
        self.dtype = b.factor_dtype(online.sources[0])
        self.step = ROWS if self.grouped else PAIR
        self.stage, self.slot = "", 0
        self.turns = [*map(self._columns, online.sources), *map(self._terms, sinks)]
        self.slot = max(self._size(self.staged(k, ix.lit(0))) for k in range(len(self.turns)))

    def sums_of(self, columns: int) -> int:
        """Columns of the sums that there are for so many columns."""
        if not self.grouped:
            return fragments.up(columns, PAIR)
        if columns > WIDTHS[-1]:
            raise LoweringError(f"{columns} columns are more than warpgroups multiply by")
        return next(w for w in WIDTHS if w >= columns)

    def lefts(self) -> dict[int, StagedPanel]:
        """The left operands of the sources, for the rows of the block; behind the ring."""
        first, made = self.slot * self.stages, dict[int, StagedPanel]()
        for p in self.sources:
            made[p.node] = self._left(p, ix.lit(first))
            first += self._size(made[p.node])
        # Blocks of lines begin at multiples of their size, wherever the Local does.
        first += BLOCK_BYTES // self.dtype.itemsize if self.grouped else 0
        self.stage = self.b.e.local(self.dtype, first, "stage")
        return {n: replace(p, stage=self.stage) for n, p in made.items()}

    @property
    def wide_factors(self) -> bool:
        """Whether factors have 32 bits."""
        return self.dtype.itemsize == DType.F32.itemsize

    def _columns(self, p: Contraction) -> Turn:
        """The operand that has the columns of a source."""
        found = right_matrix(self.b, p, stored=True)
        if found is None:
            raise LoweringError(NO_PANEL)
        return Turn(p, found, found.outer)

    def _terms(self, p: Contraction) -> Turn:
        """The operand whose terms are the columns of a source."""
        found = right_in_memory(self.b, p)
        if found is None:
            raise LoweringError(NO_PANEL)
        if self.wide_factors and found.inner == 1:
            raise LoweringError("terms that are neighbours are taken two by two of 16 bits only")
        return Turn(p, found, found.inner)

    def _left(self, p: Contraction, place: Expr) -> StagedPanel:
        b = self.b
        found = left_in_memory(b, p)
        if found is None:
            raise LoweringError(NO_PANEL)
        count, terms = b.count_of(b.first_row, b.rows, b.height), ix.lit(p.terms)
        kind, run = self.dtype, self._run_of(p.terms)
        return StagedPanel(
            "", place, found, count, b.height, terms, run, kind, grouped=self.grouped
        )

    def _run_of(self, terms: int) -> int:
        if self.grouped:
            return fragments.up(terms, ROWS)
        return fragments.run_of(terms, self.dtype.itemsize)

    def staged(self, k: int, number: Expr) -> StagedPanel:
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
        # Warpgroups count the slots themselves.
        p, place = turn.product, ix.lit(0) if self.grouped else ix.imul(slot, self.slot)
        made = StagedPanel(
            self.stage, place, panel, count, fragments.up(self.wide, self.step), ix.lit(p.terms),
            self._run_of(p.terms), self.dtype, grouped=self.grouped, ring=self.slot * self.grouped,
        )  # fmt: skip
        if k % turns < len(self.sources):
            return made
        padded = fragments.up(self.sums_of(p.width), self.step)
        return replace(
            made, count=ix.lit(p.width), padded=padded, terms=count, run=self.wide,
            paired=self.wide_factors,
        )  # fmt: skip

    def _size(self, staged: StagedPanel) -> int:
        return fragments.factor_of(staged, 0).size
