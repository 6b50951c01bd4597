"""The CUDA text of a register tile: all threads of a team compute it together.

Barriers: before scratch is written over that other threads may still be reading, and after, so that
all see the target and may fill the operands' panels again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from autofuse.kernel.cuda.shape import Team
from autofuse.kernel.cuda.tile import (
    Stage,
    ThreadTile,
    stage_of,
    terms_at_once,
    thread_tile,
    widest_access,
)
from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.dialects import CUDA
from autofuse.ops.scalar import Expr, Lit

Spell = Callable[[Expr], str]
# Elements that one thread asks for before it waits for the first, and terms in one turn of a loop.
FETCHED, UNROLLED = 8, 8


def tile_text(
    stmt: TileProduct, text: Spell, team: Team, outside: frozenset[str], wide: bool
) -> Iterator[str]:
    """The lines of a block that computes one tile. Buffers `outside` are in global memory, where
    positions need 64 bits if `wide`."""
    stage = stage_of(stmt, outside)
    own = thread_tile(stmt.rows, stmt.columns, team.size, widest_access(stmt, stage, outside))
    yield from _Tile(stmt, text, team, stage, own, "int64_t" if wide else "int32_t").lines()


@dataclass(frozen=True)
class _Tile:
    stmt: TileProduct
    text: Spell
    team: Team
    stage: Stage | None
    own: ThreadTile
    position: str

    def lines(self) -> Iterator[str]:
        stmt, own, team = self.stmt, self.own, self.team
        yield "{"
        yield f"  const int32_t tx = {team.place} % {own.across}, ty = {team.place} / {own.across};"
        for name, panel in (("ta", stmt.left), ("tb", stmt.right), ("tc", stmt.target)):
            yield f"  const auto {name} = {panel.buffer} + {self.text(panel.start)};"
        yield f"  {self.element} sums[{own.rows}][{own.columns}];"
        yield from self.elements(self.start)
        if self.stage is None:
            yield f"  {team.sync}"
            yield from self.products(self.text(stmt.extent), "  ")
        else:
            yield from self.staged(self.stage)
        yield from self.elements(self.finish)
        yield f"  {team.sync}"
        yield "}"

    @property
    def element(self) -> str:
        return CUDA.types[self.stmt.dtype]

    # --- rows and columns of a thread -------------------------------------------------------------

    def row(self) -> str:
        """The row `m` of a thread's row `ti`: the last one again where it has none."""
        place = f"ti * {self.own.down} + ty" if self.own.rows > 1 else "ty"
        exact = self.own.rows * self.own.down == self.stmt.rows and not self.own.idle
        return (
            f"const int32_t m = {place if exact else f'af_min_i32({place}, {self.stmt.rows - 1})'};"
        )

    def column(self) -> str:
        """The first column `n` of a thread's run `tj`: the last ones again where it has none."""
        own = self.own
        place = f"(tj * {own.across} + tx)" if own.groups > 1 else "tx"
        place = place if own.vector == 1 else f"{place} * {own.vector}"
        last = self.stmt.columns - own.vector
        exact = own.columns * own.across == self.stmt.columns
        return f"const int32_t n = {place if exact else f'af_min_i32({place}, {last})'};"

    def owned(self) -> str:
        """Whether this thread is the one that stores row `ti` and run `tj`."""
        own, tests = self.own, list[str]()
        if own.idle:
            tests.append(f"ty < {own.down}")
        if own.rows * own.down != self.stmt.rows:
            tests.append(f"ti * {own.down} + ty < {self.stmt.rows}")
        if own.columns * own.across != self.stmt.columns:
            place = f"(tj * {own.across} + tx) * {own.vector}"
            tests.append(f"{place} < {self.stmt.columns}")
        return f"if ({' && '.join(tests)}) " if tests else ""

    def elements(self, visit: Callable[[], Iterator[str]]) -> Iterator[str]:
        """A loop over the runs of columns that a thread accumulates, rows outside."""
        yield "  #pragma unroll"
        yield f"  for (int32_t ti = 0; ti < {self.own.rows}; ti++) {{"
        yield "    #pragma unroll"
        yield f"    for (int32_t tj = 0; tj < {self.own.groups}; tj++) {{"
        yield from (f"      {line}" for line in visit())
        yield "    }"
        yield "  }"

    def start(self) -> Iterator[str]:
        own = self.own
        if self.stmt.fresh:
            zeros = " = ".join(self.sum(v) for v in range(own.vector))
            yield f"{zeros} = 0;"
            return
        yield self.row()
        yield self.column()
        place = f"m * {self.stmt.target.outer} + n"
        yield self.read("w", "tc", place, own.vector)
        for v in range(own.vector):
            yield f"{self.sum(v)} = {_part('w', v, own.vector)};"

    def finish(self) -> Iterator[str]:
        own = self.own
        yield self.row()
        yield self.column()
        place = f"m * {self.stmt.target.outer} + n"
        if own.vector == 1:
            yield f"{self.owned()}tc[{place}] = {self.sum(0)};"
        else:
            values = ", ".join(self.sum(v) for v in range(own.vector))
            kind = self.vector(own.vector)
            yield f"{self.owned()}af_store_vector({kind}, tc, {place}, {values});"

    def sum(self, v: int) -> str:
        """The accumulator of row `ti` and column `v` of run `tj`."""
        own = self.own
        if own.groups == 1:
            return f"sums[ti][{v}]"
        return f"sums[ti][tj * {own.vector} + {v}]" if own.vector > 1 else "sums[ti][tj]"

    def vector(self, width: int) -> str:
        return f"af_{self.stmt.dtype}x{width}"

    def read(self, name: str, base: str, place: str, width: int) -> str:
        """A line that reads `width` neighbours in one access."""
        if width == 1:
            return f"const {self.element} {name} = {base}[{place}];"
        kind = self.vector(width)
        return f"const {kind} {name} = af_load_vector({kind}, {base}, {place});"

    # --- products ---------------------------------------------------------------------------------

    def products(self, count: str, pad: str) -> Iterator[str]:
        """`count` terms of all accumulators, from scratch."""
        stmt, own, stage = self.stmt, self.own, self.stage
        once = terms_at_once(stmt, stage)
        # An operand that is not staged is read from where its own terms are.
        term = "(t0 + tk)" if stage else "tk"
        left, right = f"m * {stmt.left.outer} + {term} * {stmt.left.inner}", term
        bases, line = ["ta", "tb"], stmt.right.outer
        if stage and stage.left:
            bases[0], left = "sa", f"m * {stage.pitch} + tk"
        if stage and stage.right:
            bases[1], right, line = "sb", "tk", stmt.columns
        yield f"{pad}#pragma unroll {max(1, UNROLLED // once)}"
        advance = "tk++" if once == 1 else f"tk += {once}"
        yield f"{pad}for (int32_t tk = 0; tk < {count}; {advance}) {{"
        yield f"{pad}  {self.element} b[{once}][{own.columns}];"
        yield f"{pad}  #pragma unroll"
        yield f"{pad}  for (int32_t tj = 0; tj < {own.groups}; tj++) {{"
        yield f"{pad}    {self.column()}"
        for u in range(once):
            at = f"({right} + {u}) * {line} + n"
            yield f"{pad}    {self.read(f'w{u}', bases[1], at, own.vector)}"
            for v in range(own.vector):
                yield f"{pad}    b[{u}][tj * {own.vector} + {v}] = {_part(f'w{u}', v, own.vector)};"
        yield f"{pad}  }}"
        yield f"{pad}  #pragma unroll"
        yield f"{pad}  for (int32_t ti = 0; ti < {own.rows}; ti++) {{"
        yield f"{pad}    {self.row()}"
        yield f"{pad}    {self.read('a', bases[0], left, once)}"
        yield f"{pad}    #pragma unroll"
        yield f"{pad}    for (int32_t tj = 0; tj < {own.columns}; tj++) {{"
        for u in range(once):
            yield f"{pad}      sums[ti][tj] += {_part('a', u, once)} * b[{u}][tj];"
        yield f"{pad}    }}"
        yield f"{pad}  }}"
        yield f"{pad}}}"

    # --- operands through shared memory -----------------------------------------------------------

    def staged(self, stage: Stage) -> Iterator[str]:
        """Runs of terms, fetched by all and then multiplied."""
        stmt, sync = self.stmt, self.team.sync
        extent, run = self.text(stmt.extent), stage.terms
        whole = isinstance(stmt.extent, Lit) and int(stmt.extent.value) % run == 0
        if stage.left:
            yield f"  const auto sa = {stmt.stage} + 0;"
        if stage.right:
            yield f"  const auto sb = {stmt.stage} + {stage.left};"
        yield f"  for (int32_t t0 = 0; t0 < {extent}; t0 += {run}) {{"
        test = "" if whole else f"t0 + k < {extent} ? "
        if stage.left:
            yield from self.left_copy(stage, test)
        if stage.right:
            yield from self.right_copy(stage, test)
        yield f"    {sync}"
        both = stage.left and stage.right
        count = str(run) if both or whole else f"af_min_i32({run}, {extent} - t0)"
        yield from self.products(count, "    ")
        # The last run is followed by the barrier of the whole tile.
        yield f"    if (t0 + {run} < {extent}) {sync}"
        yield "  }"

    def left_copy(self, stage: Stage, test: str) -> Iterator[str]:
        left, rows, run = self.stmt.left, self.stmt.rows, stage.terms
        if left.inner <= left.outer:
            split = f"const int32_t m = i / {run}, k = i % {run};"
        else:
            split = f"const int32_t m = i % {rows}, k = i / {rows};"
        place = f"({self.position})m * {left.outer} + ({self.position})(t0 + k) * {left.inner}"
        value = f"{test}ta[{place}]" + (f" : ({self.element})0" if test else "")
        yield from self.copy(rows * run, split, f"sa[m * {stage.pitch} + k] = {value};")

    def right_copy(self, stage: Stage, test: str) -> Iterator[str]:
        right, columns = self.stmt.right, self.stmt.columns
        split = f"const int32_t k = i / {columns}, n = i % {columns};"
        value = f"{test}tb[({self.position})(t0 + k) * {right.outer} + n]"
        value += f" : ({self.element})0" if test else ""
        yield from self.copy(stage.terms * columns, split, f"sb[i] = {value};")

    def copy(self, count: int, split: str, store: str) -> Iterator[str]:
        """`count` elements, dealt to the threads one by one."""
        yield f"    #pragma unroll {FETCHED}"
        head = f"for (int32_t i = {self.team.place}; i < {count}; i += {self.team.size})"
        yield f"    {head} {{ {split} {store} }}"


def _part(name: str, place: int, width: int) -> str:
    """One element of what a line has read."""
    return name if width == 1 else f"{name}.x[{place}]"
