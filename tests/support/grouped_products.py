"""Grouped products on warpgroups."""

from __future__ import annotations

from autofuse.plan.parameters import GROUP_MMA, Setting
from tests.support.emulation import OneKernel
from tests.support.mma_runs import made

USUAL: dict[str, Setting] = {
    "mma": GROUP_MMA, "threads": 384, "micro": "128x128", "row_block": 128, "column_block": 128,
    "stages": 3,
}  # fmt: skip


def grouped(name: str, dtype: str = "bf16", sizes: tuple[int, int, int] = (136, 72, 264),
            **settings: Setting) -> OneKernel:  # fmt: skip
    return made(name, dtype, sizes, **{**USUAL, **settings})
