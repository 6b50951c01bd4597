"""What `--runs N` comes to on recorded spaces, against the best budget fixed beforehand.

Total cost is what tuning was charged plus N runs of the plan it ended with. The best fixed budget
is found with hindsight: one long search, stopped at whatever moment makes the total least.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.replay import Trace, replay
from benchmarks.searchers import endless_s
from benchmarks.spaces import RecordedSpace, load

RUNS = (100, 10_000, 1_000_000, 100_000_000)


@dataclass(frozen=True, slots=True)
class BudgetRow:
    """One space and number of runs. `total_s` is what tuning for `runs` runs and the runs took,
    `best_s` what the best fixed budget would have taken, `tuned_s` and `fixed_s` the charged
    seconds of tuning in each."""

    space: str
    runs: int
    tuned_s: float
    total_s: float
    fixed_s: float
    best_s: float

    @property
    def ratio(self) -> float:
        """Total cost over that of the best fixed budget; 1 is as good as hindsight."""
        return self.total_s / self.best_s


def bench_budgets(paths: Iterable[Path], runs: Sequence[int] = RUNS) -> list[BudgetRow]:
    """Every space under every number of runs. Raises BenchError for an unreadable space."""
    return [row for path in paths for row in budgets_of(load(path), runs)]


def budgets_of(space: RecordedSpace, runs: Sequence[int] = RUNS) -> list[BudgetRow]:
    """One space under every number of runs."""
    endless = endless_s(space)
    whole = replay(space, "exact", 0, endless)
    rows = []
    for count in runs:
        trace = replay(space, "exact", 0, endless, runs=count)
        fixed = min(whole.improvements, key=lambda i: _total(i.seconds, i.us, count))
        rows.append(
            BudgetRow(
                space.name, count, trace.seconds, _total(trace.seconds, _last(trace), count),
                fixed.seconds, _total(fixed.seconds, fixed.us, count),
            )
        )  # fmt: skip
    return rows


def _total(seconds: float, us: float, runs: int) -> float:
    return seconds + runs * us * 1e-6


def _last(trace: Trace) -> float:
    return trace.improvements[-1].us
