"""Which schema a database has, and bringing it to the one of this program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, inspect, text

from tuning_db.errors import DatabaseError

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"
VERSION_TABLE = "autofuse_schema"


def ensure_schema(engine: Engine, name: str, writes: Mapping[str, Any]) -> None:
    """Create or migrate the tables; a no-op on an up-to-date database.

    `writes` are the execution options of a writing transaction. Raises DatabaseError if the
    schema is newer than this program.
    """
    with engine.connect() as connection:
        found = current_revision(connection)
    if found == HEAD:
        return
    check_revision(found, name)
    with engine.execution_options(**writes).begin() as connection:
        # Another process may have migrated while this one waited for the write lock.
        if current_revision(connection) != HEAD:
            _upgrade(connection)


def current_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def check_revision(revision: str | None, name: str) -> None:
    """Raise DatabaseError if `revision` is none that this program can read or migrate."""
    if revision is None or revision == HEAD or revision in _known():
        return
    raise DatabaseError(
        f"database {name} was written by a newer autofuse (schema {revision}); "
        "upgrade autofuse or use another --db"
    )


def migration_config() -> Config:
    """Alembic's configuration, with no file: the scripts lie beside this module."""
    # Alembic is slow to import and needed only when the schema changes.
    from alembic.config import Config

    config = Config()
    location = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", location)
    return config


def _known() -> frozenset[str]:
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return frozenset(script.revision for script in scripts)


def _upgrade(connection: Connection) -> None:
    from alembic import command

    config = migration_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
