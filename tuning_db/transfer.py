"""Databases carried elsewhere: export to JSON lines, import as a union, copy while in use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import kernels, lines, queries, rows, union
from tuning_db import models as m
from tuning_db.checked import checked, identified
from tuning_db.store import Store
from tuning_db.union import Vet, as_it_is


def export_lines(store: Store) -> Iterator[str]:
    """One state of the database as JSON lines without newlines, in an order that depends on its
    contents only."""
    yield lines.write_header(lines.CURRENT)
    with store.reading() as t:
        for part in PARTS.values():
            yield from map(written, part(t))


def import_lines(store: Store, texts: Iterable[str], vet: Vet = as_it_is) -> dict[str, int]:
    """Add what the database does not have yet; returns how many rows of each kind were new.

    Rows that exist stay as they are; a session that had not ended here takes its end from there.
    An export of a schema without promoted plans promotes the best ones where there are none here.
    All or nothing: raises DatabaseError naming the line that does not fit. `vet` is asked of each
    line, which it may change; it raises DatabaseError for one that is not added.
    """
    # Read first: the write lock is not held while a slow source is read.
    schema, parsed = union.parse(texts, vet)
    return store.write(lambda t: union.add_all(t, schema, parsed), fresh=True)


def merge(store: Store, other: Store, vet: Vet = as_it_is) -> dict[str, int]:
    """Add what another database has and this one does not, as `import_lines` does."""
    return import_lines(store, export_lines(other), vet)


def written(line: lines.Line) -> str:
    """The text of a line; raises DatabaseError for one that is damaged."""
    return lines.write_line(checked(line))


# --- export ---------------------------------------------------------------------------------


def _environments(t: Transaction) -> Iterator[lines.Line]:
    for row in identified(t.scalars(select(m.Environment).order_by(m.Environment.digest))):
        yield lines.EnvironmentLine(row.digest, rows.environment_of(row))


def _workloads(t: Transaction) -> Iterator[lines.Line]:
    for row in identified(t.scalars(select(m.Workload).order_by(m.Workload.digest))):
        yield r.WorkloadRow(row.digest, row.text, row.name, row.nodes)


def _group_lines(t: Transaction) -> Iterator[lines.Line]:
    for row in identified(t.scalars(select(m.Group).order_by(m.Group.digest))):
        yield lines.GroupLine(row.digest, row.text)


def _candidates(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(m.Candidate, m.Workload.digest)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .order_by(m.Workload.digest, m.Candidate.digest)
    )
    groups: dict[str, dict[int, tuple[str, ...]]] = {}
    for row, workload in identified(t.execute(query)):
        if workload not in groups:
            groups = {workload: queries.groups(t, workload)}
        yield lines.CandidateLine(
            workload,
            row.digest,
            row.json,
            row.origin,
            row.kernels,
            groups[workload].get(row.id, ()),
        )


def _sessions(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(m.Session, m.Environment.digest, m.Workload.digest)
        .join(m.Environment, m.Session.environment_id == m.Environment.id)
        .join(m.Workload, m.Session.workload_id == m.Workload.id)
        .order_by(m.Session.started, m.Session.uid)
    )
    for row, environment, workload in identified(t.execute(query)):
        yield lines.SessionLine(
            uid=row.uid,
            environment=environment,
            workload=workload,
            strategy=row.strategy,
            seed=row.seed,
            budget_s=row.budget_s,
            started=row.started,
            ended=row.ended,
            result=queries.session_result(t, row),
            events=queries.events(t, row.id),
        )


def _measurements(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(
            m.Measurement,
            m.Session.uid,
            m.Environment.digest,
            m.Workload.digest,
            m.Candidate.digest,
        )
        .join(m.Session, m.Measurement.session_id == m.Session.id, isouter=True)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .order_by(m.Measurement.created, m.Measurement.uid)
    )
    for row, session, environment, workload, candidate in identified(t.execute(query)):
        yield lines.MeasurementLine(
            uid=row.uid,
            created=row.created,
            session=session,
            environment=environment,
            workload=workload,
            candidate=candidate,
            origin=row.origin,
            stage=row.stage,
            timing=rows.timing_of(row),
            failure=rows.failure_of(row),
            max_rel_error=row.max_rel_error,
            cost=rows.cost_of(row),
            code=row.code or "",
        )


def _kernels(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(
            *kernels.COLUMNS,
            m.KernelMeasurement.uid,
            m.KernelMeasurement.created,
            m.Session.uid,
            m.Environment.digest,
        )
        .join_from(m.KernelMeasurement, m.Group, m.KernelMeasurement.group_id == m.Group.id)
        .join(m.Session, m.KernelMeasurement.session_id == m.Session.id, isouter=True)
        .join(m.Environment, m.KernelMeasurement.environment_id == m.Environment.id)
        .order_by(m.KernelMeasurement.created, m.KernelMeasurement.uid)
    )
    for row in t.execute(query):
        uid, created, session, environment = row[len(kernels.COLUMNS) :]
        yield lines.KernelLine(uid, created, session, environment, kernels.kernel_of(row))


def _best_plans(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(m.Workload.digest, m.BestPlan.cache, m.Measurement.uid, m.BestPlan.promoted)
        .join(m.Workload, m.BestPlan.workload_id == m.Workload.id)
        .join(m.Measurement, m.BestPlan.measurement_id == m.Measurement.id)
        .order_by(m.Workload.digest, m.BestPlan.fingerprint, m.BestPlan.cache)
    )
    for workload, cache, measurement, promoted in t.execute(query):
        yield lines.BestLine(workload, cache, measurement, promoted)


def _calibrations(t: Transaction) -> Iterator[lines.Line]:
    query = (
        select(m.Environment.digest, m.Calibration.name, m.Calibration.value)
        .join(m.Environment, m.Calibration.environment_id == m.Environment.id)
        .order_by(m.Environment.digest, m.Calibration.name)
    )
    for environment, name, value in t.execute(query):
        yield lines.CalibrationLine(environment, name, value)


# By table, each after those that it refers to.
PARTS: dict[str, Callable[[Transaction], Iterator[lines.Line]]] = {
    "environment": _environments,
    "workload": _workloads,
    "group_": _group_lines,
    "candidate": _candidates,
    "session": _sessions,
    "measurement": _measurements,
    "kernel_measurement": _kernels,
    "best_plan": _best_plans,
    "calibration": _calibrations,
}
