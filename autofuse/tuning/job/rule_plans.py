"""What baselines make of the graph, planned one after another while there is time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from autofuse import faults
from autofuse.patience import within
from autofuse.plan.types import Candidate
from autofuse.tuning.budget import BASELINE_SHARE
from autofuse.tuning.job.job import Job
from autofuse.tuning.plans import DEFAULT_PLAN, baseline_candidate

# Seconds that planning the first baseline gets in any case.
LEAST_PLANNING_S = 1.0


class RulePlans:
    """The candidates that were planned by now, by name, and what should be said of them."""

    def __init__(self, job: Job, names: Sequence[str]) -> None:
        self.job = job
        self.candidates: dict[str, Candidate] = {}
        self.notes: list[str] = []
        # First what would serve alone, should there be no time for others.
        self._left = deque(sorted(names, key=lambda n: n != DEFAULT_PLAN))

    def plan(self, is_over: Callable[[], bool]) -> None:
        """Go on until `is_over`, but not before there is one."""
        begun = self.job.budget.elapsed_s
        while self._left and not (self.candidates and is_over()):
            name = self._left.popleft()
            self.job.show(f"planning baseline {name}")
            try:
                planned = within(
                    self.job.budget.impatience(self._until_s(begun)),
                    partial(baseline_candidate, self.job.graph, name, self.job.space),
                )
            except Exception as error:  # whatever a rule did wrong: the others plan
                self.notes.append(faults.tell(f"baseline {name}", error))
                continue
            if planned is None:  # no time: nor is there for the others
                self._left.clear()
                return
            candidate, cut = planned
            if cut:
                text = f"{cut} groups of {name} had to be cut: no kernel can be them"
                self.notes.append(text)
            self.candidates[name] = candidate

    def _until_s(self, begun: float) -> float:
        """Until when a baseline is planned, in seconds of the budget: while there is time for all
        where there are others; the first one gets a moment in any case."""
        budget = self.job.budget
        if self.candidates:
            return min(begun + BASELINE_SHARE * budget.seconds, budget.seconds - budget.reserve_s)
        return max(budget.seconds, begun + LEAST_PLANNING_S)
