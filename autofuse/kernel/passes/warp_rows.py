"""warp_rows: every warp of a block has a row of its own, and folds by shuffles alone.

Before: grid r < 1000 {var s; lane l < 64 {s += x[r*64 + l]} add->s; out[r] = s}
After:  grid r < 125 {warp r_w < 8 {let r_r = r*8 + r_w; var s; lane l < 64 ..; out[r_r] = s}}
Asked for by reduce="warp"; `rows` is the number of rows of a block.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.types import (
    Kernel,
    Let,
    Local,
    Loop,
    LoopKind,
    Stmt,
    Store,
    has_product,
    substitute_stmt,
)
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Lit, Sym


def warp_rows(kernel: Kernel) -> Kernel:
    """Rewrite the segments that fold, keep rows or store uniform values."""
    own = settings(kernel)
    if own.reduce != "warp":
        return kernel
    rows = own.rows or own.warps
    body = tuple(_dealt(s, rows) if _is_rows(s) else s for s in kernel.body)
    return replace(kernel, body=body)


def _is_rows(stmt: Stmt) -> bool:
    """Lanes work together in this segment."""
    if (
        not isinstance(stmt, Loop)
        or stmt.kind is not LoopKind.GRID
        or not isinstance(stmt.extent, Lit)
    ):
        return False
    if has_product(stmt):
        return False  # a block computes it; see deal_rows
    return any(
        isinstance(s, Local | Store) or (isinstance(s, Loop) and bool(s.folds)) for s in stmt.body
    )


def _dealt(stmt: Stmt, rows: int) -> Stmt:
    assert isinstance(stmt, Loop) and isinstance(stmt.extent, Lit)
    total = int(stmt.extent.value)
    block = Sym(stmt.var.name, DType.I64, -(-total // rows))
    warp = Sym(f"{stmt.var.name}_w", DType.I64, rows)
    row = Sym(f"{stmt.var.name}_r", DType.I64, total)
    left = ix.isub(ix.lit(total), ix.imul(block, rows))
    extent = ix.lit(rows) if total % rows == 0 else Call("min", (ix.lit(rows), left), DType.I64)
    place = Let(row, ix.iadd(ix.imul(block, rows), warp))
    body = (place, *(substitute_stmt(s, {stmt.var.name: row}) for s in stmt.body))
    assert block.extent is not None
    return Loop(
        LoopKind.GRID, block, ix.lit(block.extent), (Loop(LoopKind.WARP, warp, extent, body),)
    )
