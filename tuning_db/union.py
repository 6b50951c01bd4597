"""Lines of an export added to a database: what is there stays as it is. The caller holds the
transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import batches, best, lines, rows
from tuning_db import models as m
from tuning_db.checked import named
from tuning_db.errors import DatabaseError
from tuning_db.schema import MAJOR
from tuning_db.upsert import put

_MOST_SAID = 400
# A line of an export and where it is, from 1.
Numbered = tuple[int, lines.Line]
# Asked of each line before it is added: the line, or a DatabaseError.
Vet = Callable[[lines.Line], lines.Line]


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


def as_it_is(line: lines.Line) -> lines.Line:
    return line


def parse(texts: Iterable[str], vet: Vet = as_it_is) -> tuple[str, list[Numbered]]:
    """The schema of an export, and its lines by number. Raises DatabaseError naming the line that
    does not fit."""
    schema, renamed = "", dict[str, str]()
    parsed: list[Numbered] = []
    for number, text in enumerate(texts, start=1):
        try:
            if number == 1:
                schema = _header_schema(text)
            elif text.strip():
                line = lines.read_line(text, schema)
                old = schema in lines.OLDER
                parsed.append((number, vet(upgraded(line, renamed) if old else line)))
        except (DatabaseError, ValueError) as error:
            raise DatabaseError(f"line {number}: {str(error)[:_MOST_SAID]}") from error
    if not schema:
        raise DatabaseError("line 1: the export is empty")
    return schema, parsed


def _header_schema(text: str) -> str:
    schema = lines.read_header(text).schema
    if schema not in (*lines.OLDER, *lines.ALIKE):
        raise ValueError(f"the export has schema {schema}, this autofuse reads up to {MAJOR}")
    return schema


def add_all(t: Transaction, schema: str, parsed: Sequence[Numbered]) -> dict[str, int]:
    """Add what is new of the lines of an export; how many rows of each kind were."""
    added: Counter[str] = Counter(dict.fromkeys(lines.KINDS, 0))
    for kind, run in groupby(parsed, lambda each: type(each[1])):
        for batch in _batches(run):
            added[lines.kind_of(batch[0][1])] += _add_batch(t, kind, batch)
    if schema in lines.OLDER:
        best.fill(t)
    return dict(added)


def _batches(run: Iterable[Numbered]) -> Iterator[list[Numbered]]:
    left = iter(run)
    while batch := list(islice(left, batches.SIZE)):
        yield batch


def _add_batch(t: Transaction, kind: type[Any], batch: Sequence[Numbered]) -> int:
    """Add lines of one kind; how many were new."""
    if kind in batches.MANY:
        return batches.MANY[kind](t, batch)
    new = 0
    for number, line in batch:
        with batches.naming(number):
            new += _add(t, line)
    return new


def _add(t: Transaction, line: lines.Line) -> bool:
    """Add a line if it is new; True if it was."""
    match line:
        case lines.EnvironmentLine():
            return _add_environment(t, line)
        case r.WorkloadRow():
            return rows.ensure_workload(t, line)
        case lines.SessionLine():
            return _add_session(t, line)
        case lines.BestLine():
            return _add_best(t, line)
        case lines.CalibrationLine():
            return _add_calibration(t, line)
        case _:
            raise AssertionError(f"lines of kind {lines.kind_of(line)} come in batches")


def _add_environment(t: Transaction, line: lines.EnvironmentLine) -> bool:
    _check_digest(line)
    new = t.scalar(select(m.Environment.id).where(m.Environment.digest == line.digest)) is None
    rows.ensure_environment(t, line.environment)
    return new


def _check_digest(line: lines.EnvironmentLine) -> None:
    if rows.environment_digest(line.environment) != line.digest:
        raise DatabaseError("environment does not have the digest it claims")


def _add_session(t: Transaction, line: lines.SessionLine) -> bool:
    if (line.ended is None) != (line.result is None):
        raise DatabaseError("session needs both an end and a result, or neither")
    workload = rows.workload_id(t, line.workload)
    same = select(m.Session).where(m.Session.uid == line.uid)
    row = t.scalar(same)
    new = row is None and put(t, m.Session, _session_values(t, line, workload))
    row = row or t.scalars(same).one()
    if row.ended is not None:
        return new
    # An unfinished session here may have gone on there: take the events it lacks, and its end.
    for position in range(rows.next_position(t, row.id), len(line.events)):
        event = line.events[position]
        candidate = rows.candidate_id(t, workload, event.candidate_digest)
        put(t, m.Event, rows.event_values(row.id, position, candidate, event))
    if line.ended is not None and line.result is not None:
        rows.set_result(t, row, line.result, line.ended)
    return new


def _session_values(t: Transaction, line: lines.SessionLine, workload: int) -> dict[str, Any]:
    return {
        "uid": line.uid,
        "environment_id": batches.environment_id(t, line.environment),
        "workload_id": workload,
        "strategy": line.strategy,
        "seed": line.seed,
        "budget_s": line.budget_s,
        "started": line.started,
    }


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
        raise DatabaseError(f"measurement {named(line.measurement)} is on no earlier line")
    row, workload, fingerprint = found
    if workload != rows.workload_id(t, line.workload) or row.cache != line.cache:
        raise DatabaseError(
            f"measurement {named(line.measurement)} is of another workload or cache state"
        )
    return put(t, m.BestPlan, best.values_of(workload, fingerprint, row, line.promoted))


def _add_calibration(t: Transaction, line: lines.CalibrationLine) -> bool:
    environment = batches.environment_id(t, line.environment)
    values = {"environment_id": environment, "name": line.name, "value": line.value}
    return put(t, m.Calibration, values)
