"""The C text of a register tile of bf16 that AMX multiplies: tiles of 16 rows of 64 bytes, a row of
which is 16 sums, 32 terms of a row on the left, or a pair of terms of 16 columns on the right.

A kernel's tiles are configured where their heights change, and given back at its end: their state
belongs to a thread. The prelude has the instructions, and what they do where there are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.ir.types import TileProduct
from autofuse.kernel.text.c.pairs import pair_operands
from autofuse.kernel.text.c.tile import Text
from autofuse.kernel.text.dialects import C
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Lit
from autofuse.plan.schedules.pairs import TILE_TERMS

# Tiles of a processor (palette 1), rows of one, and what a kernel calls its state of them.
TILES, SIDE, STATE = 8, 16, "amx"
# What kernels begin with that have some.
AMX_TEXT = f"  af_amx {STATE};"


@dataclass(frozen=True, slots=True)
class _Grid:
    """Tiles of sums, `high` by `wide`, numbered row by row, then those of the left operand, then
    those of the right one. All of the left operand have one, which is as high as their sums."""

    heights: tuple[int, ...]
    wide: int

    @staticmethod
    def of(rows: int, columns: int) -> _Grid:
        """Raises LoweringError where there are not enough tiles, or part of one."""
        heights = tuple(min(SIDE, rows - r) for r in range(0, rows, SIDE))
        grid = _Grid(heights, columns // SIDE)
        if columns % SIDE or grid.sums + len(heights) >= TILES:
            raise LoweringError(f"AMX has no tiles for {rows} x {columns} sums")
        return grid

    @property
    def sums(self) -> int:
        return len(self.heights) * self.wide

    def left(self, i: int) -> int:
        return self.sums + i

    def right(self, j: int) -> int:
        first = self.sums + len(self.heights)
        return first + j % (TILES - first)

    @property
    def shape(self) -> int:
        """The rows of every tile, a byte each."""
        rows = {i * self.wide + j: h for i, h in enumerate(self.heights) for j in range(self.wide)}
        rows |= {self.left(i): h for i, h in enumerate(self.heights)}
        rows |= {self.right(j): SIDE for j in range(self.wide)}
        return sum(h << 8 * t for t, h in rows.items())


def amx_text(stmt: TileProduct, text: Text) -> Iterator[str]:
    """The lines of a block that computes one tile. Raises LoweringError for sums that AMX has no
    tiles for."""
    grid, narrow = _Grid.of(stmt.rows, stmt.columns), C.types[DType.BF16]
    yield from pair_operands(stmt, text)
    yield f"  af_amx_shape(&{STATE}, {grid.shape:#x});"
    places = [
        (i * grid.wide + j, f"tc + {i * SIDE * stmt.target.outer + j * SIDE}")
        for i in range(len(grid.heights))
        for j in range(grid.wide)
    ]
    step = 4 * stmt.target.outer
    for t, place in places:
        if stmt.fresh:
            yield f"  AF_AMX_ZERO(&{STATE}, {t});"
        else:
            yield f"  AF_AMX_LOAD(&{STATE}, {t}, {place}, {step});"
    apart = stmt.left.apart
    steps = f"(te + {TILE_TERMS - 1})" if apart else "te"
    yield f"  for (int64_t tk = 0; tk < {steps} / {TILE_TERMS}; tk++) {{"
    yield from _step(stmt, grid, f"ta + tk * {apart or TILE_TERMS}", stmt.left.outer)
    yield "  }"
    whole = isinstance(stmt.extent, Lit) and int(stmt.extent.value) % TILE_TERMS == 0
    if not whole and not apart:
        yield f"  if (te % {TILE_TERMS}) {{"
        yield f"    const int64_t tk = te / {TILE_TERMS};"
        yield f"    {narrow} rest[{stmt.rows * TILE_TERMS}] __attribute__((aligned(64)));"
        first = f"ta + tk * {TILE_TERMS}, {stmt.left.outer}, {stmt.rows}, te % {TILE_TERMS}"
        yield f"    af_amx_rest(rest, {first});"
        yield from _step(stmt, grid, "rest", TILE_TERMS)
        yield "  }"
    for t, place in places:
        yield f"  AF_AMX_STORE(&{STATE}, {t}, {place}, {step});"
    yield "}"


def _step(stmt: TileProduct, grid: _Grid, left: str, outer: int) -> Iterator[str]:
    """What is done with one tile of terms: each of both operands is loaded once."""
    high, pairs = len(grid.heights), stmt.right.outer

    def load_left(i: int) -> str:
        place = f"{left} + {i * SIDE * outer}"
        return f"    AF_AMX_LOAD(&{STATE}, {grid.left(i)}, {place}, {2 * outer});"

    def load_right(j: int) -> str:
        place = f"tb + tk * {TILE_TERMS // 2 * pairs} + {2 * SIDE * j}"
        return f"    AF_AMX_LOAD(&{STATE}, {grid.right(j)}, {place}, {2 * pairs});"

    loaded = set[str]()
    for j, i in product(range(grid.wide), range(high)):
        for line in (load_left(i), load_right(j)):
            if line not in loaded:
                yield line
                loaded.add(line)
        numbers = f"{i * grid.wide + j}, {grid.left(i)}, {grid.right(j)}"
        yield f"    AF_AMX_PAIRS(&{STATE}, {numbers});"
