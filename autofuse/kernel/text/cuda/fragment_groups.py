"""The CUDA text of warpgroups that multiply panels of a ring into sums in their registers, and of
the one that fetches those (`kernel/ir/fragment.py`).

Slots and phases of the ring are counted as those of products (`wgmma.group_prologue`): an
mbarrier for each says that it is full, another one that it is empty. Two groups that multiply wait
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
    def stages(self) -> int:
        return max(2, self.own.stages)

    @property
    def under_way(self) -> int:
        """Panels that are asked for before one is announced: the place of the last of them is that
        of the one two before, so a group may have the next panel while another has the last."""
        return self.stages - 2

    @property
    def registers(self) -> RegisterDeal:
        """Who fetches whole runs at once knows where all its pieces are: that takes more than for
        a run of a product."""
        return registers(self.own.threads, self.own.blocks, GATHERING)

    def advance(self) -> str:
        return f"if (++af_slot == {self.stages}) af_slot = 0, af_phase ^= 1u;"

    def role(self, stmt: WarpRole) -> Iterator[str]:
        deal = self.registers
        if stmt.fetches and stmt.begins:
            if deal.change:
                yield f"af_give_registers({deal.fetching});"
            # Copies that are asked for and not announced, and whether any panel has been.
            yield "int32_t sent = af_slot, asked = 0;"
            yield "bool begun = false;"
            yield "const auto send = [&]() {"
            yield "  af_show_stores();"
            yield f"  af_arrive(af_full + sent), sent = sent == {self.stages - 1} ? 0 : sent + 1;"
            yield "  asked--;"
            yield "};"
        elif stmt.fetches:
            yield "af_await_copies(0);"
            yield "while (asked > 0) send();"
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
        later = self.under_way
        yield "{"
        yield f"  const int32_t lane = threadIdx.x % {GROUP};"
        yield "  af_await(af_empty + af_slot, af_phase ^ 1u);"
        yield from (f"  {line}" for line in copies)
        yield f"  if (++asked > {later}) {{"
        yield f"    af_await_copies({later});"
        yield "    send();"
        yield "    begun = true;"
        if later > 1:
            # The first panel is waited for before all that have room are asked for.
            yield "  } else if (!begun && asked == 2) {"
            yield "    af_await_copies(1);"
            yield "    send();"
            yield "    begun = true;"
        yield "  }"
        yield f"  {self.advance()}"
        yield "}"

    def product(self, stmt: FragmentProduct) -> Iterator[str]:
        right = factor_of(stmt.right, 0)
        assert isinstance(right, GroupFactor)
        yield "{"
        yield "  af_await(af_full + af_slot, af_phase);"
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
        yield f"  {self.advance()}"
        yield "}"
