"""What final comparisons have settled: whom the plan that is served was timed against.

A comparison is a session that has ended: its rows of stage "final" are who was timed together, with
their times, and its result is the winner with its verdicts. So it is exported, merged and kept as
any session is. The caller holds the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import best, queries, rows
from tuning_db import models as m
from tuning_db.checked import identified

FINAL = "final"
# A candidate's row and the code that ran.
Key = tuple[int, str | None]


class _Comparisons(NamedTuple):
    """Those that count: of one workload, on one environment and in one cache state, with at least
    so many samples of each plan."""

    workload: int
    environment: int
    cache: str
    samples: int


class _Compared(NamedTuple):
    """Who was timed in the comparison of a session."""

    session: int
    winner: int
    candidate: int
    code: str | None
    digest: str


def settled(
    t: Transaction, env: r.Environment, workload: str, cache: str, wanted: Mapping[str, str],
    samples: int,
) -> r.Settled | None:  # fmt: skip
    """What is known of `wanted` (codes by candidate digest) by comparisons under exactly this
    environment that took at least so many samples of each plan; None where what is served in this
    cache state is not the winner of one of them.

    Who lost to one that lost to the winner has lost too."""
    served = best.incumbent(t, env, workload, cache)
    if served is None or served.stale:
        return None
    query = (
        select(m.Session, m.Measurement)
        .join_from(m.BestPlan, m.Workload, m.BestPlan.workload_id == m.Workload.id)
        .join(m.Measurement, m.BestPlan.measurement_id == m.Measurement.id)
        .join(m.Session, m.Measurement.session_id == m.Session.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Workload.digest == workload, m.BestPlan.cache == cache)
        .where(m.BestPlan.fingerprint == rows.fingerprint(env))
        .where(m.Environment.digest == rows.environment_digest(env))
        .where(m.Candidate.digest == served.measurement.candidate_digest)
        .where(m.Session.best_id == m.Candidate.id, m.Measurement.stage == FINAL)
        .where(m.Measurement.n >= samples)
    )
    found = next(identified(t.execute(query)), None)
    result = None if found is None else queries.session_result(t, found[0])
    if found is None or result is None:
        return None
    session, row = found
    told = _Comparisons(session.workload_id, row.environment_id, cache, samples)
    losers = _losers(t, told, (row.candidate_id, row.code), wanted)
    digests = dict(result.baselines)
    verdicts = tuple((digests[v.other], v) for v in result.verdicts if v.other in digests)
    return r.Settled(served.measurement, losers, verdicts)


def _losers(
    t: Transaction, told: _Comparisons, winner: Key, wanted: Mapping[str, str]
) -> frozenset[str]:
    """Who of `wanted` lost; no more is read than that takes."""
    lost, seen, winners = set[str](), {winner}, {winner}
    while winners and len(lost) < len(wanted):
        beaten: set[Key] = set()
        for one in _beaten(_compared(t, told, winners), winners):
            key = (one.candidate, one.code)
            beaten.add(key)
            if key != winner and one.code and wanted.get(one.digest) == one.code:
                lost.add(one.digest)
        winners = beaten - seen
        seen |= beaten
    return frozenset(lost)


def _beaten(compared: Iterable[_Compared], winners: set[Key]) -> Iterable[_Compared]:
    """Whoever was timed with one of these winners when it won; a comparison of other code of a
    winner says nothing of it."""
    for _, rows_of in groupby(compared, lambda one: one.session):
        them = tuple(rows_of)
        own = {(one.candidate, one.code) for one in them if one.candidate == one.winner}
        if own & winners:
            yield from (one for one in them if one.candidate != one.winner)


def _compared(t: Transaction, told: _Comparisons, winners: set[Key]) -> list[_Compared]:
    """All rows of comparisons that these candidates won, by session."""
    query = (
        select(
            m.Session.id, m.Session.best_id, m.Measurement.candidate_id, m.Measurement.code,
            m.Candidate.digest,
        )
        .join(m.Measurement, m.Measurement.session_id == m.Session.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .where(m.Session.workload_id == told.workload, m.Session.ended.is_not(None))
        .where(m.Session.best_id.in_({number for number, _ in winners}))
        .where(m.Measurement.stage == FINAL, m.Measurement.cache == told.cache)
        .where(m.Measurement.environment_id == told.environment)
        .where(m.Measurement.n >= told.samples)
        .order_by(m.Session.id, m.Measurement.id)
    )  # fmt: skip
    return [
        _Compared(session, winner, candidate, code, digest)
        for session, winner, candidate, code, digest in t.execute(query)
        if winner is not None
    ]
