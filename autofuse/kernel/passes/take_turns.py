"""take_turns: with `pingpong` a warpgroup has a grid iteration of its own, and those that multiply
take turns.

Before: grid b { .. tile 128x128 by wgmma, all threads; lane l { .. } }
After:  the same, the tile of one group alone, and lanes are its threads
What all threads of a block do together cannot be: folds, rows of warps, parts of a tile that meet,
operands that are computed first. A group knows where its next tile begins in the ring of stages
because every grid iteration has one product of as many runs.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.mma import row_table
from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.tile import Join
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    TileProduct,
    has_product,
    statements,
)
from autofuse.ops.scalar import Lit

# Loops that the threads of a group can run as those of a block do.
OF_A_GROUP = {LoopKind.LANE, LoopKind.SERIAL, LoopKind.UNROLLED, LoopKind.WHEN}


def _one_product(grid: Loop, outside: set[str]) -> bool:
    products = [s for s in statements(grid.body) if isinstance(s, TileProduct)]
    return len(products) == 1 and _fits(products[0], outside)


def take_turns(kernel: Kernel) -> Kernel:
    """Mark the product of a kernel that groups can have one at a time."""
    if not settings(kernel).pingpong or len(kernel.body) != 1:
        return kernel
    (grid,) = kernel.body
    if not isinstance(grid, Loop) or grid.kind is not LoopKind.GRID:
        return kernel
    if not _one_product(grid, {p.name for p in kernel.params}) or not _alike(grid.body):
        return kernel
    return replace(kernel, body=(replace(grid, body=_marked(grid.body)),))


def _fits(stmt: TileProduct, outside: set[str]) -> bool:
    """A product of warpgroups whose operands are in memory and which has as many runs every
    time."""
    read = {stmt.left.buffer, stmt.right.buffer} <= outside
    known = isinstance(stmt.extent, Lit) and stmt.fresh
    return by_group(stmt.mma) and read and known and not row_table(stmt)


def _alike(body: tuple[Stmt, ...]) -> bool:
    """Whether the one product of a body is computed once, nothing is stored before it, and what
    comes after it the threads of a group can do."""
    (at,) = (k for k, s in enumerate(body) if isinstance(s, TileProduct) or has_product(s))
    if not all(isinstance(s, Let | Local) for s in body[:at]):
        return False
    after = [s for stmt in body[at + 1 :] for s in (stmt, *_inner(stmt))]
    if not all(_of_a_group(s) for s in after):
        return False
    stmt = body[at]
    if not isinstance(stmt, Loop):
        return True
    once = stmt.kind is LoopKind.SERIAL and isinstance(stmt.extent, Lit) and stmt.extent.value == 1
    return once and _alike(stmt.body)


def _inner(stmt: Stmt) -> tuple[Stmt, ...]:
    return tuple(statements(stmt.body)) if isinstance(stmt, Loop) else ()


def _of_a_group(stmt: Stmt) -> bool:
    if isinstance(stmt, Loop):
        return stmt.kind in OF_A_GROUP and not stmt.folds
    return not isinstance(stmt, Join | Local)


def _marked(body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    return tuple(
        replace(s, alone=True) if isinstance(s, TileProduct)
        else replace(s, body=_marked(s.body)) if isinstance(s, Loop) else s
        for s in body
    )  # fmt: skip
