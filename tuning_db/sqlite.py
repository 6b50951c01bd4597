"""What is special about a database that is a SQLite file: one writer, write-ahead logging, and a
file that may be anything."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine import URL

from tuning_db import clock
from tuning_db.checked import shown
from tuning_db.errors import DatabaseError
from tuning_db.schema import VERSION_TABLE

BUSY_S = 30
# Execution options of a transaction that writes: it takes the write lock when it begins.
WRITES = {"autofuse_writes": True}
_MAGIC = b"SQLite format 3\x00"
# Steps of SQLite's machine that are let pass, and those between two looks; bytes of one value.
_LEAST_STEPS, _STEPS_PER_BYTE, _AT_ONCE, _MOST_VALUE = 50_000_000, 50, 1_000_000, 1 << 28
_MOST_OBJECTS = 1000
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "fuse.sshfs")


def sqlite_path(url: URL) -> Path | None:
    """The file of a SQLite URL, None for other databases, databases in memory and file: URIs."""
    if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
        return None
    return None if url.database.startswith("file:") else Path(url.database)


def probe(path: Path, check: Callable[[str | None, str], None]) -> None:
    """Refuse, before anything is written, a file that is not a tuning database, or one whose
    schema `check` refuses."""
    if path.is_dir():
        raise DatabaseError(f"database {path} is a directory")
    if not path.parent.is_dir():
        raise DatabaseError(f"database {path} cannot be created: its directory does not exist")
    if not os.access(path.parent, os.W_OK) or (path.exists() and not os.access(path, os.W_OK)):
        raise DatabaseError(f"database {path} cannot be written: permission denied")
    if (kind := shared_by_network(path)) is not None:
        raise DatabaseError(
            f"database {path} is on a network file system ({kind}), where SQLite loses data; "
            "use a local file, or PostgreSQL for several hosts"
        )
    if path.exists() and _holds_a_database(path):
        check(_revision(path), str(path))


def _holds_a_database(path: Path) -> bool:
    """Whether a file is one, and not empty."""
    if not path.is_file():
        raise DatabaseError(f"database {path} is not a regular file")
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise DatabaseError(f"database {path} cannot be read: {error.strerror}") from error
    if head not in (b"", _MAGIC):
        raise DatabaseError(f"file {path} is not a database")
    return bool(head)


def shared_by_network(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str | None:
    """The kind of network file system that a file is on; None for a local one, or where the
    system does not say."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    where = path.absolute().parent.resolve()
    found = [line.split()[1:3] for line in lines if len(line.split()) >= 3]
    above = [(len(at), kind) for at, kind in found if where.is_relative_to(at)]
    kind = max(above, default=(0, ""))[1]
    return kind if kind in _SHARED else None


def listen(engine: Engine) -> None:
    """Make the engine's transactions safe to share a file."""
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)


def _revision(path: Path) -> str | None:
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_S)) as connection:
        guard(connection, path)
        tables = _tables(connection, path)
        if not tables:
            return None
        if VERSION_TABLE not in tables:
            raise DatabaseError(f"database {path} belongs to another program")
        found = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    return found[0] if found else None


def _computes(kind: str, text: str) -> bool:
    return kind == "table" and ("GENERATED ALWAYS" in text or " AS (" in text)


def _tables(connection: sqlite3.Connection, path: Path) -> set[str]:
    """The tables of a file. Raises DatabaseError for what would run with a question: views,
    triggers, virtual tables and columns that are computed, none of which we ever made."""
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    if len(rows) > _MOST_OBJECTS:
        raise DatabaseError(f"database {path} has {len(rows)} tables, which is not ours")
    for kind, name, sql in rows:
        text = str(sql or "").upper()
        computed = _computes(kind, text)
        if kind not in ("table", "index") or text.startswith("CREATE VIRTUAL") or computed:
            what = "computed columns" if computed else f"a {kind}"
            raise DatabaseError(f"database {path} has {what} ({shown(name)}), which is not ours")
    return {str(name) for kind, name, _ in rows if kind == "table"}


def guard(connection: sqlite3.Connection, path: Path | None) -> None:
    """A file may be anybody's: what its schema says runs nothing, and a statement takes no more
    steps and memory than a sound file of its size can need."""
    size = path.stat().st_size if path is not None and path.exists() else 0
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, max(_MOST_VALUE, size))
    if size:
        connection.set_progress_handler(_Steps(connection, size), _AT_ONCE)


class _Steps:
    """Ends a statement that takes more steps than all rows of a file can explain; what was begun
    anew is counted anew."""

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self.most = (_LEAST_STEPS + _STEPS_PER_BYTE * size) // _AT_ONCE
        self.taken = 0
        connection.set_trace_callback(self._begun)

    def _begun(self, _statement: str) -> None:
        self.taken = 0

    def __call__(self) -> int:
        self.taken += 1
        return int(self.taken > self.most)


def _on_connect(connection: Any, _record: object) -> None:
    # The driver's own implicit BEGIN comes too late and is never IMMEDIATE: we begin ourselves.
    connection.isolation_level = None
    connection.create_function(clock.LOCAL, 1, clock.now)
    guard(connection, _file_of(connection))
    cursor = connection.cursor()
    try:
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_S * 1000}")
        cursor.execute("PRAGMA foreign_keys = ON")
        _use_wal(cursor)
    finally:
        cursor.close()


def _file_of(connection: sqlite3.Connection) -> Path | None:
    """The file that a connection is to; None for a database in memory."""
    found = connection.execute("PRAGMA database_list").fetchone()
    return Path(found[2]) if found and found[2] else None


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
