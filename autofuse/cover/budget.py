"""The stopping rule of the exact planner: how much measuring pays for a plan that runs N times."""

from __future__ import annotations

from collections.abc import Sequence

US_PER_SECOND = 1e6


def certified_gain_s(incumbent_us: float | None, bound_us: float, runs: float) -> float:
    """Seconds that `runs` runs can still save at most; infinite while there is no incumbent."""
    if incumbent_us is None:
        return float("inf")
    return runs * max(0.0, incumbent_us - bound_us) / US_PER_SECOND


def worth_measuring(
    incumbent_us: float | None, bound_us: float, runs: float | None, seconds: Sequence[float]
) -> int:
    """How many of the next measurements, in order of promise, can still pay for themselves.

    `runs`: how often the plan will run; None means that only the plan counts. `seconds`: what each
    measurement of the next batch would take. The whole batch where it takes no longer than all
    later runs could gain by it, else 0: part of a batch is no bargain, as its pieces only make a
    better plan together, and one by one they could each pass while their sum never pays.
    """
    if runs is None:
        return len(seconds)
    gain = certified_gain_s(incumbent_us, bound_us, runs)
    return len(seconds) if gain >= sum(seconds) else 0
