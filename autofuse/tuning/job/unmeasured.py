"""What a job serves that had no time to measure anything: a plan expected to be fast, checked at
drawn places of its results (`measure/first_check.py`), never by the whole reference.

Nothing of it is stored as a measurement: the next session begins where this one was cut off.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from autofuse import faults
from autofuse.cost.bounds import NOMINAL
from autofuse.patience import within
from autofuse.plan.types import Candidate
from autofuse.records import (
    CHECKED,
    UNVERIFIED,
    WRONG,
    Blame,
    Failure,
    FailureKind,
    Measurement,
    Trust,
)
from autofuse.simplify import Forms
from autofuse.tuning.evaluate import build
from autofuse.tuning.job.job import Job
from autofuse.tuning.plans import ONE_OP_EACH, plainest_candidate
from autofuse.tuning.serve.served import CHECK_S, trust_in
from autofuse.tuning.serve.untuned import plan_expected_us

# Seconds that building and checking get even where the budget is over.
LEAST_BUILD_S, LEAST_CHECK_S = 2.0, 0.5
# Plans at hand that are tried, the most promising first.
_TRIED = 2


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A plan that was not timed: `expected_us` microseconds are what it is expected to take
    (infinite: there was no time to work it out), and `record` says why it was not measured. `notes`
    say what became of those before it."""

    candidate: Candidate
    trust: Trust
    expected_us: float
    record: Measurement
    notes: tuple[str, ...]


def unmeasured(job: Job, forms: Forms, why: str) -> Unmeasured | None:
    """The plan of which least is expected, or the plainest one where that is wrong or cannot be
    built in time; None where all that were built are wrong."""
    notes = [f"{why}; what is served was expected to be fast and is not timed: tune again to go on"]
    late: list[tuple[Candidate, Trust]] = []
    for candidate in _in_turn(job):
        room_s = job.budget.final_room_s
        if not late:
            room_s = max(room_s, LEAST_BUILD_S)
        built = build(job.backend, job.graph, candidate, room_s)
        if built.artifact is None:
            assert built.failure is not None
            notes.append(f"the plan {candidate.origin} was not built: {built.failure.message}")
            if built.failure.blame is Blame.MACHINE:
                late.append((candidate, Trust(UNVERIFIED, built.failure.message)))
            continue
        check_s = min(max(job.budget.final_room_s, LEAST_CHECK_S), CHECK_S)
        trust = trust_in(job.kind, forms, candidate, built.artifact, (check_s, check_s))
        if trust.state != WRONG:
            return _found(job, candidate, trust, why, notes)
        notes.append(f"the plan {candidate.origin} is wrong and not served: {trust.why}")
    return _found(job, *late[0], why, notes) if late else None


def _in_turn(job: Job) -> Iterator[Candidate]:
    """What was planned already; at last nothing need be planned."""
    yield from dict.fromkeys(job.at_hand[:_TRIED])
    with faults.guarded(f"the plan {ONE_OP_EACH}"):
        plain = plainest_candidate(job.graph)
        if job.fits(plain.plan):
            yield plain


def _found(job: Job, candidate: Candidate, trust: Trust, why: str, notes: list[str]) -> Unmeasured:
    if trust.state != CHECKED:
        notes.append(str(trust))
    peaks, late_s = job.peaks.found or NOMINAL, job.budget.elapsed_s + LEAST_CHECK_S
    expected_us = within(
        lambda: job.budget.elapsed_s > late_s,
        lambda: plan_expected_us(job.graph, candidate.plan, job.space, peaks),
    )
    failure = Failure(FailureKind.TIMEOUT, why, Blame.MACHINE)
    record = job.evaluator.unmeasured(candidate, failure, "search")
    return Unmeasured(candidate, trust, expected_us or math.inf, record, tuple(notes))
