"""peel_tails: the last, shorter tile of every row becomes a segment of its own.

Before: grid b < 12 {lane l < min(1024, 2500 - b % 3 * 1024) {..}}
After:  grid b < 8 {lane l < 1024 {..}}; grid b < 4 {lane l < 452 {..}}
Lane loops then have literal extents, so that threads run them without testing where they end.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.indices import mentions, rebuild
from autofuse.kernel.ir.types import Kernel, Loop, LoopKind, Stmt, map_exprs, statements
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Sym

# Larger bodies are not printed twice.
MOST_STATEMENTS = 300


def peel_tails(kernel: Kernel) -> Kernel:
    """Split grid loops whose one lane loop ends early in the last tile."""
    body: list[Stmt] = []
    for stmt in kernel.body:
        body.extend(_peeled(stmt) if isinstance(stmt, Loop) else [stmt])
    return replace(kernel, body=tuple(body))


def _peeled(grid: Loop) -> list[Stmt]:
    lanes = [s for s in grid.body if isinstance(s, Loop)]
    if grid.kind is not LoopKind.GRID or not isinstance(grid.extent, Lit) or len(lanes) != 1:
        return [grid]
    tiles = _tiles(lanes[0].extent, grid.var)
    if tiles is None or sum(1 for _ in statements(grid.body)) > MOST_STATEMENTS:
        return [grid]
    rows = int(grid.extent.value) // tiles
    parts: list[Stmt] = []
    if tiles > 1:
        whole = Sym(grid.var.name, DType.I64, rows * (tiles - 1))
        row, tile = ix.idiv(whole, tiles - 1), ix.imod(whole, tiles - 1)
        parts.append(_at(grid, whole, ix.iadd(ix.imul(row, tiles), tile)))
    last = Sym(grid.var.name, DType.I64, rows)
    parts.append(_at(grid, last, ix.iadd(ix.imul(last, tiles), ix.lit(tiles - 1))))
    return parts


def _tiles(extent: Expr, block: Sym) -> int | None:
    """Tiles in a row when `extent` is min(tile, width - number of the tile in its row * tile)."""
    match extent:
        case Call(fn="min", args=(Lit(value=int(tile)), left)) if mentions(left, {block.name}):
            width = rebuild(left, {block.name: ix.lit(0)})
        case _:
            return None
    if not isinstance(width, Lit) or int(width.value) < 1:
        return None
    tiles = -(-int(width.value) // tile)
    expected = ix.isub(width, ix.imul(ix.imod(block, tiles), tile))
    return tiles if left == expected else None


def _at(grid: Loop, var: Sym, block: Expr) -> Loop:
    """The iterations at `block`, a function of `var`."""
    values = {grid.var.name: block}
    body = tuple(map_exprs(s, lambda e: rebuild(e, values)) for s in grid.body)
    assert var.extent is not None
    return Loop(LoopKind.GRID, var, ix.lit(var.extent), body)
