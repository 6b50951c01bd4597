"""Launch settings of CUDA kernels, as passes and the printer read them from `Kernel.facts`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autofuse.kernel.ir.types import Kernel
from autofuse.plan import parameters as p
from autofuse.plan.types import LaunchConfig

WARP = 32
# Bytes that keep memory busy if every thread has asked for them before it waits: 2 KB a warp.
IN_FLIGHT = 64
MOST_THREADS = 1024
# The smallest block: it runs as a warp of which half is idle.
HALF_WARP = 16
FOLDS_WANT_WARPS = f"a block of {HALF_WARP} threads cannot fold rows: whole warps do"
# Blocks of a cluster that every device with clusters runs (CUDA programming guide).
MOST_CLUSTER = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What CUDA_PASSES and the printer ask for: rows of `plan.parameters.CUDA_LAUNCH`, which says
    what they mean, under the same names and with the same defaults. With a `tile` of 0 a block
    takes a vector per thread at once."""

    threads: int = p.BLOCK_THREADS.default
    tile: int = p.CUDA_LAUNCH["tile"].default
    vector: int = p.VECTOR.default
    grid: str = p.GRID.default
    reduce: str = p.REDUCE.default
    rows: int = p.ROWS.default
    keep: str = p.KEEP.default
    compiler_unroll: int = p.COMPILER_UNROLL.default
    blocks: int = p.BLOCKS.default
    parts: int = p.PARTS.default
    transpose: bool = p.TRANSPOSE.default
    early: bool = p.EARLY.default
    stages: int = p.STAGES.default
    hints: bool = p.HINTS.default
    pingpong: bool = p.PINGPONG.default
    maps: bool = p.MAPS.default

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.threads // WARP


@lru_cache(maxsize=1024)
def _settings(launch: LaunchConfig) -> Settings:
    p.check_launch(p.CUDA_LAUNCH, launch)
    known: dict[str, Any] = {k: v for k, v in launch.settings if k in Settings.__dataclass_fields__}
    made = Settings(**known)
    whole_warps = made.threads >= WARP and made.threads % WARP == 0
    if not (whole_warps or made.threads == HALF_WARP) or made.threads > MOST_THREADS:
        raise p.LaunchSettingError(
            f"a block of {made.threads} threads is not {HALF_WARP}, 32, 64, ... or {MOST_THREADS}"
        )
    if made.reduce and not whole_warps:
        raise p.LaunchSettingError(FOLDS_WANT_WARPS)
    return made


def settings(kernel: Kernel) -> Settings:
    """The settings of a kernel, defaults where it has none; raises LaunchSettingError on others."""
    return _settings(LaunchConfig(kernel.facts))
