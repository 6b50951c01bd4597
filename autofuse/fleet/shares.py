"""Which graph is tuned next: the one of which most is expected, for each second of a unit.

A slice gains a fraction of the plan's time. What the next one will gain is expected to be the mean
of what was expected before and of what came of it (exponential smoothing with 1/2), beginning at
FIRST_GAIN, and never more than the gap of its search. Slices of a graph double, so that what a
session repeats (planning, the final comparison) costs no more than the search itself. Every graph
gets its first slice before any gets a second: of a graph that was never tuned nothing is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from autofuse.fleet.engine import SliceResult
from autofuse.graph.types import Graph

FIRST_GAIN = 0.1
FIRST_S, LONGEST_S = 20.0, 320.0
# A slice that is shorter than this ends before its search begins.
LEAST_S = 5.0
# Slices in a row that a graph may lose or fail before it is given up.
MOST_FAILURES = 3


@dataclass(frozen=True, slots=True)
class GraphShare:
    """What one graph got and gained; `weight` is how often it runs, against the others.

    `expected` is the fraction of its time that the next slice is expected to save."""

    name: str
    graph: Graph
    weight: float = 1.0
    slices: int = 0
    spent_s: float = 0.0
    first_us: float | None = None
    best_us: float | None = None
    search_gap: float | None = None
    expected: float = FIRST_GAIN
    failures: int = 0
    error: str = ""

    @property
    def next_s(self) -> float:
        """Seconds of its next slice. After one that was lost or failed it is half as long: on units
        that are taken away often, short ones end."""
        return max(LEAST_S, min(LONGEST_S, FIRST_S * 2.0**self.slices) / 2.0**self.failures)

    @property
    def is_done(self) -> bool:
        """Whether nothing more is expected of it: proved, or given up."""
        return self.failures >= MOST_FAILURES or (self.slices > 0 and self.expected <= 0.0)

    @property
    def gain_rate(self) -> float:
        """Microseconds of all its runs that a second of tuning is expected to save."""
        return self.weight * (self.best_us or 0.0) * self.expected / self.next_s

    def after(self, result: SliceResult) -> GraphShare:
        """This graph once a slice has ended."""
        spent = self.spent_s + result.seconds
        if result.best_us is None:
            failures = self.failures + 1
            return replace(self, spent_s=spent, failures=failures, error=result.error)
        best = result.best_us if self.best_us is None else min(self.best_us, result.best_us)
        if self.best_us is None:
            expected = FIRST_GAIN
        else:
            expected = (self.expected + 1.0 - best / self.best_us) / 2
        if result.search_gap is not None:
            expected = min(expected, result.search_gap)
        return replace(
            self, slices=self.slices + 1, spent_s=spent, best_us=best, search_gap=result.search_gap,
            first_us=best if self.first_us is None else self.first_us, expected=expected,
            failures=0, error="",
        )  # fmt: skip


def next_share(shares: Iterable[GraphShare], busy: Collection[str]) -> GraphShare | None:
    """The graph that gets the next slice of a unit that is idle; None if none is to have one.

    Graphs in `busy` are being tuned: another session would only repeat that one's work."""
    waiting = [one for one in shares if one.name not in busy and not one.is_done]
    new = [one for one in waiting if one.slices == 0]
    if new:
        return min(new, key=lambda one: (one.failures, -one.weight))
    return max(waiting, key=lambda one: one.gain_rate, default=None)
