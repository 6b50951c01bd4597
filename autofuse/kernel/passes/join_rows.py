"""join_rows: a block takes several short rows of items at once.

Before: grid r < 1000 {let p = r; lane l < 40 {out[p*40 + l] = x[p*40 + l] + y[l]}}
After:  grid r < 40 {lane l < 1000 {let p = r*25 + l / 40; out[..] = x[..] + y[l % 40]}}
Else most threads of a block would have nothing to do. Rows that are left over are a segment of
their own. How many items a block takes is the launch setting `tile`.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import settings
from autofuse.kernel.ir.indices import rebuild
from autofuse.kernel.ir.types import Kernel, Loop, LoopKind, Stmt, map_exprs, only_lets
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Expr, Lit, Sym


def join_rows(kernel: Kernel) -> Kernel:
    """Rewrite the segments in the thread-per-element schedule whose lanes are fewer than half a
    tile."""
    own = settings(kernel)
    tile = own.tile or own.threads * own.vector
    body: list[Stmt] = []
    for stmt in kernel.body:
        body.extend(_joined(stmt, tile) if isinstance(stmt, Loop) else [stmt])
    return replace(kernel, body=tuple(body))


def _lanes(lane: Loop) -> int | None:
    """How many there are; None where that is not known, or they fold."""
    if lane.kind is not LoopKind.LANE or lane.folds or not isinstance(lane.extent, Lit):
        return None
    return int(lane.extent.value)


def _joined(grid: Loop, tile: int) -> list[Stmt]:
    lane = grid.body[-1] if grid.body else None
    if (
        grid.kind is not LoopKind.GRID
        or not isinstance(grid.extent, Lit)
        or not isinstance(lane, Loop)
    ):
        return [grid]
    lanes = _lanes(lane)
    if lanes is None or not only_lets(grid.body[:-1]):
        return [grid]
    rows = int(grid.extent.value)
    together = min(rows, tile // lanes)
    if together < 2:
        return [grid]
    blocks, rest = divmod(rows, together)
    parts: list[Stmt] = [_block(grid, lane, (0, blocks, together))]
    if rest:
        parts.append(_block(grid, lane, (blocks * together, 1, rest)))
    return parts


def _block(grid: Loop, lane: Loop, deal: tuple[int, int, int]) -> Loop:
    """`blocks` blocks of `together` rows each, from row `first` on."""
    first, blocks, together = deal
    assert isinstance(lane.extent, Lit)
    lanes = int(lane.extent.value)
    var = Sym(grid.var.name, DType.I64, blocks)
    item = Sym(lane.var.name, DType.I64, lanes * together)
    row = ix.iadd(ix.imul(var, together), ix.idiv(item, lanes))
    values: dict[str, Expr] = {
        grid.var.name: ix.iadd(row, ix.lit(first)),
        lane.var.name: ix.imod(item, lanes),
    }
    inner = (*grid.body[:-1], *lane.body)
    body = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in inner)
    wide = Loop(LoopKind.LANE, item, ix.lit(lanes * together), body)
    return Loop(LoopKind.GRID, var, ix.lit(blocks), (wide,))
