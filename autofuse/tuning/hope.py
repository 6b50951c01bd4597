"""Hope: what launch configurations that were not tried yet could make of a kernel.

Plans are compared by the best times seen, and most kernels were seen under their default
configuration only. What tuning has given some kernel it may give any other: a plan that would win
then is worth a few trials. Nothing is proved by it; what is proved rests on lower bounds alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.tuning.launches import Kernel

# After so many configurations of a kernel little more is expected of the others.
TRIED = 5
# A hope that is worth following beats the plan there is by this fraction.
WORTH = 0.01
# After so many hopes in a row that came to nothing no more are followed.
VAIN = 4


def tuning_gain(kernels: Iterable[Kernel]) -> float:
    """The least best time over first time of any kernel that was timed more than once; 1 if none
    was."""
    ratios = (kernel.best[0] / kernel.first_us for kernel in kernels if kernel.us)
    return min(ratios, default=1.0)


def hopeful_costs(
    kernels: Mapping[str, Kernel], bounds: Mapping[str, float]
) -> dict[str, float | None]:
    """Microseconds of each kernel if it gains by tuning what any has gained, None where it does not
    work. A lower bound is never undercut, and what was tried often has had its gain."""
    gain = tuning_gain(kernels.values())
    costs: dict[str, float | None] = {}
    for key, kernel in kernels.items():
        if kernel.us:
            us = kernel.best[0]
            settled = kernel.settled or len(kernel.us) + len(kernel.bad) >= TRIED
            costs[key] = us if settled else max(us * gain, min(us, bounds.get(key, 0.0)))
        elif kernel.failed:
            costs[key] = None
    return costs
