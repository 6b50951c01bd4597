"""What share of the tensor cores' peak a product may reach. A multiprocessor holds some blocks at
once, and for a run of terms of all of them

    tensor = multiply-adds / those of a clock
    shared = bytes that products, or loads of matrices, read, and bytes copied / 128 a clock
    issue  = instructions of all warps / 4 a clock
    share  = tensor / the longest of the three, times how full the waves of blocks are, times the
             part of the time that is left when what fills the stages is taken off and, where a
             multiprocessor holds one block, what no other one hides: sums go to shared memory and
             back, and results to memory

It says where a kernel stands on paper, and nothing in it was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.backends.cuda.devices import Target
from benchmarks.sass_model import SCHEDULERS

BANKS_BYTES = 128


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a block does for one run of terms: products of a warp (or warpgroup), loads of four
    matrices of a warp, and of all its warps the multiply-adds, bytes that products read of shared
    memory, bytes copied there, and instructions."""

    products: int
    matrix_loads: int
    multiply_adds: int
    read: int
    copied: int
    instructions: int


def tensor_share(
    target: Target, run: RunFacts, resident: int, grid: int, runs: int, stages: int,
    after: float = 0.0, peak: str = "half", tail: int = 1,
) -> float:  # fmt: skip
    """Of the `peak` of a class of factors (`Target.peaks`): `resident` blocks on a multiprocessor,
    `grid` tiles in all, those that do not fill a wave in `tail` parts, `runs` runs of terms and
    `stages` of them in shared memory; `after` them so many clocks."""
    rate = target.peaks[peak] / (2 * target.sms * target.clock_ghz)
    tensor = resident * run.multiply_adds / rate
    times = (
        tensor,
        resident * (run.read + run.copied) / BANKS_BYTES,
        resident * run.instructions / SCHEDULERS,
    )
    at_once, longest = resident * target.sms, max(times)
    whole, rest = divmod(grid, at_once)
    waves = grid / at_once / (whole + math.ceil(rest / at_once) / tail)
    return waves * runs * tensor / ((runs + stages - 1) * longest + after)


def after_runs(target: Target, elements: int, itemsize: int) -> float:
    """Clocks until the results of a tile of so many sums are stored: sums to shared memory and
    back, and results at this multiprocessor's part of the bandwidth."""
    a_clock = target.bandwidth / (target.sms * target.clock_ghz)
    return 2 * elements * 4 / BANKS_BYTES + elements * itemsize / a_clock
