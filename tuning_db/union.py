"""Lines of an export added to a database: what is there stays as it is. The caller holds the
transaction."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import best, kernels, lines, rows
from tuning_db import models as m
from tuning_db.errors import DatabaseError


def upgraded(line: lines.Line, renamed: dict[str, str]) -> lines.Line:
    """A line of a schema before 0003, whose fingerprints held the code generator's version;
    `renamed` is filled with the digests that environments had, and those they have now."""
    if isinstance(line, lines.EnvironmentLine):
        _check_digest(line)
        must = tuple(pair for pair in line.environment.must if pair[0] != "codegen")
        environment = replace(line.environment, must=must)
        renamed[line.digest] = rows.environment_digest(environment)
        return lines.EnvironmentLine(renamed[line.digest], environment)
    match line:
        case (
            lines.SessionLine(environment=old)
            | lines.MeasurementLine(environment=old)
            | lines.KernelLine(environment=old)
            | lines.CalibrationLine(environment=old)
        ) if old in renamed:
            return replace(line, environment=renamed[old])
        case _:
            return line


def add(t: Transaction, line: lines.Line) -> bool:
    """Add a line if it is new; True if it was."""
    match line:
        case lines.EnvironmentLine():
            return _add_environment(t, line)
        case r.WorkloadRow():
            return rows.ensure_workload(t, line)
        case lines.GroupLine():
            return rows.ensure_group(t, line.digest, line.text)[1]
        case lines.CandidateLine():
            return _add_candidate(t, line)
        case lines.SessionLine():
            return _add_session(t, line)
        case lines.MeasurementLine():
            return _add_measurement(t, line)
        case lines.KernelLine():
            return _add_kernel(t, line)
        case lines.BestLine():
            return _add_best(t, line)
        case lines.CalibrationLine():
            return _add_calibration(t, line)


def _add_environment(t: Transaction, line: lines.EnvironmentLine) -> bool:
    _check_digest(line)
    new = t.scalar(select(m.Environment.id).where(m.Environment.digest == line.digest)) is None
    rows.ensure_environment(t, line.environment)
    return new


def _check_digest(line: lines.EnvironmentLine) -> None:
    if rows.environment_digest(line.environment) != line.digest:
        raise DatabaseError("environment does not have the digest it claims")


def _add_candidate(t: Transaction, line: lines.CandidateLine) -> bool:
    workload = rows.workload_id(t, line.workload)
    return rows.ensure_candidate(
        t, workload, line.digest, line.json, line.origin, line.kernels, line.groups
    )[1]


def _add_session(t: Transaction, line: lines.SessionLine) -> bool:
    if (line.ended is None) != (line.result is None):
        raise DatabaseError("session needs both an end and a result, or neither")
    row = t.scalar(select(m.Session).where(m.Session.uid == line.uid))
    new = row is None
    workload = rows.workload_id(t, line.workload)
    if row is None:
        row = m.Session(
            uid=line.uid,
            environment_id=_environment_id(t, line.environment),
            workload_id=workload,
            strategy=line.strategy,
            seed=line.seed,
            budget_s=line.budget_s,
            started=line.started,
        )
        t.add(row)
        t.flush()
    if row.ended is not None:
        return new
    # An unfinished session here may have gone on there: take the events it lacks, and its end.
    for position in range(rows.next_position(t, row.id), len(line.events)):
        event = line.events[position]
        candidate = rows.candidate_id(t, workload, event.candidate_digest)
        t.add(rows.event_row(row.id, position, candidate, event))
    if line.ended is not None and line.result is not None:
        rows.set_result(t, row, line.result, line.ended)
    return new


def _add_measurement(t: Transaction, line: lines.MeasurementLine) -> bool:
    if t.scalar(select(m.Measurement.id).where(m.Measurement.uid == line.uid)) is not None:
        return False
    session = _session_id(t, line.session)
    candidate = rows.candidate_id(t, rows.workload_id(t, line.workload), line.candidate)
    one = r.Measurement(
        workload=line.workload,
        candidate="",
        candidate_digest=line.candidate,
        origin=line.origin,
        kernels=0,
        groups=(),
        timing=line.timing,
        failure=line.failure,
        max_rel_error=line.max_rel_error,
        cost=line.cost,
        stage=line.stage,
        code=line.code,
    )
    environment = _environment_id(t, line.environment)
    t.add(rows.measurement_row(environment, candidate, session, one, line.uid, line.created))
    return True


def _add_kernel(t: Transaction, line: lines.KernelLine) -> bool:
    same = m.KernelMeasurement.uid == line.uid
    if t.scalar(select(m.KernelMeasurement.id).where(same)) is not None:
        return False
    session = _session_id(t, line.session)
    environment = _environment_id(t, line.environment)
    group, _ = rows.ensure_group(t, line.kernel.group)
    t.add(kernels.row_of(environment, group, session, line.kernel, line.uid, line.created))
    return True


def _add_best(t: Transaction, line: lines.BestLine) -> bool:
    """What was promoted here stays: it was never timed against what was promoted there."""
    query = (
        select(m.Measurement, m.Candidate.workload_id, m.Environment.fingerprint)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Measurement.uid == line.measurement)
    )
    found = t.execute(query).one_or_none()
    if found is None:
        raise DatabaseError(f"measurement {line.measurement} is on no earlier line")
    row, workload, fingerprint = found
    if workload != rows.workload_id(t, line.workload) or row.cache != line.cache:
        raise DatabaseError(f"measurement {line.measurement} is of another workload or cache state")
    if t.get(m.BestPlan, (workload, fingerprint, line.cache)) is not None:
        return False
    t.add(best.row_of(workload, fingerprint, row, line.promoted))
    return True


def _add_calibration(t: Transaction, line: lines.CalibrationLine) -> bool:
    environment = _environment_id(t, line.environment)
    if t.get(m.Calibration, (environment, line.name)) is not None:
        return False
    t.add(m.Calibration(environment_id=environment, name=line.name, value=line.value))
    return True


def _session_id(t: Transaction, uid: str | None) -> int | None:
    found = None if uid is None else t.scalar(select(m.Session.id).where(m.Session.uid == uid))
    if uid is not None and found is None:
        raise DatabaseError(f"session {uid} is on no earlier line")
    return found


def _environment_id(t: Transaction, digest: str) -> int:
    found = t.scalar(select(m.Environment.id).where(m.Environment.digest == digest))
    if found is None:
        raise DatabaseError(f"environment {digest} is on no earlier line")
    return found
