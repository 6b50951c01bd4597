"""stage_panels: operands of a tile product that lie in global memory get scratch to go through.

Before: tile 64x64x1000 f32: acc[..] = in0[..] * panel[..]
After:  local stage0[2304]; tile 64x64x1000 f32: acc[..] = in0[..] * panel[..] through stage0
How much, and in which runs of terms, `cuda/tile.py` says, of tensor cores `cuda/mma.py`:
there both operands go through scratch wherever they lie, in the place of the sums where these only
begin afterwards.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda.mma import mma_tile
from autofuse.kernel.cuda.settings import Settings, settings
from autofuse.kernel.cuda.tile import stage_of
from autofuse.kernel.cuda.wgmma import ALONE, group_tile
from autofuse.kernel.ir.instructions import by_group
from autofuse.kernel.ir.types import (
    Kernel,
    Local,
    Loop,
    Stmt,
    TileProduct,
    names_read,
    names_written,
)


def stage_panels(kernel: Kernel) -> Kernel:
    """Declare scratch before every tile product that needs some."""
    outside = frozenset(p.name for p in kernel.params)
    return replace(kernel, body=_Stages(outside, settings(kernel)).block(kernel.body))


class _Stages:
    def __init__(self, outside: frozenset[str], own: Settings) -> None:
        self.outside, self.own, self.count = outside, own, 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        done: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Loop):
                done.append(replace(stmt, body=self.block(stmt.body)))
            elif isinstance(stmt, TileProduct) and stmt.mma:
                self.multiplied(stmt, done)
            elif isinstance(stmt, TileProduct):
                done += self.staged(stmt)
            else:
                done.append(stmt)
        return tuple(done)

    def staged(self, stmt: TileProduct) -> list[Stmt]:
        stage = stage_of(stmt, self.outside)
        if stage is None:
            return [stmt]
        name = self.fresh()
        return [Local(name, stmt.dtype, stage.size), replace(stmt, stage=name)]

    def fresh(self) -> str:
        self.count += 1
        return f"stage{self.count - 1}"

    def multiplied(self, stmt: TileProduct, done: list[Stmt]) -> None:
        """Put a product on tensor cores behind what is `done` of its block, with its scratch."""
        dealt = group_tile if by_group(stmt.mma) else mma_tile
        threads = ALONE if stmt.alone else self.own.threads
        size, name = dealt(stmt, threads, self.own.stages).room, stmt.target.buffer
        used = [k for k, s in enumerate(done) if name in names_read(s) | names_written(s)]
        # Who has a tile alone has its sums while runs of the next one come.
        apart = not stmt.fresh or stmt.alone
        local = done[used[0]] if len(used) == 1 and not apart else None
        if isinstance(local, Local):
            room = -(-size * stmt.dtype.itemsize // local.dtype.itemsize)
            done[used[0]] = replace(local, size=max(local.size, room))
            done.append(replace(stmt, stage=name))
            return
        stage = self.fresh()
        done += [Local(stage, stmt.dtype, size), replace(stmt, stage=stage)]
