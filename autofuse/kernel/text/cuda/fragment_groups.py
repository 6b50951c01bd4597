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
from autofuse.kernel.ir.fragment import FragmentProduct, WarpRole
from autofuse.kernel.ir.fragment import StagedPanel as Staged
from autofuse.kernel.text.cuda.ring import AWAIT_FULL, StageRing
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
                yield "af_meet();"
                yield f"af_take_registers({deal.first});"
        elif deal.change and stmt.begins:
            yield f"af_take_registers({deal.multiplying});"
        elif deal.change:
            yield "af_meet();"
            yield f"af_give_registers({deal.first});"

    def feed(self, copies: Iterable[str]) -> Iterator[str]:
        """A panel whose `copies` are these, into the next slot."""
        yield "{"
        yield f"  const int32_t lane = threadIdx.x % {GROUP};"
        yield from self.ring.fill(copies)
        yield "}"

    def product(self, stmt: FragmentProduct) -> Iterator[str]:
        right = factor_of(stmt.right, 0)
        assert isinstance(right, GroupFactor)
        yield "{"
        yield f"  {AWAIT_FULL}"
        yield f"  const uint32_t sb = af_shared_place({base_of(stmt.right)});"
        words, left = stmt.left if isinstance(stmt.left, str) else "", ""
        if not isinstance(stmt.left, str):
            own, place = factor_of(stmt.left, 0), self.text(stmt.left.place)
            assert isinstance(own, GroupFactor)
            yield f"  const uint32_t sa = af_shared_place({base_of(stmt.left)} + ({place}));"
            top = f"({self.text(stmt.first)}) / 64 * 64"
            left = describe("sa", own, top)
        kind, turned = stmt.right.dtype, int(right.turned)
        steps = stmt.right.run * kind.itemsize // STEP_BYTES
        on = "s > 0" if stmt.fresh else "1"
        if words:
            # All before the first product: a register that is written between two makes them wait.
            yield f"  uint32_t a[{steps}][4];"
            yield "  #pragma unroll"
            yield f"  for (int32_t k = 0; k < {steps * 4}; k++) {{"
            at = "(k / 4 * 2 + k % 4 / 2) * 4 + k % 2 * 2"
            yield f"    a[k / 4][k % 4] = af_pair_{kind}({words}[{at}], {words}[{at} + 1]);"
            yield "  }"
        yield "  af_group_fence();"
        yield "  #pragma unroll"
        yield f"  for (int32_t s = 0; s < {steps}; s++) {{"
        if words:
            given = f"{kind}, {stmt.columns}, {turned}, {stmt.sums}, a[s]"
            yield f"    af_multiply_words({given}, {describe('sb', right, '0')});"
        else:
            sides = f"{int(own.turned)}, {turned}"
            given = f"{kind}, {stmt.columns}, {sides}, {stmt.sums}, {left}"
            yield f"    af_multiply_group_on({given}, {describe('sb', right, '0')}, {on});"
        yield "  }"
        yield "  af_group_commit();"
        yield "  af_group_await(0);"
        yield f"  af_keep_sums({stmt.sums});"
        yield "  if (threadIdx.x % 32 == 0) af_arrive(af_empty + af_slot);"
        yield f"  {self.ring.advance}"
        yield "}"
