"""transpose_tiles: strided reads go through a tile in shared memory.

Before: grid r < 100 {lane l < 200 {out[r*200 + l] = x[l*100 + r]}}
After:  grid b < 28 {local t[32*33]; lane m < 1024 {t[..] = x[..]}; lane n < 1024 {out[..] = t[..]}}
Threads walk along the axis that is contiguous in the input when they read, and along the one that
is contiguous in the output when they store; the odd row length keeps them off each other's banks.
Asked for by transpose=True. Tiles are 32 by 32; what lies beyond an edge is read clamped and not
stored.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.settings import WARP, settings
from autofuse.kernel.ir.indices import rebuild
from autofuse.kernel.ir.types import Kernel, Let, Local, Loop, LoopKind, Stmt, Store
from autofuse.kernel.passes.strided_reads import Turned, turned
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym

I64 = DType.I64
PITCH = WARP + 1


def transpose_tiles(kernel: Kernel) -> Kernel:
    """Rewrite thread-per-element segments that read along another axis than they store."""
    if not settings(kernel).transpose:
        return kernel
    inputs = frozenset(p.name for p in kernel.params if p.role == "in")
    body: list[Stmt] = []
    for n, stmt in enumerate(kernel.body):
        found = turned(stmt, inputs, WARP)
        body.append(stmt if found is None else _Tiles(found, n).run())
    return replace(kernel, body=tuple(body))


class _Tiles:
    def __init__(self, found: Turned, number: int) -> None:
        self.p = found
        self.across, self.down = -(-found.width // WARP), -(-found.size // WARP)
        self.name = f"t{number}"
        self.block = Sym(f"{self.name}_b", I64, found.others * self.across * self.down)
        self.exact = found.width % WARP == 0 and found.size % WARP == 0
        self.tiles = [f"{self.name}_tile{n}" for n in range(len(found.reads))]

    def run(self) -> Loop:
        locals_ = [
            Local(tile, read.load.dtype, WARP * PITCH)
            for tile, read in zip(self.tiles, self.p.reads, strict=True)
        ]
        body: tuple[Stmt, ...] = (*locals_, self.read(), self.write())
        return Loop(LoopKind.GRID, self.block, ix.lit(self.block.extent or 0), body)

    def places(self, tag: str, lane: Sym, along_items: bool) -> tuple[list[Stmt], Sym, Sym]:
        """Where a thread is: row and item, clamped to what there is when it only reads."""
        fast, slow = ix.imod(lane, WARP), ix.idiv(lane, WARP)
        tile = ix.imod(self.block, self.across * self.down)
        item0 = ix.imul(ix.imod(tile, self.across), WARP)
        axis0 = ix.imul(ix.idiv(tile, self.across), WARP)
        item = ix.iadd(item0, fast if along_items else slow)
        axis = ix.iadd(axis0, slow if along_items else fast)
        if not along_items:
            item = _at_most(item, self.p.width - 1)
            axis = _at_most(axis, self.p.size - 1)
        own_item = Sym(
            self.p.item.name if along_items else f"{self.name}_i", I64, self.p.item.extent
        )
        own_axis = Sym(f"{self.name}_a{tag}", I64, self.p.size)
        return [Let(own_item, item), Let(own_axis, axis)], own_item, own_axis

    def row(self, axis: Sym) -> Expr:
        outer = ix.idiv(self.block, self.across * self.down)
        return self.p.row_at(axis, outer)

    def read(self) -> Loop:
        lane = Sym(f"{self.name}_m", I64, WARP * WARP)
        places, item, axis = self.places("r", lane, False)
        values: dict[str, Expr] = {self.p.item.name: item, self.p.row.name: self.row(axis)}
        slot = ix.iadd(ix.imul(ix.idiv(lane, WARP), PITCH), ix.imod(lane, WARP))
        stores = [
            Store(tile, slot, replace(read.load, index=rebuild(read.index, values)))
            for tile, read in zip(self.tiles, self.p.reads, strict=True)
        ]
        body: tuple[Stmt, ...] = (*places, *stores)
        return Loop(LoopKind.LANE, lane, ix.lit(WARP * WARP), body)

    def write(self) -> Loop:
        lane = Sym(f"{self.name}_n", I64, WARP * WARP)
        places, item, axis = self.places("w", lane, True)
        slot = ix.iadd(ix.imul(ix.imod(lane, WARP), PITCH), ix.idiv(lane, WARP))
        swaps = {
            read.load: Load(tile, slot, read.load.dtype)
            for tile, read in zip(self.tiles, self.p.reads, strict=True)
        }
        work = self.p.work_at(self.row(axis), swaps)
        if not self.exact:
            inside = ix.iand(
                Call("lt", (item, ix.lit(self.p.width)), DType.BOOL),
                Call("lt", (axis, ix.lit(self.p.size)), DType.BOOL),
            )
            work = (Loop(LoopKind.WHEN, Sym(f"{self.name}_o", I64, 1), inside, work),)
        return Loop(LoopKind.LANE, lane, ix.lit(WARP * WARP), (*places, *work))


def _at_most(value: Expr, limit: int) -> Expr:
    known = ix.bounds(value)
    if known is not None and known[1] <= limit:
        return value
    return Call("min", (value, ix.lit(limit)), I64)
