"""What times and costs can be: what is stored may be anybody's, and an impossible time would be the
best for ever."""

from __future__ import annotations

import math
from dataclasses import astuple
from itertools import pairwise

from autofuse import records as r
from tuning_db.errors import DatabaseError

# Twelve days in microseconds, and thirty years in seconds.
_MOST_US, _MOST_S, _MOST_SAMPLES = 1e12, 1e9, 1 << 40
CACHES = ("cold", "warm")


def impossible_timing(timing: r.Timing) -> str:
    """What is impossible about a timing; "" where nothing is."""
    ordered = (0.0, timing.min_us, timing.q1_us, timing.median_us, timing.q3_us, _MOST_US)
    spread = (timing.mean_us, timing.stdev_us)
    if not all(map(math.isfinite, (*ordered, *spread))):
        return "it has a time that is not a finite number"
    if not all(a <= b for a, b in pairwise(ordered)) or timing.median_us == 0:
        return "its times are not positive and in order"
    if not all(0 <= each <= _MOST_US for each in spread):
        return "its mean or deviation cannot be"
    if not 0 < timing.n <= _MOST_SAMPLES:
        return f"it has {timing.n} samples"
    return "" if timing.cache in CACHES else "its cache state is unknown"


def impossible_cost(cost: r.Cost) -> str:
    """What is impossible about seconds spent; "" where nothing is."""
    fits = all(0 <= seconds <= _MOST_S for seconds in astuple(cost))
    return "" if fits else "its seconds cannot be"


def check_outcome(where: str, timing: r.Timing | None, failure: r.Failure | None) -> None:
    """Raise DatabaseError unless there is one of the two and its times are numbers."""
    if (timing is None) == (failure is None):
        raise DatabaseError(f"{where} needs either a timing or a failure")
    wrong = "" if timing is None else impossible_timing(timing)
    if wrong:
        raise DatabaseError(f"{where} cannot be: {wrong}")


def possible(timing: r.Timing) -> r.Timing:
    """`timing`, as it was read; raises DatabaseError for one that cannot be."""
    wrong = impossible_timing(timing)
    if wrong:
        raise DatabaseError(f"a row is damaged: a timing cannot be: {wrong}")
    return timing
