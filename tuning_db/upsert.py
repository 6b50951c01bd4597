"""Rows that are added only if they are not there: by one statement each, so that writers who meet
neither fail nor double anything, and in few round trips. The caller holds the transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, CursorResult, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session as Transaction

from tuning_db import models as m

# Typed as PostgreSQL's: SQLite's has the same methods.
_INSERT: dict[str, Callable[[type[m.Base]], postgresql.Insert]] = {
    "sqlite": cast(Any, sqlite.insert),
    "postgresql": postgresql.insert,
}
# The strings of a JSON list as rows of `position` and `value`: one parameter, however long it is.
_LISTED = {
    "sqlite": "(SELECT key AS position, value FROM json_each(:listed))",
    "postgresql": (
        "(SELECT ordinality - 1 AS position, value FROM "
        "json_array_elements_text(CAST(:listed AS json)) WITH ORDINALITY)"
    ),
}
# Only what is missing is tried: a conflict would use up a row number each time. Sorted, so that
# two who add the same groups do not wait for each other.
_GROUPS = (
    "INSERT INTO group_ (digest) SELECT DISTINCT value FROM {listed} AS listed WHERE NOT EXISTS "
    "(SELECT 1 FROM group_ AS known WHERE known.digest = listed.value) ORDER BY value "
    "ON CONFLICT DO NOTHING"
)
_GROUP_IDS = (
    "SELECT group_.digest, group_.id FROM {listed} AS listed "
    "JOIN group_ ON group_.digest = listed.value"
)
_CANDIDATE_GROUPS = (
    "INSERT INTO candidate_group (candidate_id, position, group_id) "
    "SELECT candidate.id, listed.position, group_.id FROM {listed} AS listed "
    "JOIN group_ ON group_.digest = listed.value "
    "JOIN candidate ON candidate.workload_id = :workload AND candidate.digest = :digest "
    "WHERE NOT EXISTS (SELECT 1 FROM candidate_group AS known WHERE "
    "known.candidate_id = candidate.id) ON CONFLICT DO NOTHING"
)


def dialect_of(t: Transaction) -> str:
    return t.get_bind().dialect.name


def put(
    t: Transaction,
    model: type[m.Base],
    values: Mapping[str, Any],
    condition: ColumnElement[bool] | None = None,
) -> bool:
    """Add a row unless its key or its uid is there; `condition` must hold too. True if it was
    added."""
    table = model.__table__
    columns = [table.c[name] for name in values]
    row = select(
        *(
            value if isinstance(value, ColumnElement) else literal(value, column.type)
            for value, column in zip(values.values(), columns, strict=True)
        )
    )
    # SQLite takes the ON of a conflict for that of a join unless there is a WHERE.
    row = row.where(literal(1) == 1 if condition is None else condition)
    made = _INSERT[dialect_of(t)](model).from_select(columns, row).on_conflict_do_nothing()
    counted = made.execution_options(preserve_rowcount=True)
    return t.connection().execute(counted).rowcount == 1


def put_all(t: Transaction, model: type[m.Base], values: Sequence[Mapping[str, Any]]) -> None:
    """Add each of these rows unless its key or its uid is there; what a row does not say is NULL.
    What the server is to compute is the same of all."""
    if not values:
        return
    made = _INSERT[dialect_of(t)](model)
    computed = {k: v for k, v in values[0].items() if isinstance(v, ColumnElement)}
    if computed:
        made = made.values(computed)
    empty = dict.fromkeys(name for row in values for name in row)
    rows = [{k: v for k, v in {**empty, **row}.items() if k not in computed} for row in values]
    t.connection().execute(made.on_conflict_do_nothing(), rows)


def replace_or_put(
    c: Connection,
    model: type[m.Base],
    values: Mapping[str, Any],
    condition: ColumnElement[bool] | None = None,
) -> bool:
    """Add a row, or give the one of the same primary key these values, if `condition` holds for
    that. True if there is a row of these values now."""
    stated = _replacing(c, model, values, condition).values(dict(values))
    return c.execute(stated.execution_options(preserve_rowcount=True)).rowcount == 1


def replace_or_put_all(
    c: Connection, model: type[m.Base], values: Sequence[Mapping[str, Any]]
) -> None:
    """Add rows of the same columns, or give those of the same primary keys these values, by one
    statement."""
    if values:
        c.execute(_replacing(c, model, values[0], None), [dict(row) for row in values])


def _replacing(
    c: Connection, model: type[m.Base], columns: Iterable[str],
    condition: ColumnElement[bool] | None,
) -> postgresql.Insert:  # fmt: skip
    keys = [column.name for column in model.__table__.primary_key]
    made = _INSERT[c.dialect.name](model)
    rest = {name: made.excluded[name] for name in columns if name not in keys}
    return made.on_conflict_do_update(index_elements=keys, set_=rest, where=condition)


def put_groups(t: Transaction, digests: Sequence[str]) -> None:
    """Add groups, their texts not known."""
    _execute(t, _GROUPS, digests)


def put_candidate(
    t: Transaction, workload: int, digest: str, values: Mapping[str, Any], groups: Sequence[str]
) -> None:
    """Add a candidate of a workload with its groups."""
    put_groups(t, groups)
    same = (m.Candidate.workload_id == workload) & (m.Candidate.digest == digest)
    row = {"workload_id": workload, "digest": digest, **values}
    put(t, m.Candidate, row, ~select(m.Candidate.id).where(same).exists())
    _execute(t, _CANDIDATE_GROUPS, groups, workload=workload, digest=digest)


def group_ids(t: Transaction, digests: Iterable[str]) -> dict[str, int]:
    """Row numbers of groups that are there."""
    return dict(map(tuple, _execute(t, _GROUP_IDS, sorted(digests))))


@contextmanager
def together(t: Transaction) -> Iterator[None]:
    """What is executed meanwhile is one round trip to a server; how many rows it changed is not
    known before the end."""
    if dialect_of(t) == "sqlite":
        yield
        return
    driver: Any = t.connection().connection.driver_connection
    with driver.pipeline():
        yield


def _execute(
    t: Transaction, statement: str, listed: Sequence[str], **values: object
) -> CursorResult[Any]:
    return t.connection().execute(
        text(statement.format(listed=_LISTED[dialect_of(t)])),
        {"listed": json.dumps(list(listed)), **values},
    )
