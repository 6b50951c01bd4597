"""The best plan of a workload on a device: which one is served, and when another takes its place.

There is one promoted plan for each workload, fingerprint and cache state. Where there is none (the
database is older, or no session came to its end) the best is found among all measurements. The
caller holds the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import models as m
from tuning_db import queries, rows
from tuning_db.checked import identified, named
from tuning_db.clock import server_now
from tuning_db.errors import DatabaseError
from tuning_db.upsert import put, replace_or_put

CODE = "code"


@dataclass(frozen=True, slots=True)
class _Found:
    """A stored measurement and the stale keys in which its environment differs from the asker's."""

    row: m.Measurement
    candidate: m.Candidate
    stale: tuple[str, ...]

    @property
    def us(self) -> float:
        assert self.row.median_us is not None
        return self.row.median_us


def stale_with_code(plan: r.BestPlan, code_now: str) -> r.BestPlan:
    """`plan`, stale by "code" too unless its time belongs to `code_now`, the digest of the code
    that would be compiled for it now; of unknown code nothing is known to hold."""
    if plan.measurement.code and plan.measurement.code == code_now:
        return plan
    return replace(plan, stale=tuple(sorted({*plan.stale, CODE})))


def best(
    t: Transaction,
    env: r.Environment,
    workload: str,
    cache: str | None,
    without: Collection[str] = (),
) -> r.BestPlan | None:
    """The promoted plan in this cache state (None: in the state promoted last), else the winner of
    the latest finished session, else the least median; of candidates whose digests are not among
    `without`."""
    choice = _serve(t, env, workload, cache, without)
    if choice is None:
        return None
    own = queries.groups_of(t, choice.candidate.id)
    one = rows.measurement_of(choice.row, choice.candidate, workload, own)
    return r.BestPlan(one, choice.stale)


def incumbent(t: Transaction, env: r.Environment, workload: str, cache: str) -> r.BestPlan | None:
    """What is served in this cache state after a plan was promoted in it; None before that, when
    nothing was ever timed against anything."""
    promoted = (
        select(m.BestPlan.measurement_id)
        .join(m.Workload, m.BestPlan.workload_id == m.Workload.id)
        .where(m.Workload.digest == workload, m.BestPlan.fingerprint == rows.fingerprint(env))
        .where(m.BestPlan.cache == cache)
    )
    return None if t.scalar(promoted) is None else best(t, env, workload, cache)


def promote(
    t: Transaction, session: int | None, env: r.Environment, one: r.Measurement,
    beaten: str | None, uid: str,
) -> bool:  # fmt: skip
    """Make a timed plan the best in its cache state, unless another than `beaten` is it now. `uid`
    is that of the measurement where it is not stored yet; doing it again changes nothing."""
    if one.timing is None:
        raise DatabaseError(
            f"candidate {named(one.candidate_digest)} has no time: it cannot be the best"
        )
    fingerprint, cache = rows.fingerprint(env), one.timing.cache
    workload = rows.workload_id(t, one.workload)
    # Of two at once the second waits here, and then sees what the first has done.
    present = t.get(m.BestPlan, (workload, fingerprint, cache), with_for_update=True)
    if present is not None and _is(t, present, uid):
        return True
    if present is not None and beaten not in _present(t, env, one.workload, present):
        return False
    measurement = _measurement_row(t, session, env, workload, one, uid)
    values = values_of(workload, fingerprint, measurement)
    if present is None:
        return put(t, m.BestPlan, values)
    replace_or_put(t.connection(), m.BestPlan, values)
    return True


def fill(t: Transaction) -> None:
    """Promote, as if they had just been measured, the best plans of workloads and devices of which
    nothing was promoted, such as those of an older export."""
    query = (
        select(m.Workload.id, m.Workload.digest, m.Environment)
        .join_from(m.Measurement, m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Measurement.median_us.is_not(None))
        .order_by(m.Measurement.created, m.Measurement.id)
    )
    # Who will ask is not known: whoever measured last.
    latest = {(number, env.fingerprint): (digest, env) for number, digest, env in t.execute(query)}
    known = select(m.BestPlan.workload_id, m.BestPlan.fingerprint)
    for place in latest.keys() - {(row[0], row[1]) for row in t.execute(known)}:
        digest, environment = latest[place]
        choice = _serve(t, rows.environment_of(environment), digest, None)
        if choice is not None:
            put(t, m.BestPlan, values_of(*place, choice.row, choice.row.created))


def values_of(
    workload: int, fingerprint: str, one: m.Measurement, promoted: str | None = None
) -> dict[str, Any]:
    """The columns of a promoted plan by the measurement that made it so, now unless `promoted`."""
    return {
        "workload_id": workload,
        "fingerprint": fingerprint,
        "cache": one.cache,
        "measurement_id": one.id,
        "promoted": promoted or server_now(),
    }


def _present(
    t: Transaction, env: r.Environment, workload: str, row: m.BestPlan
) -> tuple[str | None, ...]:
    """What may have been beaten: the promoted candidate, or who is served in its place because it
    failed since or is stale."""
    served = _serve(t, env, workload, row.cache)
    known = (
        select(m.Candidate.digest)
        .join(m.Measurement, m.Measurement.candidate_id == m.Candidate.id)
        .where(m.Measurement.id == row.measurement_id)
    )
    return (t.scalar(known), None if served is None else served.candidate.digest)


def _is(t: Transaction, row: m.BestPlan, uid: str) -> bool:
    """Whether a promoted plan is so by the measurement of this uid."""
    return t.scalar(select(m.Measurement.uid).where(m.Measurement.id == row.measurement_id)) == uid


def _measurement_row(
    t: Transaction, session: int | None, env: r.Environment, workload: int, one: r.Measurement,
    uid: str,
) -> m.Measurement:  # fmt: skip
    """The row of this very measurement if the session has stored it, else a new one."""
    if session is not None:
        queries.session_row(t, session)
    candidate, _ = rows.ensure_candidate(
        t, workload, one.candidate_digest, one.candidate, one.origin, one.kernels, one.groups
    )
    environment = rows.ensure_environment(t, env)
    own = rows.measurement_values(environment, candidate, session, one, uid)
    told = ("session_id", "environment_id", "candidate_id", "stage", "median_us", "n", "mode")
    # SQLAlchemy spells a comparison with None as IS NULL.
    same = [getattr(m.Measurement, name) == own[name] for name in told]
    known = t.scalar(select(m.Measurement).where(*same).order_by(m.Measurement.id.desc()).limit(1))
    if known is not None:
        return known
    put(t, m.Measurement, own)
    return t.scalars(select(m.Measurement).where(m.Measurement.uid == uid)).one()


def _is_asked(found: _Found, cache: str | None, without: Collection[str]) -> bool:
    if found.candidate.digest in without:
        return False
    return cache is None or found.row.cache == cache


def _serve(
    t: Transaction,
    env: r.Environment,
    workload: str,
    cache: str | None,
    without: Collection[str] = (),
) -> _Found | None:
    promoted = _promoted(t, env, workload, cache, without)
    if promoted is not None and not promoted.stale:
        return promoted
    found = [
        _Found(row, candidate, _differing(env, rows.environment_of(environment)))
        for row, candidate, environment in queries.telling(t, env, workload)
    ]
    runnable = [f for f in _runnable(found) if _is_asked(f, cache, without)]
    fresh = _choose(t, env, workload, runnable, fresh=True)
    if promoted is None:
        return fresh or _choose(t, env, workload, runnable, fresh=False)
    return fresh if fresh is not None and _replaces(fresh, promoted, runnable) else promoted


def _promoted(
    t: Transaction,
    env: r.Environment,
    workload: str,
    cache: str | None,
    without: Collection[str],
) -> _Found | None:
    """What was promoted last among what can run: a few rows, whatever the workload's history."""
    query = (
        select(m.Measurement, m.Candidate, m.Environment)
        .join_from(m.BestPlan, m.Workload, m.BestPlan.workload_id == m.Workload.id)
        .join(m.Measurement, m.BestPlan.measurement_id == m.Measurement.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Workload.digest == workload, m.BestPlan.fingerprint == rows.fingerprint(env))
        .order_by(m.BestPlan.promoted.desc(), m.BestPlan.cache)
    )
    if cache is not None:
        query = query.where(m.BestPlan.cache == cache)
    for row, candidate, environment in identified(t.execute(query).all()):
        if candidate.digest not in without and row.median_us is not None and _works(t, env, row):
            return _Found(row, candidate, _differing(env, rows.environment_of(environment)))
    return None


def _works(t: Transaction, env: r.Environment, promoted: m.Measurement) -> bool:
    """Whether the last that was told of a candidate is no failure by its own fault."""
    last = next(queries.told_of(t, env, promoted.candidate_id), None)
    return last is None or last.failure_kind is None


def _differing(now: r.Environment, then: r.Environment) -> tuple[str, ...]:
    """Names of the stale pairs that changed, appeared or disappeared."""
    one, other = dict(now.stale), dict(then.stale)
    return tuple(sorted(k for k in one.keys() | other.keys() if one.get(k) != other.get(k)))


def _replaces(fresh: _Found, stale: _Found, runnable: list[_Found]) -> bool:
    """Whether what was measured under the asker's own stale pairs goes before a promoted plan that
    was not: it is no slower, or the promoted one was measured afresh as well."""
    again = any(f.candidate.id == stale.candidate.id and not f.stale for f in runnable)
    return fresh.row.cache == stale.row.cache and (again or fresh.us <= stale.us)


def _choose(
    t: Transaction, env: r.Environment, workload: str, runnable: list[_Found], fresh: bool
) -> _Found | None:
    """The winner of the latest finished session, else the least latest median."""
    for winner, stale in _winners(t, env, workload):
        times = [f for f in runnable if f.candidate.id == winner]
        if times and not (fresh and stale):
            # Last of the best kind: fresh before stale, end-to-end before search.
            return max(times, key=lambda f: (not f.stale, f.row.stage == "final"), default=None)
    known = [f for f in _latest(runnable, lambda f: f.candidate.id) if not (fresh and f.stale)]
    return _least(known)


def _least(known: list[_Found]) -> _Found | None:
    # Times in two cache states cannot be ranked: those of the state measured last are.
    alike = [f for f in known if f.row.cache == known[0].row.cache]
    return min(alike, key=lambda f: (f.us, f.candidate.digest), default=None)


def _runnable(found: list[_Found]) -> list[_Found]:
    """Times, latest first, of the candidates whose latest measurement did not fail by their own
    fault."""
    told = [f for f in found if not rows.is_the_machines(rows.failure_of(f.row))]
    good = {
        f.candidate.id
        for f in _latest(reversed(told), lambda f: f.candidate.id)
        if f.row.failure_kind is None
    }
    return [f for f in reversed(told) if f.candidate.id in good and f.row.median_us is not None]


def _latest(found: Iterable[_Found], key: Callable[[_Found], int]) -> list[_Found]:
    """The first of each key: the latest, since callers pass the latest first."""
    first: dict[int, _Found] = {}
    for one in found:
        first.setdefault(key(one), one)
    return list(first.values())


def _winners(
    t: Transaction, env: r.Environment, workload: str
) -> list[tuple[int, tuple[str, ...]]]:
    """Best candidates of finished sessions, latest first, with the stale keys of the session."""
    query = (
        select(m.Session.best_id, m.Environment)
        .join(m.Environment, m.Session.environment_id == m.Environment.id)
        .join(m.Workload, m.Session.workload_id == m.Workload.id)
        .where(m.Workload.digest == workload)
        .where(m.Environment.fingerprint == rows.fingerprint(env))
        .where(m.Session.finished.is_(True), m.Session.best_id.is_not(None))
        .order_by(m.Session.ended.desc(), m.Session.id.desc())
    )
    return [
        (best_id, _differing(env, rows.environment_of(environment)))
        for best_id, environment in t.execute(query)
        if best_id is not None
    ]
