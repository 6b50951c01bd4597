"""What final comparisons of other sessions have settled, so that this one need not repeat them.

A plan that lost to what is served now, directly or to one that lost to it, is not timed against it
again, as long as code, driver and compiler are the same and it was no rougher a comparison.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autofuse.plan.types import candidate_from_json
from autofuse.records import Measurement, Settled, Verdict
from autofuse.tuning.job.finals import (
    FEWEST,
    MOST,
    Final,
    likely,
    near,
    once_all_us,
    samples_for,
)
from autofuse.tuning.job.job import Job

# A comparison counts if it took this share of the samples of each plan that would be taken now.
ENOUGH = 0.5


@dataclass(frozen=True, slots=True)
class Entrants:
    """What a final comparison is between: the finalists among what is `ranked`, fastest first,
    baselines by name, and what the database serves."""

    ranked: tuple[Measurement, ...]
    baselines: Mapping[str, Measurement]
    served: Measurement | None

    @property
    def finalists(self) -> tuple[Measurement, ...]:
        """See `finals.likely`."""
        return tuple(likely(self.ranked))

    @property
    def every(self) -> dict[str, Measurement]:
        """Those with a time, by digest."""
        present = () if self.served is None else (self.served,)
        them = (*self.finalists, *present, *self.baselines.values())
        return {m.candidate_digest: m for m in them if m.timing is not None}


@dataclass(frozen=True, slots=True)
class Past:
    """`final` is what comparisons of others have decided; `finalists` and `baselines` were in none
    of them, and `seconds` give as many samples of these and the winner as all would get."""

    final: Final
    finalists: tuple[Measurement, ...]
    baselines: Mapping[str, Measurement]
    seconds: float


def entrants(job: Job) -> Entrants | None:
    """Who a final comparison of this job would be between; None where nothing works."""
    ranked = job.ranked(MOST)
    if not ranked:
        return None
    served = serving(job)
    if served is not None and (job.lacking(served) or not job.record_fits(served)):
        served = None
    baselines = {n: m for n, m in job.baselines.items() if job.record_fits(m)}
    return Entrants(tuple(ranked), baselines, served)


def serving(job: Job) -> Measurement | None:
    """What the database serves in this cache state."""
    found = job.store.incumbent(job.environment, job.digest, job.cache)
    if found is None or found.measurement.timing is None:
        return None
    return found.measurement if found.measurement.timing.cache == job.cache else None


def adopted(job: Job, seconds: float) -> Final | None:
    """What other sessions have decided among all that this one would compare in so many seconds of
    samples, waiting for one that is at it as long as there is time. None: it is this job's to
    compare, under a lease until it ends."""
    asked = False

    def known() -> Final | None:
        nonlocal asked
        if asked and job.sharing.lease is None:  # nothing is settled before it is given up
            return None
        asked = True
        job.recall()
        them = entrants(job)
        found = None if them is None else past(job, them, seconds)
        return None if found is None or found.finalists or found.baselines else found.final

    return job.sharing.turn(job.place("final"), known, lambda: job.budget.final_room_s <= 0)


def past(job: Job, them: Entrants, seconds: float) -> Past | None:
    """What is settled among entrants; None where what is served has won no comparison that counts,
    or is none of them."""
    every = them.every
    if them.served is None or not every:
        return None
    once_us = once_all_us(every.values(), job.cache)
    blocks, rounds = samples_for(seconds, once_us)
    codes = {m.candidate_digest: m.code for m in (*them.ranked, *every.values())}
    least = max(1, int(ENOUGH * blocks * rounds))
    found = job.store.settled(job.environment, job.digest, job.cache, codes, least)
    if found is None or not _is_current(job, found.winner):
        return None
    told = {name: _verdict(found, name, m) for name, m in them.baselines.items() if m.timing}
    baselines = {name: them.baselines[name] for name, v in told.items() if v is None}
    finalists = _finalists(found, them)
    part_us = once_all_us((found.winner, *finalists, *baselines.values()), job.cache)
    return Past(_final(found, told.values()), finalists, baselines, seconds * part_us / once_us)


def _final(found: Settled, told: Iterable[Verdict | None]) -> Final:
    winner = found.winner
    assert winner.timing is not None
    verdicts = tuple(v for v in told if v is not None)
    us = {v.other: v.other_us for v in verdicts}
    compared = found.losers | {winner.candidate_digest}
    return Final(winner, winner.timing.median_us, us, verdicts, compared)


def _finalists(found: Settled, them: Entrants) -> tuple[Measurement, ...]:
    """Finalists that were not compared. Where that has been done with as many as there must be,
    only those that are near the fastest: to those that lost it gave other times, so that others
    come after the fastest now."""
    compared = found.losers | {found.winner.candidate_digest}
    new = tuple(m for m in them.finalists if m.candidate_digest not in compared)
    done = sum(m.candidate_digest in compared for m in them.ranked)
    return near(new, them.ranked[0]) if done >= FEWEST else new


def _verdict(found: Settled, name: str, baseline: Measurement) -> Verdict | None:
    """The winner against a baseline; None where they were not compared."""
    timing, digest = found.winner.timing, baseline.candidate_digest
    assert timing is not None
    if digest == found.winner.candidate_digest:
        return Verdict(name, timing.median_us, timing.median_us, 1.0, 1.0, 1.0, "tie")
    told = dict(found.verdicts).get(digest)
    return replace(told, other=name) if told and digest in found.losers else None


def _is_current(job: Job, record: Measurement) -> bool:
    candidate = candidate_from_json(record.candidate, record.origin)
    return bool(record.code) and record.code == job.evaluator.code(candidate)
