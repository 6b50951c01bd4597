"""Many lines of an export of one kind added together: a few questions for all of them instead of
some for each. The caller holds the transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import kernels, lines, rows
from tuning_db import models as m
from tuning_db.checked import named
from tuning_db.errors import DatabaseError
from tuning_db.upsert import group_ids, put_all, put_groups

# Lines of one kind that are added together.
SIZE = 2_000
# Older SQLite takes at most 999 parameters in one statement.
_CHUNK = 500
L = TypeVar("L", lines.GroupLine, lines.CandidateLine, lines.MeasurementLine, lines.KernelLine)
Batch = Sequence[tuple[int, L]]


@contextmanager
def naming(number: int) -> Iterator[None]:
    """Errors name the line that does not fit."""
    try:
        yield
    except (DatabaseError, ValueError) as error:
        raise DatabaseError(f"line {number}: {error}") from error


def session_id(t: Transaction, uid: str | None) -> int | None:
    """Row number of a session by its uid; raises DatabaseError if it is not there."""
    if uid is None:
        return None
    same = select(m.Session.id).where(m.Session.uid == uid)
    return _earlier(t, same, "session", uid, "session by uid")


def environment_id(t: Transaction, digest: str) -> int:
    """Row number of an environment by its digest; raises DatabaseError if it is not there."""
    same = select(m.Environment.id).where(m.Environment.digest == digest)
    return _earlier(t, same, "environment", digest, "environment")


def _earlier(t: Transaction, query: Any, what: str, name: str, key: str) -> int:
    def find() -> int:
        found: int | None = t.scalar(query)
        if found is None:
            raise DatabaseError(f"{what} {named(name)} is on no earlier line")
        return found

    return rows.remembered(t, find, key, name)


def _groups(t: Transaction, batch: Batch[lines.GroupLine]) -> int:
    told: dict[str, str | None] = {}
    for _, line in batch:
        told[line.digest] = told.get(line.digest) or line.text
    found = _select(t, (m.Group.digest, m.Group.text), m.Group.digest, told)
    bare = {digest: text is None for digest, text in found}
    new = {digest: text for digest, text in told.items() if digest not in bare}
    put_all(t, m.Group, [{"digest": d, "text": text} for d, text in sorted(new.items())])
    for digest, text in sorted(told.items()):
        if text is not None and bare.get(digest, False):
            t.execute(update(m.Group).where(m.Group.digest == digest).values(text=text))
    return len(new)


def _new_candidates(
    t: Transaction, batch: Batch[lines.CandidateLine]
) -> dict[tuple[int, str], lines.CandidateLine]:
    """Those that are not there, by workload and digest, the first of each."""
    known = _candidate_ids(t, [line.digest for _, line in batch])
    new: dict[tuple[int, str], lines.CandidateLine] = {}
    for number, line in batch:
        with naming(number):
            place = rows.workload_id(t, line.workload), line.digest
            if place not in known:
                new.setdefault(place, line)
    return new


def _candidates(t: Transaction, batch: Batch[lines.CandidateLine]) -> int:
    new = _new_candidates(t, batch)
    put_groups(t, [group for line in new.values() for group in line.groups])
    put_all(t, m.Candidate, [
        {"workload_id": workload, "digest": digest,
         **rows.candidate_values(line.json, line.origin, line.kernels)}
        for (workload, digest), line in new.items()
    ])  # fmt: skip
    numbers = _candidate_ids(t, [digest for _, digest in new])
    groups = group_ids(t, {group for line in new.values() for group in line.groups})
    put_all(t, m.CandidateGroup, [
        {"candidate_id": numbers[place], "position": position, "group_id": groups[group]}
        for place, line in new.items()
        for position, group in enumerate(line.groups)
    ])  # fmt: skip
    return len(new)


def _measurements(t: Transaction, batch: Batch[lines.MeasurementLine]) -> int:
    known = _uids(t, m.Measurement, [line.uid for _, line in batch])
    candidates = _candidate_ids(t, [line.candidate for _, line in batch])
    values = []
    for number, line in batch:
        if line.uid not in known:
            known.add(line.uid)
            with naming(number):
                values.append(_measurement_values(t, line, candidates))
    put_all(t, m.Measurement, values)
    return len(values)


def _measurement_values(
    t: Transaction, line: lines.MeasurementLine, candidates: Mapping[tuple[int, str], int]
) -> dict[str, Any]:
    session = session_id(t, line.session)
    place = rows.workload_id(t, line.workload), line.candidate
    candidate = candidates.get(place) or rows.candidate_id(t, *place)
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
    environment = environment_id(t, line.environment)
    return rows.measurement_values(environment, candidate, session, one, line.uid, line.created)


def _kernels(t: Transaction, batch: Batch[lines.KernelLine]) -> int:
    known = _uids(t, m.KernelMeasurement, [line.uid for _, line in batch])
    new = []
    for number, line in batch:
        if line.uid not in known:
            known.add(line.uid)
            with naming(number):
                kernels.check(line.kernel)
            new.append((number, line))
    digests = {line.kernel.group for _, line in new}
    put_groups(t, sorted(digests))
    groups, values = group_ids(t, digests), []
    for number, line in new:
        with naming(number):
            session = session_id(t, line.session)
            environment = environment_id(t, line.environment)
            group = groups[line.kernel.group]
            values.append(
                kernels.kernel_values(
                    environment, group, session, line.kernel, line.uid, line.created
                )
            )
    put_all(t, m.KernelMeasurement, values)
    return len(values)


# What many lines come in; the others are few, and are added one by one.
MANY: Mapping[type[Any], Callable[[Transaction, Any], int]] = {
    lines.GroupLine: _groups,
    lines.CandidateLine: _candidates,
    lines.MeasurementLine: _measurements,
    lines.KernelLine: _kernels,
}


def _uids(
    t: Transaction,
    model: type[m.Measurement] | type[m.KernelMeasurement],
    uids: Sequence[str],
) -> set[str]:
    """Which of these are there."""
    return {uid for (uid,) in _select(t, (model.uid,), model.uid, uids)}


def _candidate_ids(t: Transaction, digests: Collection[str]) -> dict[tuple[int, str], int]:
    """Row numbers by workload and digest."""
    columns = m.Candidate.workload_id, m.Candidate.digest, m.Candidate.id
    found = _select(t, columns, m.Candidate.digest, digests)
    return {(workload, digest): number for workload, digest, number in found}


def _select(
    t: Transaction, columns: Sequence[Any], key: ColumnElement[str] | Any, wanted: Collection[str]
) -> Iterator[Sequence[Any]]:
    """These columns of the rows whose key is wanted."""
    each = list(dict.fromkeys(wanted))
    for start in range(0, len(each), _CHUNK):
        yield from t.execute(select(*columns).where(key.in_(each[start : start + _CHUNK])))
