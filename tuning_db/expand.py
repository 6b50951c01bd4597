"""Indices of a newer schema, built on PostgreSQL beside those who write.

CREATE INDEX keeps writers out for as long as it takes; CONCURRENTLY does not, but it is no part of
a transaction. So it comes first, and the migration then finds the index there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, Index, inspect, text
from sqlalchemy.schema import CreateIndex

from tuning_db.models import Base

# The advisory lock of who builds indices, and seconds between two tries to get it: who waits for it
# in a transaction would be waited for by CONCURRENTLY.
_LOCK, _WAIT_S = 4_271_000_019, 0.1
_VALID = (
    "SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indisvalid AND pg_table_is_visible(c.oid)"
)


def build_indices(engine: Engine) -> tuple[str, ...]:
    """Build the indices of our tables that are missing, where their columns are there; their
    names. What an interrupted build left behind is built again."""
    alone = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    with alone as connection, _alone(connection):
        missing = list(_missing(connection))
        for index in missing:
            connection.execute(text(f"DROP INDEX CONCURRENTLY IF EXISTS {index.name}"))
            made = str(CreateIndex(index).compile(dialect=engine.dialect))
            connection.execute(text(made.replace("INDEX", "INDEX CONCURRENTLY", 1)))
    return tuple(str(index.name) for index in missing)


def _missing(connection: Connection) -> Iterator[Index]:
    valid = set(connection.scalars(text(_VALID)))
    catalogue = inspect(connection)
    for name, table in sorted(Base.metadata.tables.items()):
        if not catalogue.has_table(name):
            continue
        there = {column["name"] for column in catalogue.get_columns(name)}
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            if index.name not in valid and {c.name for c in index.columns} <= there:
                yield index


@contextmanager
def _alone(connection: Connection) -> Iterator[None]:
    key = {"key": _LOCK}
    while not connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), key):
        time.sleep(_WAIT_S)
    try:
        yield
    finally:
        connection.execute(text("SELECT pg_advisory_unlock(:key)"), key)
