"""Text of rows that are copied to shared memory ahead (see `passes/fetch_rows.py`).

`fetch(g, stage)` asks for the rows of grid iteration g, if there is one. An iteration asks for the
one that is as many stages later less one, in whose place nobody reads any more, then waits for its
own; `phase` tells the uses of a stage from each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autofuse.kernel.cuda.shape import Team, extent_of
from autofuse.kernel.ir.types import Let, Local, Loop, LoopKind, Origin, Stmt
from autofuse.ops.scalar import Expr, Sym


@dataclass(frozen=True)
class Fetching:
    """The fetched `rows` of a segment and the team that shares them; `dealt` is the loop over the
    warps of a block where each has rows of its own."""

    segment: Loop
    rows: tuple[tuple[Local, Origin], ...]
    dealt: Loop | None
    stages: int

    def stored(self) -> Iterator[Local]:
        """The shared memory of all stages of each row."""
        for row, _ in self.rows:
            yield replace(row, name=f"{row.name}_rows", size=row.size * self.stages, source=None)

    def prologue(
        self, team: Team, kind: Callable[[Sym], str], text: Callable[[Expr], str]
    ) -> Iterator[str]:
        """What comes before the loop over grid iterations, behind the rows' memory."""
        count, stages = team.count * self.stages, self.stages
        own = f" + {team.number} * {stages}" if team.count > 1 else ""
        yield f"  __shared__ __align__(8) uint64_t ready_all[{count}];"
        yield f"  uint64_t *const ready = ready_all{own};"
        yield f"  if (threadIdx.x < {count})"
        yield f"    af_rows_init(ready_all + threadIdx.x, {len(self.rows)}, {team.size});"
        yield "  __syncthreads();"
        grid = self.segment.var
        yield f"  const auto fetch = [&]({kind(grid)} {grid.name}, int32_t stage) {{"
        yield f"    if ({grid.name} >= {extent_of(self.segment)}) return;"
        if self.dealt is not None:
            var = self.dealt.var
            yield f"    const {kind(var)} {var.name} = {team.number};"
            yield f"    if ({var.name} >= {text(self.dealt.extent)}) return;"
            for let in _lets(self.dealt.body):
                yield f"    const {kind(let.sym)} {let.sym.name} = {text(let.value)};"
        for row, source in self.rows:
            place = f"{row.name}_rows + stage * {row.size}, {source.buffer} + {text(source.start)}"
            nbytes = row.size * row.dtype.itemsize
            yield f"    af_fetch({place}, {nbytes}, ready + stage, {team.place}, {team.size});"
        yield "  };"
        yield "  int32_t stage = 0;"
        yield "  uint32_t phase = 0;"
        yield f"  for (int32_t n = 0; n < {stages - 1}; n++) fetch(blockIdx.x + n * gridDim.x, n);"

    def arrival(self, types: Callable[[Local], str]) -> Iterator[str]:
        """At the start of an iteration of the team."""
        ahead = self.stages - 1
        yield f"fetch(g + {ahead} * gridDim.x, stage ? stage - 1 : {ahead});"
        yield "af_await(ready + stage, phase);"
        for row, _ in self.rows:
            place = f"{row.name}_rows + stage * {row.size}"
            yield f"const {types(row)} *const {row.name} = {place};"

    def departure(self) -> str:
        """At its end."""
        return f"if (++stage == {self.stages}) stage = 0, phase ^= 1;"


def fetching(segment: Loop) -> Fetching | None:
    """What a segment fetches, if anything."""
    dealt = next((s for s in segment.body if isinstance(s, Loop) and s.kind is LoopKind.WARP), None)
    body = segment.body if dealt is None else dealt.body
    found = tuple((s, s.source) for s in body if isinstance(s, Local) and s.source is not None)
    return Fetching(segment, found, dealt, found[0][1].stages) if found else None


def _lets(body: tuple[Stmt, ...]) -> Iterator[Let]:
    """The positions that come before the first row: `warp_rows` puts them there."""
    for stmt in body:
        if not isinstance(stmt, Let):
            return
        yield stmt
