"""The CUDA text of a ring of stages in shared memory that one warpgroup fills and others empty.

Two mbarriers of each stage say that it is full and that it is empty. A thread counts the stages
that it has come to (`af_slot`, and whether it has come to it an odd number of times: `af_phase`).
Who fills one waits until it is empty, asks for copies, and announces a stage when its copies have
arrived, while those of later ones are under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.wgmma import GROUP, WARPS

AWAIT_EMPTY = "af_await(af_empty + af_slot, af_phase ^ 1u);"
AWAIT_FULL = "af_await(af_full + af_slot, af_phase);"
# The turn of a warpgroup at asking for products, and that of the other one after it.
TAKE_TURN = f"af_await(af_turn + threadIdx.x / {GROUP}, af_mine), af_mine ^= 1u;"
PASS_TURN = f"if (threadIdx.x % 32 == 0) af_arrive(af_turn + (threadIdx.x / {GROUP} ^ 1));"


def ring_prologue(stages: int, filling: int, emptying: int) -> Iterator[str]:
    """What a kernel with a ring begins with: its mbarriers, which so many arrivals complete."""
    yield f"  __shared__ __align__(8) uint64_t af_full[{stages}], af_empty[{stages}];"
    yield f"  if (threadIdx.x < {stages}) {{"
    yield f"    af_ready_init(af_full + threadIdx.x, {filling});"
    yield f"    af_ready_init(af_empty + threadIdx.x, {emptying});"
    yield "  }"
    yield "  __syncthreads();"
    yield "  int32_t af_slot = 0;"
    yield "  uint32_t af_phase = 0;"


def turn_prologue() -> Iterator[str]:
    """The mbarriers by which two warpgroups take turns at asking for products."""
    yield "  __shared__ __align__(8) uint64_t af_turn[2];"
    yield f"  if (threadIdx.x < 2) af_ready_init(af_turn + threadIdx.x, {WARPS});"
    yield "  __syncthreads();"
    # The first group waits for nobody the first time; nothing is under way.
    yield f"  uint32_t af_mine = threadIdx.x < {GROUP};"
    yield "  int32_t af_late = 0;"


@dataclass(frozen=True, slots=True)
class StageRing:
    """Prints what the threads of a warpgroup do that fills stages as long as the kernel runs."""

    stages: int
    # Stages that are under way when one is announced.
    later: int
    # Whether the very first one is announced before all that have room are asked for.
    eager: bool = False

    @property
    def advance(self) -> str:
        """On to the next stage."""
        return f"if (++af_slot == {self.stages}) af_slot = 0, af_phase ^= 1u;"

    @property
    def announce(self) -> str:
        """The stage `sent` is full; the next one comes after it."""
        return f"af_arrive(af_full + sent), sent = sent == {self.stages - 1} ? 0 : sent + 1;"

    def begin(self) -> Iterator[str]:
        """Before the first stage: how many are asked for and not announced."""
        yield "int32_t sent = af_slot, asked = 0;"
        if self.eager:
            yield "bool begun = false;"
        yield "const auto send = [&]() {"
        yield "  af_show_stores();"
        yield f"  {self.announce}"
        yield "  asked--;"
        yield "};"

    def fill(self, copies: Iterable[str]) -> Iterator[str]:
        """Ask for the copies of the next stage."""
        begun = ["    begun = true;"] if self.eager else []
        yield f"  {AWAIT_EMPTY}"
        yield from (f"  {line}" for line in copies)
        yield f"  if (++asked > {self.later}) {{"
        yield from (f"    af_await_copies({self.later});", "    send();", *begun)
        if self.eager and self.later > 1:
            yield "  } else if (!begun && asked == 2) {"
            yield from ("    af_await_copies(1);", "    send();", *begun)
        yield "  }"
        yield f"  {self.advance}"

    def end(self) -> Iterator[str]:
        """All that are asked for have arrived."""
        yield "af_await_copies(0);"
        yield "while (asked > 0) send();"
