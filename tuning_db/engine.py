"""From what the user typed after --db to an engine whose transactions are safe to share."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import platformdirs
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, SQLAlchemyError

from tuning_db.errors import DatabaseError
from tuning_db.schema import VERSION_TABLE, check_revision, ensure_schema

BUSY_S = 30
WRITES = {"autofuse_writes": True}
_MAGIC = b"SQLite format 3\x00"


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
    """An engine on a database of this schema, created or migrated if need be.

    Raises DatabaseError if it is not ours, newer than this program, or cannot be written;
    the file is then as it was.
    """
    name = url_name(url)
    with translated(name):
        path = sqlite_path(url)
        if path is not None:
            if path == _default_path():
                _make_parent(path)
            _probe(path)
        engine = _engine(url)
        try:
            ensure_schema(engine, name, WRITES)
        except BaseException:  # an interrupt too must not leave the file open
            engine.dispose()
            raise
        return engine


def url_name(url: URL) -> str:
    """How messages call a database: its path or its URL without the password."""
    path = sqlite_path(url)
    return url.render_as_string(hide_password=True) if path is None else str(path)


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL, None for other databases, databases in memory and file: URIs."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return None if url.database.startswith("file:") else Path(url.database)


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Turn errors of the driver into a DatabaseError of one sentence."""
    try:
        yield
    except DBAPIError as error:
        raise DatabaseError(_sentence(name, error.orig or error)) from error
    except UnicodeError as error:  # the driver decodes what it quotes from a damaged file
        raise DatabaseError(f"database {name} cannot be used: it holds damaged text") from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise DatabaseError(_sentence(name, error)) from error


def _default_path() -> Path:
    return Path(platformdirs.user_data_dir("autofuse")) / "tuning.db"


def _make_parent(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{error.strerror}: {error.filename}"
        raise DatabaseError(f"database {path} cannot be created: {reason}") from error


def _sentence(name: str, error: BaseException) -> str:
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    reason = "".join(c if c.isprintable() else "?" for c in reason)
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
    except (SQLAlchemyError, ValueError) as error:
        raise DatabaseError(f"not a database URL: {error}") from error
    if url.get_backend_name() == "sqlite" and url.host:
        raise DatabaseError(f"a SQLite URL has three slashes: sqlite:///{url.host}")
    return url


def _probe(path: Path) -> None:
    """Refuse, before anything is written, a file that is not a tuning database."""
    if path.is_dir():
        raise DatabaseError(f"database {path} is a directory")
    if not path.parent.is_dir():
        raise DatabaseError(f"database {path} cannot be created: its directory does not exist")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise DatabaseError(f"database {path} cannot be written: permission denied")
    if not path.exists():
        return
    if not path.is_file():
        raise DatabaseError(f"database {path} is not a regular file")
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise DatabaseError(f"database {path} cannot be read: {error.strerror}") from error
    if not head:
        return
    if head != _MAGIC:
        raise DatabaseError(f"file {path} is not a database")
    _probe_tables(path)


def _probe_tables(path: Path) -> None:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        tables = {str(name) for (name,) in rows}
        if not tables:
            return
        if VERSION_TABLE not in tables:
            raise DatabaseError(f"database {path} belongs to another program")
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    check_revision(found[0] if found else None, str(path))


def _engine(url: URL) -> Engine:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _on_connect)
        event.listen(engine, "begin", _on_begin)
    return engine


def _on_connect(connection: Any, _record: object) -> None:
    # The driver's own implicit BEGIN comes too late and is never IMMEDIATE: we begin ourselves.
    connection.isolation_level = None
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
        cursor.execute("PRAGMA foreign_keys = ON")
        _use_wal(cursor)
    finally:
        cursor.close()


def _use_wal(cursor: sqlite3.Cursor) -> None:
    deadline = time.monotonic() + BUSY_S
    while cursor.execute("PRAGMA journal_mode").fetchone()[0] not in ("wal", "memory"):
        try:
            cursor.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            # The switch does not honour busy_timeout; a transaction does: wait for its end there.
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")


def _on_begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get("autofuse_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
