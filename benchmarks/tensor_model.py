"""What share of the tensor cores' peak a product may reach. A multiprocessor holds some blocks at
once, and for a run of terms of all of them

    tensor = multiply-adds / those of a clock
    shared = bytes that products, or loads of matrices, read, and bytes copied / 128 a clock
    issue  = instructions of all warps / 4 a clock
    share  = tensor of all tiles / (the clocks of the multiprocessor that has most to do, times how
             many there are)

Those clocks are the longest of the three for each run of each tile, as whole tiles are dealt to
multiprocessors, and what nothing hides: the first run of a tile on its way, and its sums to shared
memory and back, and results to memory, where a multiprocessor has but one block at a time (else the
others multiply meanwhile); and the parts of sums that are left in memory and added up, always.
Where groups of a block take turns, one does that for its tile while another multiplies the next.

A pipeline begins when its first run has come, however many stages there are, so that is what
filling it takes. It says where a kernel stands on paper, and nothing in it was measured.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.backends.cuda.devices import Target
from benchmarks.sass_model import SCHEDULERS
from search_spaces.cuda_multiply import L2_BYTES

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


@dataclass(frozen=True, slots=True)
class Blocks:
    """Those of a launch: so many are `resident` on a multiprocessor, `tiles` tiles of `runs` runs
    of terms in all, of which those that are no whole turn of all multiprocessors are in `parts`
    parts; clocks `after` the runs of a tile, and in which the sums of a tile are left in memory or
    read there (`meeting`). Of blocks whose groups take `turns` one multiplies a tile at a time."""

    resident: int
    tiles: int
    runs: int
    parts: int = 1
    after: float = 0.0
    meeting: float = 0.0
    turns: bool = False


def tensor_share(target: Target, run: RunFacts, blocks: Blocks, peak: str = "half") -> float:
    """Of the `peak` of a class of factors (`Target.peaks`)."""
    rate = target.peaks[peak] / (2 * target.sms * target.clock_ghz)
    longest = max(
        run.multiply_adds / rate,
        (run.read + run.copied) / BANKS_BYTES,
        run.instructions / SCHEDULERS,
    )
    whole, rest = divmod(blocks.tiles, target.sms)
    cut = math.ceil(rest * blocks.parts / target.sms)
    if blocks.turns:
        # The last tile's results alone are hidden by no other tile.
        clocks = (whole + cut) * max(blocks.runs * longest, blocks.after) + longest + blocks.after
        return blocks.tiles * blocks.runs * run.multiply_adds / rate / (target.sms * clocks)
    clocks = (whole + cut / blocks.parts) * blocks.runs * longest
    alone = min(blocks.resident, whole + cut) == 1
    clocks += (whole + cut if alone else 1) * longest
    clocks += (whole + min(cut, 1) if alone else 0) * blocks.after
    if blocks.parts > 1:
        clocks += (cut + blocks.parts * min(cut, 1)) * blocks.meeting
    return blocks.tiles * blocks.runs * run.multiply_adds / rate / (target.sms * clocks)


def after_runs(target: Target, elements: int, itemsize: int) -> float:
    """Clocks until the results of a tile of so many sums are stored: sums to shared memory and
    back, and results at this multiprocessor's part of the bandwidth."""
    a_clock = target.bandwidth / (target.sms * target.clock_ghz)
    return 2 * elements * 4 / BANKS_BYTES + elements * itemsize / a_clock


def meeting(elements: int) -> float:
    """Clocks in which so many sums go to the second-level cache, or come from there."""
    return elements * 4 / L2_BYTES
