"""Kernel passes: each one small file, Kernel -> Kernel, meaning unchanged.

PASSES serve every dialect. C_PASSES reshape lanes for a compiler that vectorises innermost loops;
a GPU runs lanes as threads and needs neither.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from autofuse.kernel.ir import Kernel
from autofuse.kernel.passes.block_folds import block_folds
from autofuse.kernel.passes.drop_dead import drop_dead
from autofuse.kernel.passes.fuse_lanes import fuse_lanes
from autofuse.kernel.passes.lanes_inward import lanes_inward
from autofuse.kernel.passes.stream_stores import stream_stores
from autofuse.kernel.passes.verify import verify

Pass = Callable[[Kernel], Kernel]
PASSES: tuple[Pass, ...] = (drop_dead, fuse_lanes)
C_PASSES: tuple[Pass, ...] = (lanes_inward, stream_stores, block_folds)


def run_passes(kernel: Kernel, passes: tuple[Pass, ...] = PASSES) -> Kernel:
    """Apply passes in order; with AUTOFUSE_DEBUG set the kernel is verified after each."""
    debug = bool(os.environ.get("AUTOFUSE_DEBUG"))
    for step in passes:
        kernel = step(kernel)
        if debug:
            verify(kernel)
    return kernel


__all__ = [
    "C_PASSES",
    "PASSES",
    "Pass",
    "block_folds",
    "drop_dead",
    "fuse_lanes",
    "lanes_inward",
    "run_passes",
    "stream_stores",
    "verify",
]
