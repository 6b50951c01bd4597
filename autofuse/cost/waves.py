"""Lower bounds of a kernel whose blocks are known: a multiprocessor computes whole blocks.

Of `blocks` blocks on `sms` multiprocessors one has ceil(blocks / sms) of them at least, and none of
these is faster than its arithmetic at the multiprocessor's own peak, however many it holds at once.
So arithmetic takes ceil(blocks / sms) * sms / blocks times as long as with full waves. That holds
for a launch, not for a group, which may be cut into other blocks. Blocks that differ (a causal
mask) are bounded by their mean and by the longest alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.cost.amounts import Work
from autofuse.cost.bounds import Calibration


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What somebody measured: tensor-core operations of a class ("half", "tf32") on a device, in
    10^9 a second, for a product of `size` cubed. No bound may be above the time that it took."""

    device: str
    kind: str
    gflops: float
    size: int
    source: str

    @property
    def us(self) -> float:
        """Microseconds that the product took."""
        return 2 * self.size**3 / (self.gflops * 1e3)


CEILINGS = (
    Ceiling("H100", "half", 762e3, 8192, "waynehacking8, results/bench.csv"),
    Ceiling("H100", "tf32", 418e3, 8192, "waynehacking8, results/bench.csv"),
    Ceiling("H100", "half", 763e3, 4096, "pranjalssh/fast.cu, README"),
    Ceiling("H100", "half", 808e3, 8192, "pranjalssh/fast.cu, README"),
    Ceiling("H100", "half", 784e3, 4096, "cuBLAS: docs/results/gpu-check-h100.json"),
    Ceiling("RTX4090", "half", 165e3, 8192, "tinygrad, extra/gemm/max_matmul.py"),
)


def makespan_bound(work: Sequence[float], places: int) -> float:
    """The least time in which `places` do pieces of work, whoever does which: never below the mean,
    the longest, or as many of the shortest as one place has at least."""
    if not work:
        return 0.0
    turns = math.ceil(len(work) / places)
    return max(math.fsum(work) / places, max(work), turns * min(work))


def full_share(work: Sequence[float], places: int) -> float:
    """How full the waves are in which `places` do pieces of work, at most: 1 at best."""
    return math.fsum(work) / places / makespan_bound(work, places)


def launch_bound_us(
    work: Work, blocks: Sequence[float], sms: int, calibration: Calibration
) -> float:
    """Microseconds that a kernel takes at least, launched, whose blocks have these shares of its
    arithmetic (in any unit): what it moves, and its arithmetic in whole blocks."""
    compute = calibration.compute_us(work) / full_share(blocks, sms)
    return calibration.launch_us + max(calibration.move_us(work.nbytes), compute)
