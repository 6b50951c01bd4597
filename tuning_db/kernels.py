"""Kernels measured alone, by group digest. The caller holds the transaction."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select
from sqlalchemy.orm import Session as Transaction

from autofuse import records as r
from tuning_db import models as m
from tuning_db import rows
from tuning_db.checked import checked, pairs_of
from tuning_db.errors import DatabaseError
from tuning_db.plausible import check_outcome, possible

CACHES = ("cold", "warm")
# Older SQLite takes at most 999 parameters in one statement.
_CHUNK = 500
_TIMING = tuple(field.name for field in fields(r.Timing))
_COSTS = ("codegen_s", "compile_s", "measure_s", "sampler_s")
_OWN = (
    "launch",
    "cache",
    "code",
    "failure_kind",
    "failure_message",
    "failure_blame",
    "max_rel_error",
    "bound_us",
    "facts",
)
# Where costs and times begin among COLUMNS, which start with the group.
_COST_AT = 1 + len(_OWN)
_TIME_AT = _COST_AT + len(_COSTS)
# What `kernel_of` reads, by position: a tracked object per row costs several times the query.
COLUMNS = (
    m.Group.digest,
    *(getattr(m.KernelMeasurement, name) for name in (*_OWN, *_COSTS, *_TIMING)),
)
# Group, launch, cache state, code.
Key = tuple[str, str, str, str]


def known(
    t: Transaction, env: r.Environment, groups: Sequence[str]
) -> dict[Key, r.KernelMeasurement]:
    """Latest measurement by (group, launch, cache, code) on devices of this fingerprint; what the
    machine made fail is left out."""
    latest: dict[Key, r.KernelMeasurement] = {}
    for start in range(0, len(groups), _CHUNK):
        query = (
            select(*COLUMNS)
            .join_from(m.KernelMeasurement, m.Group, m.KernelMeasurement.group_id == m.Group.id)
            .join(m.Environment, m.KernelMeasurement.environment_id == m.Environment.id)
            .where(m.Group.digest.in_(groups[start : start + _CHUNK]))
            .where(m.Environment.fingerprint == rows.fingerprint(env))
            .where(rows.still_counts(m.KernelMeasurement, env))
            .order_by(m.KernelMeasurement.created, m.KernelMeasurement.id)
        )
        found: dict[Key, Sequence[Any]] = {}
        for row in t.execute(query):
            failure = rows.failure(row.failure_kind, row.failure_message, row.failure_blame)
            if not rows.is_the_machines(failure):
                found[row[0], row.launch, row.cache, row.code or ""] = row
        latest.update((key, kernel_of(row)) for key, row in found.items())
    return latest


def best_first(
    stored: Mapping[Key, r.KernelMeasurement],
) -> list[tuple[Key, r.KernelMeasurement]]:
    """Every kernel's least time before any kernel's second, as there may be no time for all."""

    def us(row: tuple[Key, r.KernelMeasurement]) -> float:
        return math.inf if row[1].timing is None else row[1].timing.median_us

    rank: Counter[str] = Counter()
    ranked: list[tuple[int, tuple[Key, r.KernelMeasurement]]] = []
    for row in sorted(stored.items(), key=us):
        ranked.append((rank[row[0][0]], row))
        rank[row[0][0]] += 1
    return [row for _, row in sorted(ranked, key=lambda found: found[0])]


def newest(connection: Connection) -> int:
    """The number of the row that was added last; 0 where there is none."""
    return int(
        connection.execute(select(func.coalesce(func.max(m.KernelMeasurement.id), 0))).scalar_one()
    )


def news(
    connection: Connection, env: r.Environment, workload: str, session: int, after: int
) -> tuple[int, list[r.KernelMeasurement]]:
    """What other sessions on a workload added after a row, on devices of this fingerprint, and the
    number of the last row; what the machine made fail is left out.

    A row that was begun earlier and committed later than that one is never told: who hears of it
    too late has measured it himself."""
    own = m.KernelMeasurement
    query = (
        select(*COLUMNS, own.id)
        .join_from(own, m.Group, own.group_id == m.Group.id)
        .join(m.Session, own.session_id == m.Session.id)
        .join(m.Workload, m.Session.workload_id == m.Workload.id)
        .join(m.Environment, own.environment_id == m.Environment.id)
        .where(own.id > after, own.session_id != session, m.Workload.digest == workload)
        .where(m.Environment.fingerprint == rows.fingerprint(env))
        .where(rows.still_counts(own, env))
        .order_by(own.id)
    )
    found = connection.execute(query).all()
    told = [kernel_of(row) for row in found]
    told = [one for one in told if not rows.is_the_machines(one.failure)]
    return (found[-1].id if found else after), told


def kernel_values(
    environment: int,
    group: int | ColumnElement[Any],
    session: int | None,
    one: r.KernelMeasurement,
    uid: str,
    created: str | None = None,
) -> dict[str, Any]:
    """The columns of a measurement, of now unless `created`; raises DatabaseError if the record
    contradicts itself."""
    check(one)
    # The cache state is told where there is no time too.
    return {
        **rows.shared_columns(environment, session, one, uid, created),
        "group_id": group,
        "launch": one.launch,
        "cache": one.cache,
        "bound_us": one.bound_us,
        "facts": json.dumps([(name, float(value)) for name, value in one.facts]),
    }


def kernel_of(row: Sequence[Any]) -> r.KernelMeasurement:
    """The record of a row that begins with COLUMNS."""
    group, launch, cache, code, kind, message, blame, error, bound, facts = row[:_COST_AT]
    timing = (
        None if kind is not None else possible(checked(r.Timing(*row[_TIME_AT : len(COLUMNS)])))
    )
    one = r.KernelMeasurement(
        group=group,
        launch=launch,
        cache=cache,
        code=code or "",
        timing=timing,
        failure=rows.failure(kind, message, blame),
        max_rel_error=error,
        cost=checked(r.Cost(*row[_COST_AT:_TIME_AT])),
        bound_us=bound,
        facts=pairs_of(facts),
    )
    return checked(one)


def check(one: r.KernelMeasurement) -> None:
    """Raise DatabaseError if a measurement contradicts itself."""
    where = f"measurement of kernel {one.group}"
    check_outcome(where, one.timing, one.failure)
    if one.cache not in CACHES:
        raise DatabaseError(f"{where} has unknown cache state '{one.cache}'")
    if one.timing is not None and one.timing.cache != one.cache:
        raise DatabaseError(f"{where} is for a {one.cache} cache but was timed otherwise")
    if one.bound_us is not None and not math.isfinite(one.bound_us):
        raise DatabaseError(f"{where} has a bound that is not a finite number")
    for name, value in one.facts:
        if not math.isfinite(value):
            raise DatabaseError(f"{where} has a fact '{name}' that is not a finite number")
