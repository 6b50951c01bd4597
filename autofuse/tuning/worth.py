"""When more tuning no longer pays: what it can be expected to gain, given what was seen so far.

The certified gain (incumbent less lower bound) says what is possible, and lower bounds are loose: a
kernel seldom takes as little as its bytes and operations allow. What measured kernels took beyond
their bounds says what the others will take, with a spread that starts wide and narrows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autofuse.cover import certified_gain_s

# Before anything is known, times over bounds spread by this much (standard deviation of the
# logarithm), which counts as much as so many measured kernels.
PRIOR_SPREAD, PRIOR_WEIGHT = 0.2, 4
# As many kernels of a kind as the mean of all kernels counts for in the mean of the kind.
KIND_WEIGHT = 2
# What a first new round of launch configurations gains on average, as a fraction of the plan.
ROUND_GAIN = 0.02


@dataclass(frozen=True, slots=True)
class Pace:
    """Times over lower bounds: the logarithm's mean, of all kernels and by kind, and its standard
    deviation within a kind."""

    mean: float
    spread: float
    kinds: Mapping[object, float] = field(default_factory=dict)

    def time_us(self, kind: object, bound_us: float, deviations: float = 0.0) -> float:
        """A kernel's time, so many standard deviations off the middle of its kind."""
        return bound_us * math.exp(self.kinds.get(kind, self.mean) + deviations * self.spread)


def pace_of(seen: Iterable[tuple[object, float, float]]) -> Pace:
    """The pace of measured kernels, given as (kind, microseconds, lower bound). The mean of a kind
    that was seen little is near that of all."""
    logs: dict[object, list[float]] = {}
    for kind, us, bound in seen:
        if us > 0 and bound > 0:
            logs.setdefault(kind, []).append(math.log(us / bound))
    count = sum(map(len, logs.values()))
    mean = sum(map(sum, logs.values())) / max(count, 1)
    kinds = {
        kind: (sum(each) + KIND_WEIGHT * mean) / (len(each) + KIND_WEIGHT)
        for kind, each in logs.items()
    }
    squares = sum((log - kinds[kind]) ** 2 for kind, each in logs.items() for log in each)
    total = squares + PRIOR_WEIGHT * PRIOR_SPREAD**2
    spread = math.sqrt(total / (count + PRIOR_WEIGHT))
    # Of few kernels the mean itself is uncertain.
    return Pace(mean, spread * math.sqrt(1 + 1 / max(count, 1)), kinds)


def expected_gain_us(
    incumbent_us: float, measured_us: float, others: Iterable[tuple[object, float]], pace: Pace
) -> float:
    """The expected improvement on the incumbent by a plan whose measured kernels take
    `measured_us` and whose others are of these (kind, bound) (Mockus 1978); 0 with no kernel to
    measure."""
    middle = [pace.time_us(kind, bound) for kind, bound in others]
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


@dataclass(frozen=True, slots=True)
class Promises:
    """Expected gains of plans that were then measured, and what these gained, microseconds in all.

    Who measures the plan that promises most measures promises that are too high (the optimizer's
    curse, Smith and Winkler 2006); how far these were kept says how far to believe the next."""

    count: int = 0
    promised_us: float = 0.0
    gained_us: float = 0.0

    def kept(self, promised_us: float, gained_us: float) -> Promises:
        """With one more plan."""
        return Promises(self.count + 1, self.promised_us + promised_us, self.gained_us + gained_us)

    @property
    def trust(self) -> float:
        """Gained over promised, beginning at 1 with the weight of one promise."""
        share = self.gained_us / self.promised_us if self.promised_us > 0 else 0.0
        return (1 + self.count * share) / (1 + self.count)


def pays(gain_us: float, runs: float | None, seconds: float) -> bool:
    """Whether `runs` runs save more than `seconds` when each gains so much; None: always."""
    return runs is None or certified_gain_s(gain_us, 0.0, runs) >= seconds
