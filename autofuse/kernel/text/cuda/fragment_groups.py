"""The CUDA text of warpgroups that multiply panels of a ring into sums in their registers, and of
the one that fetches those (`kernel/ir/fragment.py`).

Panels come through the same ring as those of products (`ring.py`). Two groups that multiply wait
for nothing but panels, so one may multiply while the other is between its products.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.fragments import factor_of
from autofuse.kernel.cuda.settings import Settings
from autofuse.kernel.cuda.wgmma import (
    GATHERING,
    GROUP,
    STEP_BYTES,
    GroupFactor,
    RegisterDeal,
    registers,
)
from autofuse.kernel.ir.fragment import FragmentProduct, UnderWay, WarpRole
from autofuse.kernel.ir.fragment import StagedPanel as Staged
from autofuse.kernel.text.cuda.ring import AWAIT_FULL, PASS_TURN, TAKE_TURN, StageRing
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.cuda.wgmma import describe


def base_of(staged: Staged) -> str:
    """The first element of a panel: a block of lines begins where the hardware wants it."""
    stage = staged.stage
    if not staged.grouped:
        return stage
    start = f"{stage} + af_to_block({stage}) / {staged.dtype.itemsize}"
    return f"{start} + af_slot * {staged.ring}" if staged.ring else start


@dataclass(frozen=True)
class FragmentGroups:
    """Prints the statements of warpgroups."""

    text: Spell
    own: Settings

    @property
    def ring(self) -> StageRing:
        """The place of the last panel that is asked for before one is announced is that of the one
        two before, so a group may have the next panel while another has the last."""
        stages = max(2, self.own.stages)
        return StageRing(stages, stages - 2, eager=True)

    @property
    def registers(self) -> RegisterDeal:
        """Who fetches whole runs at once knows where all its pieces are: that takes more than for
        a run of a product."""
        return registers(self.own.threads, self.own.blocks, GATHERING)

    def role(self, stmt: WarpRole) -> Iterator[str]:
        deal = self.registers
        if stmt.fetches and stmt.begins:
            if deal.change:
                yield f"af_give_registers({deal.fetching});"
            yield from self.ring.begin()
        elif stmt.fetches:
            yield from self.ring.end()
            if deal.change:
                # Who has few panels to fetch is done before others have taken what it gave.
                yield f"af_meet({self.own.threads});"
                yield f"af_take_registers({deal.first});"
        elif deal.change and stmt.begins:
            yield f"af_take_registers({deal.multiplying});"
        elif deal.change:
            yield f"af_meet({self.own.threads});"
            yield f"af_give_registers({deal.first});"

    def feed(self, copies: Iterable[str]) -> Iterator[str]:
        """A panel whose `copies` are these, into the next slot."""
        yield "{"
        yield f"  const int32_t lane = threadIdx.x % {GROUP};"
        yield from self.ring.fill(copies)
        yield "}"

    def product(self, stmt: FragmentProduct) -> Iterator[str]:
        """Asked for when the panel is there and, where groups take turns, when it is its turn."""
        right = factor_of(stmt.right, 0)
        assert isinstance(right, GroupFactor)
        yield "{"
        yield f"  {AWAIT_FULL}"
        yield f"  const uint32_t sb = af_shared_place({base_of(stmt.right)});"
        by_words = isinstance(stmt.left, str)
        yield from (f"  {line}" for line in (self.words if by_words else self.places)(stmt))
        if stmt.words:
            yield f"  {TAKE_TURN}"
        elif stmt.before is not None:
            yield f"  if (!af_late) {TAKE_TURN}"
        yield "  af_group_fence();"
        yield "  #pragma unroll"
        yield f"  for (int32_t s = 0; s < {self.steps(stmt)}; s++) {{"
        yield f"    {(self.by_words if by_words else self.by_places)(stmt, right)}"
        yield "  }"
        yield "  af_group_commit();"
        yield from (f"  {line}" for line in self.ended(stmt))
        yield f"  {self.ring.advance}"
        yield "}"

    @staticmethod
    def steps(stmt: FragmentProduct) -> int:
        return stmt.right.run * stmt.right.dtype.itemsize // STEP_BYTES

    def words(self, stmt: FragmentProduct) -> Iterator[str]:
        """The left factor in registers, all before the first product: a register that is written
        between two makes them wait."""
        steps, kind = self.steps(stmt), stmt.right.dtype
        if not stmt.words:
            yield f"uint32_t words[{steps * 4}];"
        name = stmt.words or "words"
        yield "#pragma unroll"
        yield f"for (int32_t k = 0; k < {steps * 4}; k++) {{"
        at = "(k / 4 * 2 + k % 4 / 2) * 4 + k % 2 * 2"
        yield f"  {name}[k] = af_pair_{kind}({stmt.left}[{at}], {stmt.left}[{at} + 1]);"
        yield "}"

    def places(self, stmt: FragmentProduct) -> Iterator[str]:
        """The left factor in shared memory."""
        assert not isinstance(stmt.left, str)
        place = self.text(stmt.left.place)
        yield f"const uint32_t sa = af_shared_place({base_of(stmt.left)} + ({place}));"

    def by_words(self, stmt: FragmentProduct, right: GroupFactor) -> str:
        left = f"(uint32_t (&)[4]){stmt.words or 'words'}[s * 4]"
        given = f"{stmt.right.dtype}, {stmt.columns}, {int(right.turned)}, {stmt.sums}, {left}"
        return f"af_multiply_words({given}, {describe('sb', right, '0')});"

    def by_places(self, stmt: FragmentProduct, right: GroupFactor) -> str:
        assert not isinstance(stmt.left, str)
        own = factor_of(stmt.left, 0)
        assert isinstance(own, GroupFactor)
        left = describe("sa", own, f"({self.text(stmt.first)}) / 64 * 64")
        sides = f"{int(own.turned)}, {int(right.turned)}"
        given = f"{stmt.right.dtype}, {stmt.columns}, {sides}, {stmt.sums}, {left}"
        on = "s > 0" if stmt.fresh else "1"
        return f"af_multiply_group_on({given}, {describe('sb', right, '0')}, {on});"

    def ended(self, stmt: FragmentProduct) -> Iterator[str]:
        """What comes when all products are asked for: they end, and the place of the panel is
        given back, unless they go on."""
        if stmt.words:
            yield "af_late = af_slot + 1;"
            return
        if stmt.before is not None:
            yield PASS_TURN
        yield "af_group_await(0);"
        yield f"af_keep_sums({stmt.sums});"
        if stmt.before is not None:
            yield from _kept(stmt.before)
        yield "if (threadIdx.x % 32 == 0) af_arrive(af_empty + af_slot);"

    def end(self, product: UnderWay) -> Iterator[str]:
        """After the last block of columns."""
        yield PASS_TURN
        yield "af_group_await(0);"
        yield from _kept(product)


def _kept(product: UnderWay) -> Iterator[str]:
    """Registers of a product that has ended, whose panel's place is given back."""
    yield f"af_keep_sums({product.sums});"
    yield f"af_keep_sums({product.words});"
    yield "if (af_late && threadIdx.x % 32 == 0) af_arrive(af_empty + af_late - 1);"
    yield "af_late = 0;"
