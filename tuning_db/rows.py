"""Records to rows and back, and rows that are added only if they are not there yet.

Everything here runs inside a transaction that the caller holds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any
from uuid import uuid4

from sqlalchemy import ColumnElement, Select, func, select, update
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import models as m
from tuning_db.checked import checked, named, pairs_of, shown
from tuning_db.clock import server_now
from tuning_db.errors import DatabaseError
from tuning_db.plausible import check_outcome, impossible_cost, possible
from tuning_db.upsert import put, put_candidate

STAGES = ("search", "final", "baseline")
_FROM_OUTSIDE = ("killed by SIGKILL", "killed by SIGTERM")
_TIMING = tuple(field.name for field in fields(r.Timing))
_VERDICT = tuple(field.name for field in fields(r.Verdict))
# What is kept of a proof by name, with a session, and with an event.
SESSION_PROOF = ("search_gap", "residual_us", "bound_us")
EVENT_PROOF = ("search_floor_us", *SESSION_PROOF)
_RESULT = ("strategy", "seed", "budget_s", "finished", "trials", "measured")


def new_uid() -> str:
    return uuid4().hex


class Ids(dict[tuple[str, ...], int]):
    """Numbers of rows that never change or go, by what names them."""


def remember(t: Transaction, known: Ids) -> None:
    """From now on this transaction asks for no number that is `known`, and adds those it finds."""
    t.info["ids"] = known


def known_ids(t: Transaction) -> Ids:
    """What a transaction remembers; of use after it was committed."""
    found: Ids = t.info["ids"]
    return found


def remembered(t: Transaction, find: Callable[[], int], *names: str) -> int:
    """The row number by these names, found out once."""
    known: Ids = t.info.setdefault("ids", Ids())
    if names not in known:
        known[names] = find()
    return known[names]


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
    return remembered(t, lambda: _ensure_environment(t, env, digest), "environment", digest)


def _ensure_environment(t: Transaction, env: r.Environment, digest: str) -> int:
    same = select(m.Environment.id).where(m.Environment.digest == digest)
    known = t.scalar(same)
    if known is not None:
        return known
    values = {
        "digest": digest,
        "fingerprint": fingerprint(env),
        "device": env.device,
        "must": _pairs_text(env.must),
        "stale": stale_text(env),
    }
    put(t, m.Environment, values)
    return t.scalars(same).one()


def stale_text(env: r.Environment) -> str:
    """The stale pairs as an environment's row has them."""
    return _pairs_text(env.stale)


def _pairs_text(pairs: Sequence[tuple[str, str]]) -> str:
    return json.dumps(sorted(pairs), separators=(",", ":"))


def _pairs(text: str) -> tuple[tuple[str, str], ...]:
    return pairs_of(text)


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]


# --- workloads, groups, candidates ----------------------------------------------------------


def workload_id(t: Transaction, digest: str) -> int:
    """Raises DatabaseError if nobody added the workload."""
    return remembered(t, lambda: _workload_id(t, digest), "workload", digest)


def _workload_id(t: Transaction, digest: str) -> int:
    found = t.scalar(select(m.Workload.id).where(m.Workload.digest == digest))
    if found is None:
        raise DatabaseError(f"workload {named(digest)} is not in the database")
    return found


def ensure_workload(t: Transaction, workload: r.WorkloadRow) -> bool:
    """Add a workload, or give a known one its first name; True if it is new."""
    row = t.scalar(select(m.Workload).where(m.Workload.digest == workload.digest))
    if row is not None:
        row.name = row.name or workload.name
        return False
    values = {name: getattr(workload, name) for name in ("digest", "text", "name", "nodes")}
    return put(t, m.Workload, values)


def ensure_group(t: Transaction, digest: str, text: str | None = None) -> tuple[int, bool]:
    """Row number of a group and whether it is new; a missing text is filled in."""
    same = select(m.Group).where(m.Group.digest == digest)
    row = t.scalar(same)
    if row is not None:
        row.text = text if row.text is None else row.text
        return row.id, False
    new = put(t, m.Group, {"digest": digest, "text": text})
    return t.scalars(same).one().id, new


def candidate_id(t: Transaction, workload: int, digest: str) -> int:
    """Raises DatabaseError if the candidate was never measured for this workload."""
    found = t.scalar(candidate_query(workload, digest))
    if found is None:
        raise DatabaseError(f"candidate {named(digest)} was never measured for this workload")
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
    found = t.scalar(candidate_query(workload, digest))
    if found is not None:
        return found, False
    put_candidate(t, workload, digest, candidate_values(text, origin, kernels), groups)
    return candidate_id(t, workload, digest), True


def candidate_values(text: str, origin: str, kernels: int) -> dict[str, Any]:
    return {"json": text, "origin": origin, "kernels": kernels}


def candidate_query(workload: int, digest: str) -> Select[int]:
    same = (m.Candidate.workload_id == workload) & (m.Candidate.digest == digest)
    return select(m.Candidate.id).where(same)


# --- measurements ---------------------------------------------------------------------------


def measurement_values(
    environment: int,
    candidate: int | ColumnElement[Any],
    session: int | None,
    one: r.Measurement,
    uid: str,
    created: str | None = None,
) -> dict[str, Any]:
    """The columns of a measurement, of now unless `created`; raises DatabaseError if the record
    contradicts itself."""
    check(one)
    return {
        "candidate_id": candidate,
        "origin": one.origin,
        "stage": one.stage,
        **shared_columns(environment, session, one, uid, created),
    }


def shared_columns(
    environment: int,
    session: int | None,
    one: r.Measurement | r.KernelMeasurement,
    uid: str,
    created: str | None,
) -> dict[str, Any]:
    """The columns that measurements of candidates and of kernels have alike."""
    columns: dict[str, Any] = {
        "uid": uid,
        "created": created or server_now(),
        "session_id": session,
        "environment_id": environment,
        # SQLite has no NaN: a result that is not a number is infinitely wrong.
        "max_rel_error": no_nan(one.max_rel_error),
        "code": one.code or None,
        **cost_columns(one.cost),
    }
    if one.timing is not None:
        columns |= {name: getattr(one.timing, name) for name in _TIMING}
    if one.failure is not None:
        columns["failure_kind"] = one.failure.kind.value
        columns["failure_message"] = printable(one.failure.message)
        columns["failure_blame"] = one.failure.blame.value
    return columns


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
    return possible(checked(r.Timing(**{name: getattr(row, name) for name in _TIMING})))


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


def still_counts(
    model: type[m.Measurement] | type[m.KernelMeasurement], env: r.Environment
) -> ColumnElement[bool]:
    """That a row is no failure under other stale pairs than the asker's: another driver or
    compiler is given another try."""
    return model.failure_kind.is_(None) | (m.Environment.stale == stale_text(env))


def printable(text: str) -> str:
    """Compiler and crash output made storable: no lone surrogates, no NUL."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def check(one: r.Measurement) -> None:
    """Raise DatabaseError if a measurement contradicts itself."""
    where = f"measurement of candidate {one.candidate_digest}"
    check_outcome(where, one.timing, one.failure)
    if one.stage not in STAGES:
        raise DatabaseError(f"{where} has unknown stage '{one.stage}'")


def no_nan(value: float | None) -> float | None:
    return math.inf if value is not None and math.isnan(value) else value


def cost_of(row: m.Measurement | m.Event) -> r.Cost:
    return checked(r.Cost(row.codegen_s, row.compile_s, row.measure_s, row.sampler_s))


def cost_columns(cost: r.Cost) -> dict[str, float]:
    wrong = impossible_cost(cost)
    if wrong:
        raise DatabaseError(f"a measurement cannot be: {wrong}")
    return {
        "codegen_s": cost.codegen,
        "compile_s": cost.compile,
        "measure_s": cost.measure,
        "sampler_s": cost.sampler,
    }


# --- sessions -------------------------------------------------------------------------------


def event_values(session: int, position: int, candidate: int, event: r.Event) -> dict[str, Any]:
    return {
        "session_id": session,
        "position": position,
        "trial": event.trial,
        "best_us": event.best_us,
        "candidate_id": candidate,
        "origin": event.origin,
        **_proved(event.proof, EVENT_PROOF),
        **cost_columns(event.spent),
    }


def _proved(proof: r.Proof, names: tuple[str, ...]) -> dict[str, float | None]:
    """Raises DatabaseError for what SQLite would silently store as NULL."""
    values = {name: getattr(proof, name) for name in names}
    for name, value in values.items():
        if value is not None and math.isnan(value):
            raise DatabaseError(f"{name} is not a number")
    return values


def proof_of(row: m.Session | m.Event, names: tuple[str, ...]) -> r.Proof:
    return checked(r.Proof(**{name: getattr(row, name) for name in names}))


def next_position(t: Transaction, session: int) -> int:
    """One past the last event of a session."""
    last = t.scalar(select(func.max(m.Event.position)).where(m.Event.session_id == session))
    return 0 if last is None else last + 1


def set_result(
    t: Transaction, session: m.Session, result: r.SessionResult, ended: str | None = None
) -> None:
    """Write how a session ended, now unless `ended`; its candidates must have been measured."""
    workload = session.workload_id
    values = {
        "ended": ended or server_now(),
        **{name: getattr(result, name) for name in _RESULT},
        **_proved(result.proof, SESSION_PROOF),
        "best_id": candidate_id(t, workload, result.best_digest) if result.best_digest else None,
        **cost_columns(result.spent),
    }
    t.execute(update(m.Session).where(m.Session.id == session.id).values(values))
    t.expire(session)
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
