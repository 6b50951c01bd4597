"""The baselines of a job: what rules make of the graph, measured within their share.

They are measured before the search, so that the result is never worse than they are. They get a
share of the budget, the best predicted first and equal plans once, so that on a graph whose plans
take seconds most of the budget is left for the search.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from autofuse import faults
from autofuse.cost.bounds import NOMINAL, peak_bytes, plan_bound_us
from autofuse.patience import within
from autofuse.plan.types import Candidate
from autofuse.records import Blame, FailureKind, Measurement
from autofuse.tuning.budget import BASELINE_SHARE
from autofuse.tuning.job import LEAST_LIMIT_S, Job
from autofuse.tuning.plans import baseline_candidate

# Seconds that planning the first baseline gets in any case.
LEAST_PLANNING_S = 1.0


@dataclass(frozen=True, slots=True)
class Ruled:
    """What became of the baselines: those left out for want of time, and what should be said."""

    left_out: tuple[str, ...]
    notes: tuple[str, ...]


def measure_rules(job: Job, names: Sequence[str]) -> Ruled:
    """Plan and measure the baselines called `names`; `job` has plans and records afterwards.

    One that works is always looked for; the others are measured while they have taken less than
    their share of the budget."""
    begun = job.budget.elapsed_s
    allowed = BASELINE_SHARE * job.budget.seconds
    notes: list[str] = []
    candidates: dict[str, Candidate] = {}
    for name in names:
        if candidates and job.budget.elapsed_s - begun > allowed:
            break
        job.show(f"planning baseline {name}")
        try:
            planned = within(
                partial(_is_late, job, begun, bool(candidates)),
                partial(baseline_candidate, job.graph, name, job.space),
            )
        except Exception as error:  # whatever a rule did wrong: the others plan
            notes.append(faults.tell(f"baseline {name}", error))
            continue
        if planned is None:
            break
        candidate, cut = planned
        if cut:
            notes.append(f"{cut} groups of {name} had to be cut: no kernel can be them")
        candidates[name] = candidate
    job.at_hand += (one for one in candidates.values() if job.fits(one.plan))
    found = _measure(job, candidates, begun + allowed)
    job.baselines = {name: found[name] for name in names if name in found}
    for name in sorted(job.baselines, key=lambda n: _us(found[n])):
        job.plans[name] = candidates[name].plan
        if not job.fits(candidates[name].plan):
            need = peak_bytes(job.graph, candidates[name].plan)
            notes.append(f"{name} needs {need} bytes of memory, more than allowed")
    left_out = tuple(name for name in names if name not in found)
    if left_out:
        notes.append(
            f"baselines left out: {', '.join(left_out)} (the others took "
            f"{job.budget.elapsed_s - begun:.1f} s; a quarter of the budget is theirs)"
        )
    return Ruled(left_out, tuple(notes))


def _is_late(job: Job, begun: float, others: bool) -> bool:
    """Whether planning a baseline is called off: there are `others` and the time of all is over, or
    there was no time at all, but for a moment for the first."""
    spent, budget = job.budget.elapsed_s, job.budget
    if others:
        return budget.is_over() or spent > begun + BASELINE_SHARE * budget.seconds
    return spent > max(budget.seconds, begun + LEAST_PLANNING_S)


def _measure(job: Job, candidates: dict[str, Candidate], until_s: float) -> dict[str, Measurement]:
    """Records by name, those with the least bound first; equal plans are measured once."""
    peaks = job.peaks.found or NOMINAL  # they only order baselines
    bounds = {
        n: within(job.is_over, partial(plan_bound_us, job.graph, c.plan, peaks)) or math.inf
        for n, c in candidates.items()
    }
    found: dict[str, Measurement] = {}
    order = deque(sorted(candidates, key=lambda n: bounds[n]))
    turned = False
    cut_short: set[str] = set()
    while order:
        name = order.popleft()
        candidate = candidates[name]
        record = job.known(candidate)
        if candidate.digest in cut_short:
            continue
        if record is None:
            job.evaluator.start()
            others = {candidates[n].digest for n in order} - {candidate.digest}
            until = _until_s(job, found, until_s, bool(others - cut_short))
            if until is None:
                continue
            record = job.measure_now(candidate, "baseline", until)
        if record.failure is not None and record.failure.blame is Blame.MACHINE:
            if record.failure.kind is FailureKind.COMPILE and not found and not turned:
                # No time to compile it: the least fused plan has the smallest kernels, many alike.
                order.reverse()
                turned = True
            cut_short.add(candidate.digest)
            continue
        found[name] = record
        job.baselines[name] = record
        job.show(f"baseline {name}")
    return found


def _until_s(job: Job, found: dict[str, Measurement], until_s: float, others: bool) -> float | None:
    """When the next baseline must end, in seconds of the budget; None: there is no time for it.

    Until one works, each gets half of what is left where there are `others` to try: the one with
    the least bound may be slow. The first gets some seconds even of a budget that is too small for
    any."""
    budget = job.budget
    if all(m.timing is None for m in found.values()):
        least = 0.0 if found else LEAST_LIMIT_S
        return budget.elapsed_s + max(budget.room_s / 2 if others else budget.room_s, least)
    late = budget.elapsed_s >= until_s or budget.stop()
    return None if late else until_s


def _us(record: Measurement) -> float:
    return math.inf if record.timing is None else record.timing.median_us
