"""When more tuning no longer pays: what it can be expected to gain, given what was seen so far.

The certified gain (incumbent less lower bound) says what is possible, and lower bounds are loose: a
kernel seldom takes as little as its bytes and operations allow. What measured kernels took beyond
their bounds says what the others will take, with a spread that starts wide and narrows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.search.exact import certified_gain_s

# Before anything is known, times over bounds spread by this much (standard deviation of the
# logarithm), which counts as much as so many measured kernels.
PRIOR_SPREAD, PRIOR_WEIGHT = 0.2, 4
# What a first new round of launch configurations gains on average, as a fraction of the plan.
ROUND_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """Times over lower bounds: the logarithm's mean and standard deviation."""

    mean: float
    spread: float

    def time_us(self, bound_us: float, deviations: float = 0.0) -> float:
        """A kernel's time, so many standard deviations off the middle."""
        return bound_us * math.exp(self.mean + deviations * self.spread)


def pace_of(pairs: Sequence[tuple[float, float]]) -> Pace:
    """The pace of measured kernels, given as (microseconds, lower bound)."""
    logs = [math.log(us / bound) for us, bound in pairs if us > 0 and bound > 0]
    mean = sum(logs) / len(logs) if logs else 0.0
    squares = sum((log - mean) ** 2 for log in logs)
    total = squares + PRIOR_WEIGHT * PRIOR_SPREAD**2
    spread = math.sqrt(total / (len(logs) + PRIOR_WEIGHT))
    # Of few kernels the mean itself is uncertain.
    return Pace(mean, spread * math.sqrt(1 + 1 / max(len(logs), 1)))


def expected_gain_us(
    incumbent_us: float, measured_us: float, bounds_us: Sequence[float], pace: Pace
) -> float:
    """The expected improvement on the incumbent by a plan whose measured kernels take
    `measured_us` and whose others have these bounds (Mockus 1978); 0 with no kernel to measure."""
    middle = [pace.time_us(bound) for bound in bounds_us]
    sigma = pace.spread * sum(middle)
    if sigma <= 0:
        return 0.0
    mean = measured_us + sum(middle) * math.exp(pace.spread**2 / 2)
    z = (incumbent_us - mean) / sigma
    below = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return sigma * max(0.0, z * below + density)


def round_gain_us(planned_us: float, vain: int) -> float:
    """What one more round of launch configurations gains on average after `vain` rounds that gained
    nothing."""
    return planned_us * ROUND_GAIN / (1 + vain)


def pays(gain_us: float, runs: float | None, seconds: float) -> bool:
    """Whether `runs` runs save more than `seconds` when each gains so much; None: always."""
    return runs is None or certified_gain_s(gain_us, 0.0, runs) >= seconds
