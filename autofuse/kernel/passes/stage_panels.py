"""stage_panels: operands of a tile product that lie in global memory get scratch to go through.

Before: tile 64x64x1000 f32: acc[..] = in0[..] * panel[..]
After:  local stage0[2304]; tile 64x64x1000 f32: acc[..] = in0[..] * panel[..] through stage0
How much, and in which runs of terms, `kernel/cuda_tile.py` says.
"""

from __future__ import annotations

from dataclasses import replace

from autofuse.kernel.cuda_tile import stage_of
from autofuse.kernel.ir import Kernel, Local, Loop, Stmt, TileProduct


def stage_panels(kernel: Kernel) -> Kernel:
    """Declare scratch before every tile product that needs some."""
    return replace(
        kernel, body=_Stages(frozenset(p.name for p in kernel.params)).block(kernel.body)
    )


class _Stages:
    def __init__(self, outside: frozenset[str]) -> None:
        self.outside, self.count = outside, 0

    def block(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        done: list[Stmt] = []
        for stmt in body:
            if isinstance(stmt, Loop):
                done.append(replace(stmt, body=self.block(stmt.body)))
            elif isinstance(stmt, TileProduct):
                done += self.staged(stmt)
            else:
                done.append(stmt)
        return tuple(done)

    def staged(self, stmt: TileProduct) -> list[Stmt]:
        stage = stage_of(stmt, self.outside)
        if stage is None:
            return [stmt]
        name = f"stage{self.count}"
        self.count += 1
        return [Local(name, stmt.dtype, stage.size), replace(stmt, stage=name)]
