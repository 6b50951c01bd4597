"""The CUDA text of warpgroups that have tiles of their own: one fetches runs for as long as the
kernel runs, each of the others multiplies every so many-th tile, and computes what follows it while
another one multiplies.

Runs of all tiles go through one ring of stages in the order of tiles, so a group that multiplies
passes over those of the others. Two more mbarriers of each group keep the order: products of a tile
are asked for after those of the tile before, which tensor cores would else serve by turns, and its
sums are stored when those of that tile have been read (CUTLASS calls such kernels ping-pong).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda.settings import Settings
from autofuse.kernel.cuda.shape import Team, extent_of
from autofuse.kernel.cuda.wgmma import (
    ALONE,
    BOXING,
    GROUP,
    WARPS,
    GroupTile,
    RegisterDeal,
    group_tile,
    registers,
)
from autofuse.kernel.ir.types import (
    Loop,
    Stmt,
    Store,
    StoreVector,
    TileProduct,
    has_product,
    statements,
)
from autofuse.kernel.text.cuda.parts import reads
from autofuse.kernel.text.cuda.ring import StageRing
from autofuse.kernel.text.cuda.tile import Spell
from autofuse.kernel.text.cuda.wgmma import GroupText, fetching_registers


@dataclass(frozen=True)
class TurnRoles:
    """What the roles of a kernel whose product is `stmt` begin and end with."""

    stmt: TileProduct
    own: Settings
    outside: frozenset[str]

    @property
    def groups(self) -> int:
        """Those that multiply."""
        return self.own.threads // GROUP - 1

    @property
    def tile(self) -> GroupTile:
        return group_tile(self.stmt, ALONE, self.own.stages)

    @property
    def boxed(self) -> bool:
        """Whether one thread fetches, in boxes, and no other."""
        return all(self.stmt.boxes)

    @property
    def registers(self) -> RegisterDeal:
        kept = BOXING if self.boxed else fetching_registers(self.stmt, self.tile, self.outside)
        return registers(self.own.threads, self.own.blocks, kept)

    @property
    def ring(self) -> StageRing:
        return StageRing(self.tile.stages, self.tile.under_way)

    @property
    def team(self) -> Team:
        """The threads of a group."""
        return Team("group", GROUP, f"threadIdx.x % {GROUP}")

    def prologue(self) -> Iterator[str]:
        groups = self.groups
        yield f"  __shared__ __align__(8) uint64_t af_turn[{groups}], af_room[{groups}];"
        yield f"  if (threadIdx.x < {groups}) {{"
        yield f"    af_ready_init(af_turn + threadIdx.x, {WARPS});"
        yield f"    af_ready_init(af_room + threadIdx.x, {GROUP});"
        yield "  }"
        yield "  __syncthreads();"
        yield f"  const int32_t group = threadIdx.x / {GROUP}, lane = threadIdx.x % {GROUP};"

    def tiles(self, kind: str, count: int, fetches: bool) -> str:
        """The head of a role's loop over grid iterations."""
        if fetches:
            return f"for ({kind} g = blockIdx.x; g < {count}; g += gridDim.x) {{"
        first, step = "blockIdx.x + group * gridDim.x", f"{self.groups} * gridDim.x"
        return f"for ({kind} g = {first}; g < {count}; g += {step}) {{"

    def begin(self, fetches: bool) -> Iterator[str]:
        deal = self.registers
        if fetches:
            yield f"if (group == {self.groups}) {{"
            if deal.change:
                yield f"  af_give_registers({deal.fetching});"
            if not self.boxed:
                yield from (f"  {line}" for line in self.ring.begin())
            return
        yield "} else {"
        if deal.change:
            yield f"  af_take_registers({deal.multiplying});"
        # The first group waits for nobody the first time.
        yield "  uint32_t turn = group == 0;"
        yield "  bool first = true;"

    def end(self, fetches: bool) -> Iterator[str]:
        """After the loop of a role."""
        deal = self.registers
        if fetches and self.boxed:
            # Registers change hands in whole warps.
            yield "  __syncwarp();"
        elif fetches:
            yield from (f"  {line}" for line in self.ring.end())
        if deal.change:
            # Who has few runs to fetch is done before others have taken what it gave.
            yield f"  af_meet({self.own.threads});"
            change = "take" if fetches else "give"
            yield f"  af_{change}_registers({deal.first});"
        if not fetches:
            yield "}"

    def lines(self, loop: Loop, kind: str, role: Callable[[bool], Iterator[str]]) -> Iterator[str]:
        """Both roles, of which each does its part of a grid iteration."""
        yield from self.prologue()
        for fetches in (True, False):
            yield from (f"  {line}" for line in self.begin(fetches))
            yield f"    {self.tiles(kind, extent_of(loop), fetches)}"
            if reads(loop.body, loop.var.name):
                yield f"      const {kind} {loop.var.name} = g;"
            yield from role(fetches)
            if not fetches:
                # The next group may store its sums.
                yield f"      af_arrive(af_room + (group + 1) % {self.groups});"
            yield "    }"
            yield from (f"  {line}" for line in self.end(fetches))


def turns_of(loop: Loop, own: Settings, outside: frozenset[str]) -> TurnRoles:
    """Of a segment whose groups take turns."""
    (stmt,) = (s for s in statements(loop.body) if isinstance(s, TileProduct))
    return TurnRoles(stmt, own, outside)


def turn_text(
    stmt: TileProduct, given: tuple[Spell, Team, frozenset[str], bool], own: Settings, fetches: bool
) -> Iterator[str]:
    """What a role does for the product of a grid iteration."""
    tile, groups = group_tile(stmt, ALONE, own.stages), own.threads // GROUP - 1
    made = TurnText(stmt, tile, *given, own.blocks, all(stmt.boxes), groups)
    return made.fetched() if fetches else made.multiplied()


@dataclass(frozen=True)
class TurnText(GroupText):
    """Prints the product of a group's own tile, of `groups` that take turns."""

    groups: int = 1

    @property
    def group(self) -> str:
        return ""

    def fetched(self) -> Iterator[str]:
        """All runs of a tile, as the group that fetches asks for them."""
        yield "{"
        yield from (f"  {line}" for line in self.places())
        yield from (f"  {line}" for line in self.boxes.coordinates())
        yield "  (void)tc;"
        if self.alone:
            yield from (f"  {line}" for line in self.boxed_runs())
            yield "}"
            return
        yield "  for (int32_t r = 0; r < runs; r++) {"
        yield f"    const int32_t begin = r * {self.tile.run};"
        yield from (f"  {line}" for line in self.ring.fill(self.copied_run()))
        yield "  }"
        yield "}"

    def multiplied(self) -> Iterator[str]:
        """A tile, when it is its turn."""
        yield "{"
        yield from (f"  {line}" for line in self.places(reads=False))
        yield "  if (first) {"
        yield f"    {self.passed_over('group')}"
        yield "    first = false;"
        yield "  }"
        yield from (f"  {line}" for line in self.begun_sums())
        yield "  af_await(af_turn + group, turn);"
        yield from (f"  {line}" for line in self.multiplied_runs())
        yield f"  if (lane % 32 == 0) af_arrive(af_turn + (group + 1) % {self.groups});"
        yield from (f"  {line}" for line in self.last_products())
        yield f"  {self.passed_over(str(self.groups - 1))}"
        yield "  af_await(af_room + group, turn);"
        yield "  turn ^= 1u;"
        yield from (f"  {line}" for line in self.sums(self.pair.store))
        yield f"  {self.team.sync}"
        yield "}"

    def passed_over(self, tiles: str) -> str:
        """The place of the run after those of so many tiles of others."""
        stages = self.tile.stages
        return (
            f"af_slot += {tiles} * runs, af_phase ^= af_slot / {stages} & 1, af_slot %= {stages};"
        )


def fetched(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """What of a grid iteration the group that fetches does: the product, and what it is told by."""
    made: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, Loop):
            if has_product(stmt):
                made.append(replace(stmt, body=fetched(stmt.body)))
        elif not isinstance(stmt, Store | StoreVector):
            made.append(stmt)
    return tuple(made)
