"""What is served from now on: the winner of a job against the plan that the database serves.

A best plan is replaced only after it was timed against the present one, interleaved, in the same
cache state, and found slower. Another job may have replaced it meanwhile: then that one is timed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autofuse.records import Blame, Measurement
from autofuse.tuning.job.adopting import Entrants, adopted, entrants, past, serving
from autofuse.tuning.job.finals import Final, FinalDecision, Pace, decide, joined
from autofuse.tuning.job.job import Job

# Seconds that each of two final comparisons should take at most, and of an interrupted job.
COMPARING_S, HURRIED_S = 8.0, 0.5
# How often another job may replace the best plan while this one times itself against it.
ATTEMPTS = 3
OWN = Blame.CANDIDATE
ADOPTED = "all finalists were compared by another session: its winner stands"


def final_comparison(job: Job, interrupted: bool) -> tuple[Final | None, tuple[str, ...]]:
    """The winner, which is what is served from now on where it may be; and what should be said."""
    seconds = HURRIED_S if interrupted else _seconds(job)
    if (known := adopted(job, seconds)) is not None:
        return known, (ADOPTED,)
    final, notes = _decided(job, seconds)
    if final is None:
        return None, notes
    fresh = final.timed or (final.record,)
    for _ in range(ATTEMPTS):
        served = serving(job)
        digest = final.record.candidate_digest
        # What was promoted before arithmetic had to be asked for is replaced by whatever works.
        forbidden = served is not None and job.backend.forbids(served.candidate)
        if served is not None and digest != served.candidate_digest and not forbidden:
            if not job.record_fits(served):
                said = "the best plan known keeps more in memory than allowed, and stays known"
                return final, (*notes, said)
            if lacking := job.lacking(served):
                return final, (*notes, f"the best plan known stays known, but {lacking}")
            if served.candidate_digest not in final.compared:
                against = _against(job, final, served, seconds)
                if against is None:
                    said = "there was no time to time it against the best plan known, which stays"
                    return final, (*notes, said)
                final, fresh = against, (*fresh, *against.timed)
        beaten = None if served is None else served.candidate_digest
        if not job.keep_compared(fresh):
            if (known := adopted(job, seconds)) is not None:
                return known, (*notes, ADOPTED)
            continue
        fresh = ()
        if job.store.promote(job.session, job.environment, final.record, beaten):
            return final, notes
    return final, (*notes, "other jobs kept replacing the best plan: theirs stands")


def _seconds(job: Job) -> float:
    """Seconds of samples in each of two comparisons; caches are emptied between samples, which
    takes about half as long again."""
    left = max(job.budget.left_s, job.budget.reserve_s)
    return max(HURRIED_S, min(left / 3, COMPARING_S))


def _decided(job: Job, seconds: float) -> tuple[Final | None, tuple[str, ...]]:
    """The winner of the last comparison; one that fails in it gives its place to the next."""
    while (them := entrants(job)) is not None:
        decision = _decision(job, them, seconds)
        for record in decision.failed:
            job.keep(record)
            for name, baseline in job.baselines.items():
                if baseline.candidate_digest == record.candidate_digest:
                    job.baselines[name] = record
        if decision.final is not None:
            return decision.final, _untimed(decision.untimed)
    return None, ()


def _decision(job: Job, them: Entrants, seconds: float) -> FinalDecision:
    """The winner among entrants: of those that comparisons of others have not settled, and of what
    won these. Where that one failed now, or could not be timed, nothing is settled."""
    known = past(job, them, seconds)
    if known is not None:
        winner = known.final.record
        found = _compared(job, known.finalists, known.baselines, winner, known.seconds)
        timed = () if found.final is None else found.final.timed
        if found.final is not None and winner.candidate_digest in {
            m.candidate_digest for m in timed
        }:
            return replace(found, final=joined(known.final, found.final, them.baselines))
        if found.failed:
            return replace(found, final=None)
    return _compared(job, them.finalists, them.baselines, them.served or _untuned(job), seconds)


def _untuned(job: Job) -> Measurement | None:
    """What is served as long as no plan is known, if it was timed: a tie is no reason to replace
    it."""
    served = next(iter(job.at_hand), None)
    record = None if served is None else job.known(served)
    if record is None or record.timing is None or not job.record_fits(record):
        return None
    return record


def _compared(
    job: Job, finalists: Sequence[Measurement], baselines: Mapping[str, Measurement],
    served: Measurement | None, seconds: float,
) -> FinalDecision:  # fmt: skip
    pace = Pace(seconds, job.limit_s, job.seed)
    return decide(job.evaluator, finalists, baselines, pace, served)


def _untimed(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names:
        return ()
    return (f"the budget had no time to compare {', '.join(names)}: recorded times stand",)


def _against(job: Job, final: Final, served: Measurement, seconds: float) -> Final | None:
    """The faster of a winner and what is served, timed together; a tie goes to what is served.
    None where the two could not be timed together although both may work."""
    decision = _compared(job, [final.record], {}, served, seconds)
    for record in decision.failed:
        job.keep(record)
    found = decision.final
    lost = {m.candidate_digest for m in decision.failed if m.failure and m.failure.blame is OWN}
    if found is None or (served.candidate_digest not in found.compared | lost):
        return None
    return replace(
        final,
        record=found.record,
        best_us=found.best_us,
        compared=final.compared | found.compared | {served.candidate_digest},
        timed=found.timed or (found.record,),
    )
