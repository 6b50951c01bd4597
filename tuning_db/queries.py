"""Named questions: what is known of a workload on a device. The caller holds the transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from sqlalchemy import Connection, Select, func, select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import models as m
from tuning_db import rows
from tuning_db.checked import checked, identified
from tuning_db.errors import DatabaseError

Row = tuple[m.Measurement, m.Candidate, m.Environment]


def newest(connection: Connection) -> int:
    """The number of the measurement that was added last; 0 where there is none."""
    last = select(func.coalesce(func.max(m.Measurement.id), 0))
    return int(connection.execute(last).scalar_one())


def measured(
    t: Transaction, env: r.Environment, workload: str, after: int = 0
) -> dict[str, r.Measurement]:
    """Latest measurement of each candidate on devices of this fingerprint, failures included but
    those that were the machine's fault or are of another driver or compiler; of rows added `after`
    this number."""
    known = groups(t, workload, after)
    latest = {
        candidate.digest: (row, candidate)
        for row, candidate, _ in telling(t, env, workload, after)
        if not rows.is_the_machines(rows.failure_of(row))
    }
    return {
        digest: rows.measurement_of(row, candidate, workload, known.get(candidate.id, ()))
        for digest, (row, candidate) in latest.items()
    }


def measurements(
    t: Transaction, workload: str, env: r.Environment | None
) -> tuple[r.Measurement, ...]:
    """Every measurement of a workload, oldest first; of one fingerprint if `env` is given."""
    known = groups(t, workload)
    found = matching(t, env, workload)
    return tuple(
        rows.measurement_of(row, candidate, workload, known.get(candidate.id, ()))
        for row, candidate, _ in found
    )


def tuned(t: Transaction, env: r.Environment, nodes: int) -> tuple[tuple[str, str], ...]:
    """Digest and text of the workloads of so many nodes that have a promoted plan on devices of
    this fingerprint."""
    query = (
        select(m.Workload.digest, m.Workload.text)
        .join(m.BestPlan, m.BestPlan.workload_id == m.Workload.id)
        .where(m.Workload.nodes == nodes, m.BestPlan.fingerprint == rows.fingerprint(env))
        .distinct()
        .order_by(m.Workload.digest)
    )
    return tuple((digest, text) for digest, text in t.execute(query))


def sessions(t: Transaction, workload: str | None) -> tuple[r.SessionRow, ...]:
    """Sessions of a workload, or all, oldest first."""
    query = (
        select(m.Session, m.Environment, m.Workload.digest)
        .join(m.Environment, m.Session.environment_id == m.Environment.id)
        .join(m.Workload, m.Session.workload_id == m.Workload.id)
        .order_by(m.Session.started, m.Session.id)
    )
    if workload is not None:
        query = query.where(m.Workload.digest == workload)
    return tuple(
        checked(
            r.SessionRow(
                id=row.id,
                environment=rows.environment_of(environment),
                workload=digest,
                strategy=row.strategy,
                seed=row.seed,
                budget_s=row.budget_s,
                started=row.started,
                ended=row.ended,
                result=session_result(t, row),
            )
        )
        for row, environment, digest in identified(t.execute(query))
    )


def session_row(t: Transaction, session_id: int) -> m.Session:
    """Raises DatabaseError if there is no such session."""
    row = t.get(m.Session, session_id)
    if row is None:
        raise DatabaseError(f"session {session_id} is not in the database")
    return row


def check_session(t: Transaction, session_id: int | None) -> None:
    """Raises DatabaseError if there is no such session; None is none and fine."""
    if session_id is not None:
        rows.remembered(t, lambda: session_row(t, session_id).id, "session", str(session_id))


def has_measurement(t: Transaction, uid: str) -> bool:
    return t.scalar(select(m.Measurement.id).where(m.Measurement.uid == uid)) is not None


V = TypeVar("V", str, int)


def _pairs(t: Transaction, wanted: Select[str, V]) -> tuple[tuple[str, V], ...]:
    return tuple((name, value) for name, value in t.execute(wanted))


def session_result(t: Transaction, row: m.Session) -> r.SessionResult | None:
    """None while the session runs."""
    if row.ended is None:
        return None
    failed = select(m.SessionFailure.kind, m.SessionFailure.count)
    failed = failed.where(m.SessionFailure.session_id == row.id)
    baselines = (
        select(m.SessionBaseline.name, m.Candidate.digest)
        .join(m.Candidate, m.SessionBaseline.candidate_id == m.Candidate.id)
        .where(m.SessionBaseline.session_id == row.id)
    )
    winner = t.get(m.Candidate, row.best_id) if row.best_id is not None else None
    return checked(
        r.SessionResult(
            strategy=row.strategy,
            seed=row.seed,
            budget_s=row.budget_s,
            spent=checked(
                r.Cost(
                    row.codegen_s or 0.0,
                    row.compile_s or 0.0,
                    row.measure_s or 0.0,
                    row.sampler_s or 0.0,
                )
            ),
            trials=row.trials or 0,
            measured=row.measured or 0,
            failed=_pairs(t, failed.order_by(m.SessionFailure.position)),
            best_digest="" if winner is None else winner.digest,
            baselines=_pairs(t, baselines.order_by(m.SessionBaseline.position)),
            verdicts=verdicts(t, row.id),
            finished=bool(row.finished),
            proof=rows.proof_of(row, rows.SESSION_PROOF),
        )
    )


def verdicts(t: Transaction, session_id: int) -> tuple[r.Verdict, ...]:
    query = select(m.Verdict).where(m.Verdict.session_id == session_id).order_by(m.Verdict.position)
    return tuple(rows.verdict_of(row) for row in identified(t.scalars(query)))


def events(t: Transaction, session_id: int) -> tuple[r.Event, ...]:
    query = (
        select(m.Event, m.Candidate.digest)
        .join(m.Candidate, m.Event.candidate_id == m.Candidate.id)
        .where(m.Event.session_id == session_id)
        .order_by(m.Event.position)
    )
    return tuple(
        checked(
            r.Event(
                trial=row.trial,
                spent=rows.cost_of(row),
                best_us=row.best_us,
                candidate_digest=digest,
                origin=row.origin,
                proof=rows.proof_of(row, rows.EVENT_PROOF),
            )
        )
        for row, digest in identified(t.execute(query))
    )


def workloads(t: Transaction) -> tuple[r.WorkloadRow, ...]:
    query = select(m.Workload).order_by(m.Workload.name, m.Workload.digest)
    found = (r.WorkloadRow(w.digest, w.text, w.name, w.nodes) for w in identified(t.scalars(query)))
    return tuple(map(checked, found))


def counts(t: Transaction) -> dict[str, int]:
    """Rows per table, by table name."""
    tables = sorted(m.Base.metadata.tables.items())
    return {name: t.scalar(select(func.count()).select_from(table)) or 0 for name, table in tables}


def calibration(t: Transaction, env: r.Environment) -> dict[str, float]:
    """Constants of exactly this environment: they are cheap to measure anew."""
    query = (
        select(m.Calibration.name, m.Calibration.value)
        .join(m.Environment, m.Calibration.environment_id == m.Environment.id)
        .where(m.Environment.digest == rows.environment_digest(env))
        .order_by(m.Calibration.name)
    )
    return {row.name: row.value for row in t.execute(query)}


def matching(t: Transaction, env: r.Environment | None, workload: str, after: int = 0) -> list[Row]:
    """Measurements of a workload, oldest first, with what they refer to; those added `after` this
    row."""
    query = (
        select(m.Measurement, m.Candidate, m.Environment)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .where(m.Workload.digest == workload, m.Measurement.id > after)
        .order_by(m.Measurement.created, m.Measurement.id)
    )
    if env is not None:
        query = query.where(m.Environment.fingerprint == rows.fingerprint(env))
    return [(row, candidate, found) for row, candidate, found in identified(t.execute(query))]


def telling(t: Transaction, env: r.Environment, workload: str, after: int = 0) -> list[Row]:
    """As `matching`, without failures that say nothing to who asks (see `rows.still_counts`)."""
    own = rows.stale_text(env)
    return [
        found
        for found in matching(t, env, workload, after)
        if found[0].failure_kind is None or found[2].stale == own
    ]


def told_of(t: Transaction, env: r.Environment, candidate: int) -> Iterator[m.Measurement]:
    """What measurements tell of a candidate on devices of this fingerprint, latest first: none
    that the machine made fail, none that failed under another driver or compiler."""
    query = (
        select(m.Measurement)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Measurement.candidate_id == candidate)
        .where(m.Environment.fingerprint == rows.fingerprint(env))
        .where(rows.still_counts(m.Measurement, env))
        .order_by(m.Measurement.created.desc(), m.Measurement.id.desc())
    )
    for row in identified(t.scalars(query)):
        if not rows.is_the_machines(rows.failure_of(row)):
            yield row


def latest(
    t: Transaction, env: r.Environment, workload: str, candidate: str
) -> r.Measurement | None:
    """The latest measurement of one candidate, as `measured` has it."""
    found = t.scalar(
        select(m.Candidate)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .where(m.Workload.digest == workload, m.Candidate.digest == candidate)
    )
    row = None if found is None else next(told_of(t, env, found.id), None)
    if found is None or row is None:
        return None
    return rows.measurement_of(row, found, workload, groups_of(t, found.id))


def groups_of(t: Transaction, candidate: int) -> tuple[str, ...]:
    """Group digests of a candidate in order."""
    query = (
        select(m.Group.digest)
        .join(m.CandidateGroup, m.CandidateGroup.group_id == m.Group.id)
        .where(m.CandidateGroup.candidate_id == candidate)
        .order_by(m.CandidateGroup.position)
    )
    return tuple(t.scalars(query))


def groups(t: Transaction, workload: str, after: int = 0) -> dict[int, tuple[str, ...]]:
    """Group digests in order, by candidate row; given a row, of candidates measured `after` it."""
    query = (
        select(m.CandidateGroup.candidate_id, m.Group.digest)
        .join(m.Group, m.CandidateGroup.group_id == m.Group.id)
        .join(m.Candidate, m.CandidateGroup.candidate_id == m.Candidate.id)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .where(m.Workload.digest == workload)
        .order_by(m.CandidateGroup.candidate_id, m.CandidateGroup.position)
    )
    if after:
        late = select(m.Measurement.candidate_id).where(m.Measurement.id > after)
        query = query.where(m.CandidateGroup.candidate_id.in_(late))
    found: dict[int, list[str]] = {}
    for candidate, digest in t.execute(query):
        found.setdefault(candidate, []).append(digest)
    return {candidate: tuple(digests) for candidate, digests in found.items()}
