"""Records to rows and back, and rows that are added only if they are not there yet.

Everything here runs inside a transaction that the caller holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from hashlib import sha256
from uuid import uuid4

from sqlalchemy import func, select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import models as m
from tuning_db.checked import checked, pairs_of, shown
from tuning_db.errors import DatabaseError

STAGES = ("search", "final", "baseline")
_FROM_OUTSIDE = ("killed by SIGKILL", "killed by SIGTERM")
_TIMING = tuple(field.name for field in fields(r.Timing))
_VERDICT = tuple(field.name for field in fields(r.Verdict))


def now() -> str:
    """The time in UTC, ISO 8601, always of one length so that text order is time order."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def new_uid() -> str:
    return uuid4().hex


# --- environments ---------------------------------------------------------------------------


def fingerprint(env: r.Environment) -> str:
    """Hash of the must pairs: times are shared by environments of one fingerprint."""
    return _hash(_pairs_text(env.must))


def environment_digest(env: r.Environment) -> str:
    """Hash of everything in an environment."""
    return _hash("\n".join((env.device, _pairs_text(env.must), _pairs_text(env.stale))))


def environment_of(row: m.Environment) -> r.Environment:
    return checked(r.Environment(row.device, _pairs(row.must), _pairs(row.stale)))


def ensure_environment(t: Transaction, env: r.Environment) -> int:
    digest = environment_digest(env)
    known = t.scalar(select(m.Environment.id).where(m.Environment.digest == digest))
    if known is not None:
        return known
    row = m.Environment(
        digest=digest,
        fingerprint=fingerprint(env),
        device=env.device,
        must=_pairs_text(env.must),
        stale=_pairs_text(env.stale),
    )
    t.add(row)
    t.flush()
    return row.id


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    return json.dumps(sorted(pairs), separators=(",", ":"))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return pairs_of(text)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


# --- workloads, groups, candidates ----------------------------------------------------------


def workload_id(t: Transaction, digest: str) -> int:
    """Raises DatabaseError if nobody added the workload."""
    found = t.scalar(select(m.Workload.id).where(m.Workload.digest == digest))
    if found is None:
        raise DatabaseError(f"workload {digest} is not in the database")
    return found


def ensure_workload(t: Transaction, workload: r.WorkloadRow) -> bool:
    """Add a workload, or give a known one its first name; True if it is new."""
    row = t.scalar(select(m.Workload).where(m.Workload.digest == workload.digest))
    if row is not None:
        row.name = row.name or workload.name
        return False
    t.add(
        m.Workload(
            digest=workload.digest, text=workload.text, name=workload.name, nodes=workload.nodes
        )
    )
    t.flush()
    return True


def ensure_group(t: Transaction, digest: str, text: str | None = None) -> tuple[int, bool]:
    """Row number of a group and whether it is new; a missing text is filled in."""
    row = t.scalar(select(m.Group).where(m.Group.digest == digest))
    if row is not None:
        row.text = text if row.text is None else row.text
        return row.id, False
    row = m.Group(digest=digest, text=text)
    t.add(row)
    t.flush()
    return row.id, True


def candidate_id(t: Transaction, workload: int, digest: str) -> int:
    """Raises DatabaseError if the candidate was never measured for this workload."""
    found = _find_candidate(t, workload, digest)
    if found is None:
        raise DatabaseError(f"candidate {digest} was never measured for this workload")
    return found


def ensure_candidate(
    t: Transaction,
    workload: int,
    digest: str,
    text: str,
    origin: str,
    kernels: int,
    groups: Sequence[str],
) -> tuple[int, bool]:
    """Row number of a candidate and whether it is new."""
    found = _find_candidate(t, workload, digest)
    if found is not None:
        return found, False
    row = m.Candidate(
        workload_id=workload, digest=digest, json=text, origin=origin, kernels=kernels
    )
    t.add(row)
    t.flush()
    for position, group in enumerate(groups):
        number, _ = ensure_group(t, group)
        t.add(m.CandidateGroup(candidate_id=row.id, position=position, group_id=number))
    return row.id, True


def _find_candidate(t: Transaction, workload: int, digest: str) -> int | None:
    same = (m.Candidate.workload_id == workload) & (m.Candidate.digest == digest)
    return t.scalar(select(m.Candidate.id).where(same))


# --- measurements ---------------------------------------------------------------------------


def measurement_row(
    environment: int,
    candidate: int,
    session: int | None,
    one: r.Measurement,
    uid: str | None = None,
    created: str | None = None,
) -> m.Measurement:
    """The row of a measurement; raises DatabaseError if the record contradicts itself."""
    _check(one)
    row = m.Measurement(
        uid=uid or new_uid(),
        created=created or now(),
        session_id=session,
        environment_id=environment,
        candidate_id=candidate,
        origin=one.origin,
        stage=one.stage,
        # SQLite has no NaN: a result that is not a number is infinitely wrong.
        max_rel_error=no_nan(one.max_rel_error),
        code=one.code or None,
        **cost_columns(one.cost),
    )
    set_outcome(row, one.timing, one.failure)
    return row


def set_outcome(
    row: m.Measurement | m.KernelMeasurement, timing: r.Timing | None, failure: r.Failure | None
) -> None:
    if timing is not None:
        for name in _TIMING:
            setattr(row, name, getattr(timing, name))
    if failure is not None:
        row.failure_kind = failure.kind.value
        row.failure_message = printable(failure.message)
        row.failure_blame = failure.blame.value


def measurement_of(
    row: m.Measurement, candidate: m.Candidate, workload: str, groups: tuple[str, ...]
) -> r.Measurement:
    one = r.Measurement(
        workload=workload,
        candidate=candidate.json,
        candidate_digest=candidate.digest,
        origin=row.origin,
        kernels=candidate.kernels,
        groups=groups,
        timing=timing_of(row),
        failure=failure_of(row),
        max_rel_error=row.max_rel_error,
        cost=cost_of(row),
        stage=row.stage,
        code=row.code or "",
    )
    return checked(one)


def timing_of(row: m.Measurement) -> r.Timing | None:
    if row.median_us is None:
        return None
    return checked(r.Timing(**{name: getattr(row, name) for name in _TIMING}))


def failure_of(row: m.Measurement) -> r.Failure | None:
    return failure(row.failure_kind, row.failure_message, row.failure_blame)


def failure(kind: str | None, message: str | None, blame: str | None) -> r.Failure | None:
    """None if `kind` is; raises DatabaseError if it or the blame is unknown."""
    if kind is None:
        return None
    try:
        known = r.FailureKind(kind)
        blamed = None if blame is None else r.Blame(blame)
    except ValueError as error:
        raise DatabaseError(f"unknown kind of failure: {shown(kind)}, {shown(blame)}") from error
    text = message or ""
    return checked(r.Failure(known, text, blamed or blame_of(known, str(text))))


def blame_of(kind: r.FailureKind, message: str) -> r.Blame:
    """Whose fault a failure was that was stored before anybody said so (schemas before 0003)."""
    outside = kind is r.FailureKind.CRASH and message.startswith(_FROM_OUTSIDE)
    stalled = kind is r.FailureKind.TIMEOUT
    return r.Blame.MACHINE if outside or stalled else r.Blame.CANDIDATE


def is_the_machines(failure: r.Failure | None) -> bool:
    """Whether this says nothing about what failed: it is tried again."""
    return failure is not None and failure.blame is r.Blame.MACHINE


def printable(text: str) -> str:
    """Compiler and crash output made storable: no lone surrogates, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _check(one: r.Measurement) -> None:
    where = f"measurement of candidate {one.candidate_digest}"
    check_outcome(where, one.timing, one.failure)
    if one.stage not in STAGES:
        raise DatabaseError(f"{where} has unknown stage '{one.stage}'")


def check_outcome(where: str, timing: r.Timing | None, failure: r.Failure | None) -> None:
    """Raise DatabaseError unless there is one of the two and its times are numbers."""
    if (timing is None) == (failure is None):
        raise DatabaseError(f"{where} needs either a timing or a failure")
    if timing is not None:
        values = [getattr(timing, name) for name in _TIMING if name.endswith("_us")]
        if not all(math.isfinite(value) for value in values):
            raise DatabaseError(f"{where} has a time that is not a finite number")


def no_nan(value: float | None) -> float | None:
    return math.inf if value is not None and math.isnan(value) else value


def cost_of(row: m.Measurement | m.Event) -> r.Cost:
    return checked(r.Cost(row.codegen_s, row.compile_s, row.measure_s, row.sampler_s))


def cost_columns(cost: r.Cost) -> dict[str, float]:
    return {
        "codegen_s": cost.codegen,
        "compile_s": cost.compile,
        "measure_s": cost.measure,
        "sampler_s": cost.sampler,
    }


# --- sessions -------------------------------------------------------------------------------


def event_row(session: int, position: int, candidate: int, event: r.Event) -> m.Event:
    return m.Event(
        session_id=session,
        position=position,
        trial=event.trial,
        best_us=event.best_us,
        candidate_id=candidate,
        origin=event.origin,
        bound_us=event.bound_us,
        gap=_number("gap", event.gap),
        residual_us=_number("residual", event.residual_us),
        **cost_columns(event.spent),
    )


def _number(what: str, value: float | None) -> float | None:
    """Raise DatabaseError for what SQLite would silently store as NULL."""
    if value is not None and math.isnan(value):
        raise DatabaseError(f"the {what} is not a number")
    return value


def next_position(t: Transaction, session: int) -> int:
    """One past the last event of a session."""
    last = t.scalar(select(func.max(m.Event.position)).where(m.Event.session_id == session))
    return 0 if last is None else last + 1


def set_result(t: Transaction, session: m.Session, result: r.SessionResult, ended: str) -> None:
    """Write how a session ended; its candidates must have been measured."""
    workload = session.workload_id
    session.ended = ended
    session.strategy, session.seed = result.strategy, result.seed
    session.budget_s, session.finished = result.budget_s, result.finished
    session.trials, session.measured = result.trials, result.measured
    session.gap = _number("gap", result.gap)
    session.residual_us = _number("residual", result.residual_us)
    for name, seconds in cost_columns(result.spent).items():
        setattr(session, name, seconds)
    # A session in which nothing worked has no best candidate.
    best = result.best_digest
    session.best_id = candidate_id(t, workload, best) if best else None
    for position, (kind, count) in enumerate(result.failed):
        t.add(m.SessionFailure(session_id=session.id, position=position, kind=kind, count=count))
    for position, (name, digest) in enumerate(result.baselines):
        number = candidate_id(t, workload, digest)
        t.add(
            m.SessionBaseline(
                session_id=session.id, position=position, name=name, candidate_id=number
            )
        )
    for position, verdict in enumerate(result.verdicts):
        values = {name: getattr(verdict, name) for name in _VERDICT}
        t.add(m.Verdict(session_id=session.id, position=position, **values))


def verdict_of(row: m.Verdict) -> r.Verdict:
    return checked(r.Verdict(**{name: getattr(row, name) for name in _VERDICT}))
