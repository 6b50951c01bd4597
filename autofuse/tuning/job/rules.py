"""The baselines of a job: what rules make of the graph, measured within their share.

They come before the search, so that the result is never worse than they are. They get a share of
the budget, the best predicted first and equal plans once, so that on a graph whose plans take
seconds most of the budget is left for the search.

Ten rules share most of their kernels. Unless all are asked for, a plan is run only while it could
still be the fastest by the kernels that were timed in others; the rest are predicted
(`tuning/search/prices.py`), and said to be.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from autofuse.baselines import BASELINES, baseline_named
from autofuse.cost.bounds import NOMINAL, peak_bytes, plan_bound_us
from autofuse.patience import within
from autofuse.plan.types import Candidate
from autofuse.records import Blame, Failure, FailureKind, Measurement
from autofuse.tuning.budget import BASELINE_SHARE, CONTENDING_SHARE, MOMENT_S
from autofuse.tuning.job.job import LEAST_LIMIT_S, Job
from autofuse.tuning.job.rule_plans import RulePlans
from autofuse.tuning.options import ALL, FAST
from autofuse.tuning.problem import count_groups
from autofuse.tuning.result import Predicted
from autofuse.tuning.search.allocation import WORTH
from autofuse.tuning.search.prices import Prices


@dataclass(frozen=True, slots=True)
class Ruled:
    """What became of the baselines: those left out for want of time, what should be said, and
    microseconds and kernels of those that were predicted only, by name."""

    left_out: tuple[str, ...]
    notes: tuple[str, ...]
    predicted: Mapping[str, Predicted] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RulesAsked:
    """The baselines that were asked for; `all_run`: each is measured, be it slow."""

    names: tuple[str, ...]
    all_run: bool

    @staticmethod
    def of(wish: str | Sequence[str]) -> RulesAsked:
        """ "all", "fast" (as is none), a name or several. Raises AutofuseError for unknown ones."""
        if wish in (FAST, ALL) or not wish:
            return RulesAsked(tuple(BASELINES), wish == ALL)
        names = (wish,) if isinstance(wish, str) else tuple(wish)
        for name in names:
            baseline_named(name)
        return RulesAsked(names, True)


def measure_rules(job: Job, rules: RulesAsked, planned: RulePlans | None = None) -> Ruled:
    """Plan and measure baselines; `job` has plans and records afterwards. `planned` are those that
    were planned before.

    One that works is always looked for; the others are measured while they have taken less than
    their share of the budget."""
    names = rules.names
    budget, begun = job.budget, job.budget.elapsed_s
    # What came before may have left less than their share, or but a moment; who asked gets them.
    moment_s = begun + min(MOMENT_S, BASELINE_SHARE * budget.seconds)
    end_s = math.inf if rules.all_run else max(budget.seconds - budget.reserve_s, moment_s)
    until_s = min(begun + BASELINE_SHARE * budget.seconds, end_s)
    planned = planned or RulePlans(job, names)
    planned.plan(lambda: budget.elapsed_s > until_s)
    candidates, notes = planned.candidates, planned.notes
    prices = None if rules.all_run else _prices(job, candidates, until_s)
    if prices is not None:  # from the first on only those run that can still be the fastest
        until_s = min(begun + CONTENDING_SHARE * budget.seconds, end_s)
    runs = _Runs(job, candidates, until_s, prices)
    job.at_hand += (candidates[n] for n in runs.order if job.fits(candidates[n].plan))
    runs.run()
    found, predicted = runs.found, runs.predicted()
    job.baselines = {name: found[name] for name in names if name in found}
    for name in sorted(job.baselines, key=lambda n: _us(found[n])):
        job.plans[name] = candidates[name].plan
        if not job.fits(candidates[name].plan):
            need = peak_bytes(job.graph, candidates[name].plan)
            notes.append(f"{name} needs {need} bytes of memory, more than allowed")
    for name in predicted:  # their kernels are candidates too
        job.plans[name] = candidates[name].plan
    left_out = tuple(name for name in names if name not in found and name not in predicted)
    late = tuple(name for name in runs.late if name in predicted)
    if late:
        notes.append(
            f"no time was left to run {', '.join(late)}: what is told of them is predicted"
        )
    if left_out:
        notes.append(
            f"baselines left out: {', '.join(left_out)} (the others took "
            f"{job.budget.elapsed_s - begun:.1f} s; {BASELINE_SHARE:.0%} of the budget is theirs)"
        )
    return Ruled(left_out, tuple(notes), predicted)


def _prices(job: Job, candidates: Mapping[str, Candidate], until_s: float) -> Prices | None:
    """None where there is no time to know what kernels plans share, or nothing to gain."""
    if len({c.digest for c in candidates.values()}) < 2 or all(map(job.known, candidates.values())):
        return None
    plans = [candidate.plan for candidate in candidates.values()]
    return within(
        job.budget.impatience(until_s),
        lambda: Prices(job, plans, job.peaks.found or NOMINAL),
    )


class _Runs:
    """Records by name, those with the least bound or price first; equal plans are measured once."""

    def __init__(
        self, job: Job, candidates: Mapping[str, Candidate], until_s: float, prices: Prices | None
    ) -> None:
        self.job, self.candidates, self.until_s = job, candidates, until_s
        self.prices = prices
        self.found: dict[str, Measurement] = {}
        peaks = job.peaks.found or NOMINAL  # they only order baselines
        is_over = job.budget.impatience(until_s)
        bounds = {
            n: within(is_over, partial(plan_bound_us, job.graph, c.plan, peaks)) or math.inf
            for n, c in candidates.items()
        }
        self.order = deque(sorted(candidates, key=lambda n: (self._is_new(n), bounds[n])))
        self.late: list[str] = []  # what there was no time to run
        self._turned = False
        self._cut_short: set[str] = set()

    def _record(self, candidate: Candidate) -> Measurement | None:
        """None where there is no time for it."""
        if candidate.digest in self._cut_short:
            return None
        return self.job.known(candidate) or self._measured(candidate)

    def run(self) -> None:
        """Measure while a plan can still win, and there is time."""
        while self.order and not self._none_can_win():
            name = self.order.popleft()
            candidate = self.candidates[name]
            record = self._record(candidate)
            if record is None:
                self.late.append(name)
                continue
            if record.failure is not None and record.failure.blame is Blame.MACHINE:
                self._note_cut_short(candidate, record.failure)
                self.late.append(name)
                continue
            self.found[name] = self.job.baselines[name] = record
            self.job.show(f"baseline {name}")
            if record.timing is not None and self._wants_more():
                assert self.prices is not None
                self.prices.learn(candidate, record.timing.median_us)

    def predicted(self) -> dict[str, Predicted]:
        """What is predicted of the others; one that is equal to a measured plan takes what that
        took, and is none of them."""
        told: dict[str, Predicted] = {}
        same = {record.candidate_digest: record for record in self.found.values()}
        for name, candidate in self.candidates.items():
            if name in self.found or self.prices is None:
                continue
            if (record := same.get(candidate.digest)) is not None:
                self.found[name] = record
                continue
            told[name] = Predicted(self.prices.of(candidate).us, count_groups(candidate.plan))
        return told

    def _measured(self, candidate: Candidate) -> Measurement | None:
        """None where there is no time."""
        if (until := self._until_s(candidate)) is None:
            return None
        late = self.job.evaluator.start(candidate, until)
        if late is not None and late.blame is Blame.MACHINE:  # to build it again takes as long
            return self.job.evaluator.unmeasured(candidate, late, "baseline")
        until = self._until_s(candidate)  # the reference has taken its time
        return None if until is None else self.job.measure_now(candidate, "baseline", until)

    def _until_s(self, candidate: Candidate) -> float | None:
        others = {self.candidates[n].digest for n in self.order} - {candidate.digest}
        waits = bool(others - self._cut_short)
        if self._cut_short and self.job.budget.room_s <= 0:
            return None  # some seconds beyond the budget are for one alone
        return _until_s(self.job, self.found, self.until_s, waits)

    def _note_cut_short(self, candidate: Candidate, failure: Failure) -> None:
        if failure.kind is FailureKind.COMPILE and not self.found and not self._turned:
            # No time to compile it: the least fused plan has the smallest kernels, many alike.
            self.order.reverse()
            self._turned, self.prices = True, None
        self._cut_short.add(candidate.digest)

    def _wants_more(self) -> bool:
        """Whether kernels are worth timing: of plans that are not known some are left."""
        left = filter(self._is_new, self.order)
        others = any(self.candidates[n].digest not in self._cut_short for n in left)
        return self.prices is not None and others and self.job.budget.elapsed_s < self.until_s

    def _none_can_win(self) -> bool:
        """Whether no plan that is left can be the fastest, and that by anything to speak of. Next
        are plans that were measured before, whose kernels say most of the others; then, of those
        that can win, the one that is likely to take least, so that what time runs out for is what
        is likely to be slow."""
        if self.prices is None:
            return False
        price = {n: self.prices.of(self.candidates[n]) for n in self.order}
        wins_us = (1 - WORTH) * min(map(_us, self.found.values()), default=math.inf)
        lost = {n: self._is_new(n) and price[n].least_us > wins_us for n in self.order}
        self.order = deque(
            sorted(self.order, key=lambda n: (self._is_new(n), lost[n], price[n].us))
        )
        return lost[self.order[0]]

    def _is_new(self, name: str) -> bool:
        """Whether nothing is known of a plan as a whole."""
        return self.job.known(self.candidates[name]) is None


def _until_s(job: Job, found: dict[str, Measurement], until_s: float, others: bool) -> float | None:
    """When the next baseline must end, in seconds of the budget; None: there is no time for it.

    Until a plan works, each gets half of what is left where there are `others` to try: the one with
    the least bound may be slow. The first gets some seconds even of a budget that is too small for
    any."""
    budget = job.budget
    fitting = (m for m in job.stored.values() if job.record_fits(m))
    if all(m.timing is None for m in (*found.values(), *fitting)):
        least = 0.0 if found else LEAST_LIMIT_S
        return budget.elapsed_s + max(budget.room_s / 2 if others else budget.room_s, least)
    late = budget.elapsed_s >= until_s or budget.stop()
    return None if late else until_s


def _us(record: Measurement) -> float:
    return math.inf if record.timing is None else record.timing.median_us
