"""Which schema a database has, making one in an empty database, and upgrading one when asked.

A schema is MAJOR or MAJOR.MINOR. A minor one only adds: programs of its major schema still read
and write it, and have upgrades of their own to catch up with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    Connection,
    Engine,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    inspect,
    text,
)

from tuning_db.errors import DatabaseError
from tuning_db.expand import build_indices
from tuning_db.models import Base

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0005"
# What exports are of: a minor schema has the lines of its major one.
MAJOR = HEAD.partition(".")[0]
VERSION_TABLE = "autofuse_schema"
# The advisory lock on PostgreSQL of who makes or upgrades the tables.
_LOCK = 4_271_000_018


def ensure_schema(engine: Engine, name: str, writes: Mapping[str, Any]) -> None:
    """Create the tables of an empty database; nothing else is ever changed by opening.

    `writes` are the execution options of a writing transaction. Raises DatabaseError if the schema
    is older, or newer than this program can use.
    """
    with engine.connect() as connection:
        found = current_revision(connection)
    if found is None:
        _locked(engine, writes, lambda had: had is None)
    else:
        check_known(found, name)


def upgrade_schema(engine: Engine, name: str, writes: Mapping[str, Any]) -> tuple[str | None, str]:
    """Bring the tables to the schema of this program; the schemas before and after. Those who
    write wait for what takes no time only: indices are built beside them first. Raises
    DatabaseError if it is newer than this program can use."""

    def is_older(found: str | None) -> bool:
        check_upgradable(found, name)
        return found is None or found in _older()

    with engine.connect() as connection:
        found = current_revision(connection)
    if is_older(found) and engine.dialect.name == "postgresql":
        build_indices(engine)
    return _locked(engine, writes, is_older)


def current_revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return None if found is None else str(found)


def check_known(revision: str | None, name: str) -> None:
    """Raise DatabaseError if `revision` is none that this program can use as it is."""
    if revision is None or revision == HEAD or _serves(revision):
        return
    if revision in _older():
        raise DatabaseError(
            f"database {name} has schema {revision} and this autofuse needs {HEAD}: "
            f"`autofuse db upgrade` brings it there"
        )
    raise DatabaseError(
        f"database {name} was written by a newer autofuse (schema {revision}); "
        "upgrade autofuse or use another --db"
    )


def check_upgradable(revision: str | None, name: str) -> None:
    """Raise DatabaseError if `revision` is none that this program can use or upgrade."""
    if revision not in _older():
        check_known(revision, name)


def migration_config() -> Config:
    """Alembic's configuration, with no file: the scripts lie beside this module."""
    # Alembic is slow to import and needed only when the schema changes.
    from alembic.config import Config

    config = Config()
    location = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", location)
    return config


def _serves(revision: str) -> bool:
    """Whether a schema is ours with additions that this program does not know."""
    major, _, minor = revision.partition(".")
    known = minor.isascii() and minor.isdigit() and len(minor) < 6
    return major == MAJOR and known and int(minor) > int(HEAD.partition(".")[2] or 0)


def _older() -> frozenset[str]:
    """Schemas that this program knows and has left behind."""
    from alembic.script import ScriptDirectory

    scripts = ScriptDirectory.from_config(migration_config()).walk_revisions()
    return frozenset(script.revision for script in scripts) - {HEAD}


def _locked(
    engine: Engine, writes: Mapping[str, Any], is_wanted: Callable[[str | None], bool]
) -> tuple[str | None, str]:
    """Upgrade if that is wanted once nobody else is at it; the schemas before and after."""
    with engine.execution_options(**writes).begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        found = current_revision(connection)
        if not is_wanted(found):
            return found, found or HEAD
        if found is None:
            _make(connection)
        else:
            migrate(connection)
        return found, HEAD


def _make(connection: Connection) -> None:
    """The tables as their models say them: where all migrations arrive, in a tenth of the time."""
    Base.metadata.create_all(connection, checkfirst=False)
    # As Alembic makes it, which reads it from then on.
    version = Column("version_num", String(32), nullable=False)
    key = PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    table = Table(VERSION_TABLE, MetaData(), version, key)
    table.create(connection)
    connection.execute(table.insert().values(version_num=HEAD))


def migrate(connection: Connection) -> None:
    """Every migration that the tables have not had."""
    from alembic import command

    config = migration_config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
