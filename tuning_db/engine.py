"""From what the user typed after --db to an engine whose transactions are safe to share."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import platformdirs
from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, DisconnectionError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from tuning_db import sqlite
from tuning_db.errors import DatabaseError, Unreachable
from tuning_db.retry import Fate, fate_of, insist
from tuning_db.schema import check_known, check_upgradable, ensure_schema, upgrade_schema
from tuning_db.sqlite import BUSY_S, sqlite_path

# Seconds that a server may take to accept a connection.
CONNECT_S = 5
# Seconds to wait for a server when a database is opened.
OPENING_S = 5.0
# Seconds after which a connection is asked whether it still works.
IDLE_S = 10.0
_KINDS = ("sqlite", "postgresql")
# Readers see one state; PostgreSQL's default would show them another with each statement.
_READING: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {},
    "postgresql": {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True},
}
# One statement sees one state by itself: nothing has to begin and to end around it.
_ASKING: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {},
    "postgresql": {"isolation_level": "AUTOCOMMIT"},
}


def default_url() -> str:
    """The database of this user when no --db is given."""
    return f"sqlite:///{_default_path()}"


def database_url(text: str | os.PathLike[str] | None) -> URL:
    """A SQLAlchemy URL from a URL, a bare file path, or None for the default database.

    Raises DatabaseError if it is neither.
    """
    if text is None:
        return URL.create("sqlite", database=str(_default_path()))
    text = os.fspath(text)
    if not text.strip():
        raise DatabaseError("the database name is empty")
    if "://" in text:
        return _checked_url(text)
    path = text if text == ":memory:" else os.path.abspath(os.path.expanduser(text))
    return URL.create("sqlite", database=path)


def open_engine(url: URL) -> Engine:
    """An engine on a database that this program can use, with its tables if it was empty.

    Raises DatabaseError if it is not ours, of an older or newer schema, or cannot be written; the
    database is then as it was.
    """
    name = url_name(url)
    with translated(name):
        _probe(url, check_known)
        engine = _engine(url)
        try:
            # A server may just be starting.
            insist(lambda: ensure_schema(engine, name, sqlite.WRITES), OPENING_S)
        except BaseException:  # an interrupt too must not leave the file open
            engine.dispose()
            raise
        return engine


def upgrade(url: URL) -> tuple[str | None, str]:
    """Bring a database to the schema of this program, under a lock; the schemas that it had and
    has. Raises DatabaseError as `open_engine` does."""
    name = url_name(url)
    with translated(name):
        _probe(url, check_upgradable)
        engine = _engine(url)
        try:
            return upgrade_schema(engine, name, sqlite.WRITES)
        finally:
            engine.dispose()


def reading_options(engine: Engine) -> Mapping[str, Any]:
    """Execution options of a transaction that sees one state and writes nothing."""
    return _READING[engine.dialect.name]


def asking_options(engine: Engine) -> Mapping[str, Any]:
    """Execution options of who asks one question."""
    return _ASKING[engine.dialect.name]


def url_name(url: URL) -> str:
    """How messages call a database: its path or its URL without the password."""
    path = sqlite_path(url)
    if path is not None:
        return str(path)
    # A password may come as a parameter too, which SQLAlchemy would show.
    secret = [key for key in url.query if "pass" in key.lower()]
    shown = url.update_query_dict(dict.fromkeys(secret, "***")) if secret else url
    return shown.render_as_string(hide_password=True)


def data_directory() -> Path:
    """Where this user's data is."""
    return Path(platformdirs.user_data_dir("autofuse"))


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn errors of the driver into a DatabaseError of one sentence; an Unreachable where the
    server is away."""
    try:
        yield
    except DatabaseError:
        raise
    except UnicodeError as error:  # the driver decodes what it quotes from a damaged file
        raise DatabaseError(f"database {name} cannot be used: it holds damaged text") from error
    except Exception as error:  # drivers have error classes of their own; others go on as they are
        fate = fate_of(error)
        # The driver's own error, where SQLAlchemy was not between us.
        own = isinstance(error, SQLAlchemyError | sqlite3.Error) or hasattr(error, "sqlstate")
        if not own:
            raise
        kind = Unreachable if fate is Fate.AWAY else DatabaseError
        cause = error.orig if isinstance(error, DBAPIError) and error.orig else error
        raise kind(_sentence(name, cause)) from error


def _default_path() -> Path:
    return data_directory() / "tuning.db"


def _probe(url: URL, check: Callable[[str | None, str], None]) -> None:
    path = sqlite_path(url)
    if path is not None:
        if path == _default_path():
            _make_parent(path)
        sqlite.probe(path, check)


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise DatabaseError(f"database {path} cannot be created: {reason}") from error


def _sentence(name: str, error: BaseException) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if reason == "interrupted":
        reason = "a question took more work than a sound file of its size can ask for"
    if "is locked" in reason:
        reason = f"another process held it for more than {BUSY_S} s"
    return f"database {name} cannot be used: {reason}"


def _checked_url(text: str) -> URL:
    try:
        url = make_url(text)
        url.get_dialect().import_dbapi()
    except (NoSuchModuleError, ImportError) as error:
        scheme = text.split("://", 1)[0]
        raise DatabaseError(f"no driver for '{scheme}' databases is installed: {error}") from error
    except (SQLAlchemyError, ValueError):
        # What is quoted may hold a password.
        raise DatabaseError("not a database URL: KIND://USER:PASSWORD@HOST/NAME is one") from None
    if url.get_backend_name() not in _KINDS or url.get_driver_name() not in ("pysqlite", "psycopg"):
        raise DatabaseError(
            f"'{url.drivername}' databases are not supported: use a file, sqlite:/// or "
            "postgresql+psycopg://"
        )
    if url.get_backend_name() == "sqlite" and url.host:
        raise DatabaseError(f"a SQLite URL has three slashes: sqlite:///{url.host}")
    return url


def _engine(url: URL) -> Engine:
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url)
        sqlite.listen(engine)
        return engine
    # Poolers between us and the server may not know prepared statements.
    arguments = {"connect_timeout": CONNECT_S, "prepare_threshold": None}
    engine = create_engine(url, connect_args=arguments)
    event.listen(engine, "checkin", _note_use)
    event.listen(engine, "checkout", partial(_ping_if_idle, engine))
    return engine


def _note_use(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info["used"] = time.monotonic()


def _ping_if_idle(
    engine: Engine, connection: DBAPIConnection, record: ConnectionPoolEntry, _proxy: object
) -> None:
    """A server or what is between may drop what is idle: that is found out before it is used."""
    if time.monotonic() - record.info.get("used", time.monotonic()) < IDLE_S:
        return
    try:
        engine.dialect.do_ping(connection)
    except engine.dialect.loaded_dbapi.Error as error:
        raise DisconnectionError("an idle connection was dropped") from error
