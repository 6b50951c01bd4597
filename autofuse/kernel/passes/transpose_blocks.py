"""transpose_blocks: strided reads of C kernels go through square blocks turned over in registers.

Before: grid r < 100 {lane l < 200 {out[r*200 + l] = exp(x[l*100 + r])}}
After:  grid b < 8 {local t[64*64]; transpose t = x; serial a {lane l {out[..] = exp(t[a*64 + l])}}}
Every line of memory is then read and written once, whole. What is only copied is turned straight
from memory to memory, along the axis that is contiguous in the input: few lines at a time
are read on and on, which processors fetch ahead. Asked for by transpose=True.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.ir.indices import rebuild
from autofuse.kernel.ir.types import Kernel, Let, Local, Loop, LoopKind, Panel, Stmt, Transpose
from autofuse.kernel.passes.strided_reads import StridedRead, Turned, turned
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Load, Sym
from autofuse.plan.parameters import STREAM, TRANSPOSE
from autofuse.plan.types import LaunchConfig

I64 = DType.I64
# Elements along both sides of a block, the largest that together stay in the first-level cache.
SIDES, BLOCK_BYTES = (64, 32, 16), 1 << 15
# Elements along the axis of what is only copied.
LONGEST = 2048
# Below so many elements along the axis, strided loads are as good.
LEAST = 8


def transpose_blocks(kernel: Kernel) -> Kernel:
    """Rewrite thread-per-element segments that read along another axis than they store."""
    launch = LaunchConfig(kernel.facts)
    if not TRANSPOSE.of(launch):
        return kernel
    inputs = frozenset(p.name for p in kernel.params if p.role == "in")
    body: list[Stmt] = []
    for n, stmt in enumerate(kernel.body):
        found = turned(stmt, inputs, LEAST)
        body.append(stmt if found is None else _Blocks(found, n, STREAM.of(launch)).run())
    return replace(kernel, body=tuple(body))


class _Blocks:
    def __init__(self, found: Turned, number: int, stream: bool) -> None:
        self.found, self.name, self.stream = found, f"t{number}", stream
        self.copied = found.copied()
        size = sum(read.load.dtype.itemsize for read in found.reads)
        side = next((s for s in SIDES if s * s * size <= BLOCK_BYTES), SIDES[-1])
        self.wide = _even(found.width, side)
        self.high = _even(found.size, side if self.copied is None else LONGEST)
        self.across, self.down = -(-found.width // self.wide), -(-found.size // self.high)
        self.block = Sym(f"{self.name}_b", I64, found.others * self.across * self.down)
        place = ix.imod(self.block, self.across * self.down)
        self.first_item = ix.imul(ix.idiv(place, self.down), self.wide)
        self.first_row = ix.imul(ix.imod(place, self.down), self.high)
        self.width = _count(self.first_item, found.width, self.wide)
        self.height = _count(self.first_row, found.size, self.high)

    def run(self) -> Loop:
        body = self.through_scratch() if self.copied is None else (self.straight(self.copied),)
        return Loop(LoopKind.GRID, self.block, ix.lit(self.block.extent or 0), body)

    def straight(self, target: Panel) -> Transpose:
        (read,) = self.found.reads
        target = replace(target, start=self.first(target.start))
        return replace(self.turn(target, read), stream=self.stream)

    def through_scratch(self) -> tuple[Stmt, ...]:
        tiles = [f"{self.name}_tile{n}" for n in range(len(self.found.reads))]
        parts = list(zip(tiles, self.found.reads, strict=True))
        size = self.high * self.wide
        body: list[Stmt] = [Local(tile, read.load.dtype, size) for tile, read in parts]
        body += (self.turn(Panel(tile, ix.lit(0), self.wide), read) for tile, read in parts)
        return (*body, self.rows(parts))

    def turn(self, target: Panel, read: StridedRead) -> Transpose:
        source = Panel(read.load.buffer, self.first(read.index), read.step)
        return Transpose(target, source, self.width, self.height, read.load.dtype)

    def first(self, index: Expr) -> Expr:
        """What an index is at the first place of the block."""
        places = {self.found.item.name: self.first_item}
        return rebuild(index, {**places, self.found.row.name: self.row(self.first_row)})

    def row(self, along: Expr) -> Expr:
        return self.found.row_at(along, ix.idiv(self.block, self.across * self.down))

    def rows(self, parts: list[tuple[str, StridedRead]]) -> Loop:
        """The work of a block, row by row, its strided loads from what was turned."""
        step, lane = Sym(f"{self.name}_a", I64, self.high), Sym(f"{self.name}_l", I64, self.wide)
        at = ix.iadd(ix.imul(step, self.wide), lane)
        swaps = {read.load: Load(tile, at, read.load.dtype) for tile, read in parts}
        work = self.found.work_at(self.row(ix.iadd(self.first_row, step)), swaps)
        item = Let(self.found.item, ix.iadd(self.first_item, lane))
        return Loop(
            LoopKind.SERIAL,
            step,
            self.height,
            (Loop(LoopKind.LANE, lane, self.width, (item, *work)),),
        )


def _even(whole: int, most: int) -> int:
    """The side of blocks of at most `most`, all about as long."""
    blocks = -(-whole // most)
    return min(-(-whole // (blocks * SIDES[-1])) * SIDES[-1], most)


def _count(first: Expr, whole: int, block: int) -> Expr:
    """How many of `whole` places a block has that starts at `first`."""
    if whole % block == 0:
        return ix.lit(block)
    return Call("min", (ix.lit(block), ix.isub(ix.lit(whole), first)), I64)
