"""Kernel passes: each one small file, Kernel -> Kernel, meaning unchanged.

PASSES serve every dialect. C_PASSES reshape lanes for a compiler that vectorises innermost loops;
a GPU runs lanes as threads and needs neither. CUDA_PASSES read the launch settings of the kernel
(`kernel/cuda/settings.py`): who runs what comes first, then what each thread does, then spelling.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.passes.ask_ahead import ask_ahead
from autofuse.kernel.passes.block_folds import block_folds
from autofuse.kernel.passes.box_copies import box_copies
from autofuse.kernel.passes.cache_hints import cache_hints
from autofuse.kernel.passes.column_blocks import column_blocks
from autofuse.kernel.passes.deal_rows import deal_rows
from autofuse.kernel.passes.drop_dead import drop_dead
from autofuse.kernel.passes.early_loads import early_loads
from autofuse.kernel.passes.exact_copies import exact_copies
from autofuse.kernel.passes.fetch_rows import fetch_rows
from autofuse.kernel.passes.flatten_lanes import flatten_lanes
from autofuse.kernel.passes.fuse_lanes import fuse_lanes
from autofuse.kernel.passes.join_rows import join_rows
from autofuse.kernel.passes.keep_rows import keep_rows
from autofuse.kernel.passes.lanes_inward import lanes_inward
from autofuse.kernel.passes.narrow_indices import narrow_indices
from autofuse.kernel.passes.nest_lanes import nest_lanes
from autofuse.kernel.passes.overlap_lanes import overlap_lanes
from autofuse.kernel.passes.pair_stores import pair_stores
from autofuse.kernel.passes.peel_tails import peel_tails
from autofuse.kernel.passes.private_rows import private_rows
from autofuse.kernel.passes.scratch_params import scratch_params
from autofuse.kernel.passes.share_divisors import share_divisors
from autofuse.kernel.passes.short_indices import short_indices
from autofuse.kernel.passes.short_quotients import short_quotients
from autofuse.kernel.passes.split_lanes import split_lanes
from autofuse.kernel.passes.split_rows import split_rows
from autofuse.kernel.passes.stage_panels import stage_panels
from autofuse.kernel.passes.stream_stores import stream_stores
from autofuse.kernel.passes.take_turns import take_turns
from autofuse.kernel.passes.transpose_blocks import transpose_blocks
from autofuse.kernel.passes.transpose_tiles import transpose_tiles
from autofuse.kernel.passes.transposed_copies import transposed_copies
from autofuse.kernel.passes.unswitch_lanes import unswitch_lanes
from autofuse.kernel.passes.verify import verify
from autofuse.kernel.passes.warp_rows import warp_rows
from autofuse.kernel.passes.widen_lanes import widen_lanes

Pass = Callable[[Kernel], Kernel]
PASSES: tuple[Pass, ...] = (exact_copies, drop_dead, fuse_lanes)
C_PASSES: tuple[Pass, ...] = (
    transpose_blocks,
    lanes_inward,
    stream_stores,
    nest_lanes,
    split_lanes,
    unswitch_lanes,
    drop_dead,
    share_divisors,
    ask_ahead,
    block_folds,
    transposed_copies,
    overlap_lanes,
    short_quotients,
)
CUDA_PASSES: tuple[Pass, ...] = (
    flatten_lanes,
    fuse_lanes,
    fetch_rows,
    keep_rows,
    drop_dead,
    transpose_tiles,
    peel_tails,
    column_blocks,
    split_rows,
    warp_rows,
    deal_rows,
    join_rows,
    short_indices,
    widen_lanes,
    pair_stores,
    take_turns,
    stage_panels,
    box_copies,
    scratch_params,
    private_rows,
    drop_dead,
    early_loads,
    cache_hints,
    narrow_indices,
)


# Who sees every kernel before the first pass (named "lower") and after each: tests verify them.
Observer = Callable[[str, Kernel], None]
OBSERVERS: list[Observer] = []


def run_passes(kernel: Kernel, passes: tuple[Pass, ...] = PASSES) -> Kernel:
    """Apply passes in order; OBSERVERS see each result."""
    for observe in OBSERVERS:
        observe("lower", kernel)
    for step in passes:
        kernel = step(kernel)
        for observe in OBSERVERS:
            observe(step.__name__, kernel)
    return kernel


__all__ = [
    "CUDA_PASSES",
    "C_PASSES",
    "OBSERVERS",
    "PASSES",
    "Observer",
    "Pass",
    "ask_ahead",
    "block_folds",
    "box_copies",
    "cache_hints",
    "column_blocks",
    "deal_rows",
    "drop_dead",
    "early_loads",
    "exact_copies",
    "fetch_rows",
    "flatten_lanes",
    "fuse_lanes",
    "join_rows",
    "keep_rows",
    "lanes_inward",
    "narrow_indices",
    "nest_lanes",
    "overlap_lanes",
    "pair_stores",
    "peel_tails",
    "private_rows",
    "run_passes",
    "scratch_params",
    "share_divisors",
    "short_indices",
    "short_quotients",
    "split_lanes",
    "split_rows",
    "stage_panels",
    "stream_stores",
    "take_turns",
    "transpose_blocks",
    "transpose_tiles",
    "transposed_copies",
    "unswitch_lanes",
    "verify",
    "warp_rows",
    "widen_lanes",
]
