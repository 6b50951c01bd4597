"""How the threads of a team share a register tile on a GPU. Pure functions of the statement.

Every thread accumulates `rows` x `groups * vector` elements in registers, in rows and columns that
lie as far apart as there are threads, so that neighbouring threads read neighbouring elements.
Operands in global memory go through shared memory, a run of terms at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.kernel.ir.indices import is_multiple
from autofuse.kernel.ir.types import Panel, TileProduct
from autofuse.ops.scalar import Lit

# Bytes of an access, and of the shared memory that the operands of one tile go through.
ACCESS, STAGE_BYTES = 16, 20 << 10
# Terms that are fetched at once, the best first: flat tiles need many to keep memory busy.
STAGE_TERMS, STAGE_LEFT = (128, 64, 32, 16, 8), 2048
# Accumulators of a thread from which it takes two runs of columns: fewer loads for each product.
MANY = 32


@dataclass(frozen=True, slots=True)
class Stage:
    """What goes through shared memory: `terms` at a time of the left operand (`pitch` elements from
    one row to the next), the right one, or both."""

    terms: int
    pitch: int
    left: int
    right: int

    @property
    def size(self) -> int:
        """Elements of both; the right one starts behind the left one."""
        return self.left + self.right


def stage_of(stmt: TileProduct, outside: frozenset[str]) -> Stage | None:
    """How operands in the buffers `outside` are fetched, None where both are in scratch."""
    left, right = stmt.left.buffer in outside, stmt.right.buffer in outside
    if not left and not right:
        return None
    lanes = ACCESS // stmt.dtype.itemsize
    for terms in STAGE_TERMS:
        if isinstance(stmt.extent, Lit):
            terms = min(terms, -(-int(stmt.extent.value) // 4) * 4)
        # Rows a vector apart in pitch keep neighbouring ones off each other's banks.
        pitch = terms + lanes
        made = Stage(
            terms, pitch, stmt.rows * pitch * left, -(-terms * stmt.columns // 4) * 4 * right
        )
        small = made.size * stmt.dtype.itemsize <= STAGE_BYTES
        if small and stmt.rows * terms <= STAGE_LEFT:
            break
    return made


@dataclass(frozen=True, slots=True)
class ThreadTile:
    """Threads `across` columns and `down` rows, and what each accumulates: `rows`, and `groups`
    runs of `vector` neighbouring columns. `idle`: some threads have no row."""

    across: int
    down: int
    rows: int
    groups: int
    vector: int
    idle: bool

    @property
    def columns(self) -> int:
        """Columns of one thread."""
        return self.groups * self.vector


def thread_tile(rows: int, columns: int, threads: int, widest: int) -> ThreadTile:
    """The share of each of `threads` threads in a tile, with accesses of at most `widest`
    elements."""
    vector = next(
        v for v in (4, 2, 1)
        if v <= widest and columns % v == 0 and (v == 1 or rows * columns >= v * threads)
    )  # fmt: skip
    groups = 2 if rows * columns >= MANY * threads else 1
    groups = max(groups, -(-columns // (vector * threads)))
    across = -(-columns // (groups * vector))
    down = min(threads // across, rows)
    return ThreadTile(across, down, -(-rows // down), groups, vector, across * down < threads)


def widest_access(stmt: TileProduct, stage: Stage | None, outside: frozenset[str]) -> int:
    """Neighbouring columns that one access may read of the right operand and of the target."""
    lanes = ACCESS // stmt.dtype.itemsize
    panels = [stmt.target] if stage and stage.right else [stmt.target, stmt.right]
    if stmt.target.buffer in outside:
        return 1
    while lanes > 1 and not all(_aligned(p, lanes) for p in panels):
        lanes //= 2
    return lanes


def terms_at_once(stmt: TileProduct, stage: Stage | None) -> int:
    """Terms of the left operand that one access reads; every run of terms is a multiple of it."""
    lanes = ACCESS // stmt.dtype.itemsize
    if stage and stage.left and stage.right:
        return lanes  # runs are filled up with zeros
    near = bool(stage and stage.left) or (stmt.left.inner == 1 and _aligned(stmt.left, lanes))
    return lanes if near and is_multiple(stmt.extent, lanes) else 1


def _aligned(panel: Panel, lanes: int) -> bool:
    return panel.outer % lanes == 0 and is_multiple(panel.start, lanes)
