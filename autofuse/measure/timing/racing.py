"""When sampling may end because nothing is left to decide: races.

A race drops a candidate as soon as an interval for it lies above the best known (Hoeffding races,
Maron and Moore 1994; F-race, Birattari et al. 2002). Hoeffding's interval needs bounded samples,
and times have no bound; so the interval here is of the median and free of any distribution: all of
n samples lie above the median of their own distribution in 2^-n of all cases (the sign test). What
disturbs a machine makes samples longer, seldom shorter, and lasts for a while, so a candidate must
also be some way above: farther, the fewer samples there are.

Nothing is decided here: whom a candidate races against is told with the job.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

# What ended the sampling of a candidate that was dropped.
RACE = "race"
# Samples between two looks: to look after each would find the luckiest streak.
LOOK = 4
# From so many samples on a candidate may be dropped, where the least of them is so many times the
# best known; 1.1 is also how far behind finalists may be, so nothing dropped was one.
STEPS = ((4, 1.5), (8, 1.1))


@dataclass(frozen=True, slots=True)
class Race:
    """The best time known, in microseconds, of each group of a plan (in order; none given: of no
    group anything is known) and of all plans. Infinite: nobody is known, so there is no race; 0:
    there is nothing to decide, because the time itself is known."""

    groups_us: tuple[float, ...] = ()
    plan_us: float = math.inf

    def rivals(self, groups: int) -> tuple[float, ...]:
        """The rival of each of so many groups, then that of the plan."""
        return (*(self.groups_us or (math.inf,) * groups), self.plan_us)


NO_RACE = Race()


def has_lost(samples: Sequence[float], rival_us: float) -> bool:
    """Whether the candidate with these samples, in microseconds, is dropped."""
    n = len(samples)
    if n < STEPS[0][0]:
        return False
    factor = next(factor for least, factor in reversed(STEPS) if n >= least)
    return min(samples) > factor * rival_us
