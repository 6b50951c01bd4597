"""A PostgreSQL server of our own, in a folder of its own, reached by a socket only: to be used,
crashed and started again by tests and soaks."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from autofuse.errors import AutofuseError
from tuning_db import Store

OWNER = "autofuse"
# PostgreSQL refuses to run as root.
NOBODY = "nobody"
_DEBIAN = Path("/usr/lib/postgresql")


def programs() -> Path | None:
    """The folder of the server's programs: on the path, else Debian's newest; None without one."""
    if (found := shutil.which("pg_ctl")) is not None:
        return Path(found).resolve().parent
    folders = sorted(_DEBIAN.glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    return folders[-1].parent if folders else None


class Server:
    """`durable` False: what is committed may be lost with the machine, never with the server."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        """Make an empty cluster in `folder`. Raises AutofuseError where that cannot be done."""
        found = programs()
        if found is None:
            raise AutofuseError("no PostgreSQL server was found: apt-get install postgresql")
        self.folder, self.durable, self._programs = folder, durable, found
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(NOBODY)
            os.chown(folder, entry.pw_uid, entry.pw_gid)
            self._user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
        data = ("-D", str(folder / "data"))
        self._run("initdb", *data, "-U", OWNER, "-A", "trust", "-E", "UTF8", "--no-locale", "-N")

    def start(self) -> None:
        settings: Mapping[str, object] = {
            "listen_addresses": "''",
            "unix_socket_directories": self.folder,
            "max_connections": 120,
            "fsync": "on" if self.durable else "off",
            "full_page_writes": "on" if self.durable else "off",
        }
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        self._control("start", "-w", "-l", str(self.folder / "log"), "-o", options)

    def crash(self) -> None:
        """End it at once, in the middle of whatever it does."""
        self._control("stop", "-m", "immediate")

    def recover(self) -> None:
        """Start it anew, whether it is running or has ended by itself."""
        with suppress(AutofuseError):
            self.crash()
        self.start()

    def stop(self) -> None:
        self._control("stop", "-m", "fast")

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{OWNER}@/{database}?host={self.folder}"

    def create(self, database: str, template: str = "template1") -> str:
        """Make a database, a copy of another that nobody is connected to; its URL."""
        # Three times as fast as the default (PostgreSQL 15 and newer).
        self.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}" STRATEGY FILE_COPY')
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, whoever is connected to it."""
        self.execute(f'DROP DATABASE "{database}" WITH (FORCE)')

    def execute(self, statement: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the owner of everything."""
        import psycopg

        where = f"host={self.folder} user={OWNER} dbname={database}"
        with psycopg.connect(where, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def answers(self) -> bool:
        """Whether it can be reached."""
        import psycopg

        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def processor_s(self) -> dict[int, float]:
        """Processor seconds of each of its processes so far, by process id."""
        found = {}
        for (pid,) in self.execute(
            "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
        ):
            with suppress(OSError):  # it may have ended meanwhile
                said = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
                found[pid] = 1e-9 * int(said.split()[0])
        return found

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        # Not through pipes: the server would hold them open after pg_ctl has ended.
        with (self.folder / "said").open("wb") as said:
            code = subprocess.run(
                [self._programs / program, *arguments], cwd=self.folder, stdin=subprocess.DEVNULL,
                stdout=said, stderr=said, check=False, **self._user,
            ).returncode  # fmt: skip
        if code:
            words = (self.folder / "said").read_text(errors="replace").strip()
            raise AutofuseError(f"{program} failed with code {code}: {words}")


@contextmanager
def running(durable: bool = True, folder: Path | None = None) -> Iterator[Server]:
    """A running server in a temporary folder, both of which go at the end; or in `folder`, which
    stays."""
    # Paths of sockets must be short, and a folder of pytest's is closed to other users.
    own = Path(tempfile.mkdtemp(prefix="autofuse-pg-"))
    try:
        server = Server(folder or own, durable)
        server.start()
        try:
            yield server
        finally:
            with suppress(AutofuseError):  # it may have been crashed
                server.crash()
    finally:
        _remove(own)


def round_trips(store: Store, work: Callable[[], object]) -> int:
    """How often a server says that it waits for a question while `work` uses its store."""
    with store.writing() as t:
        driver: Any = t.connection().connection.driver_connection
    with tempfile.TemporaryFile() as log:
        driver.pgconn.trace(log.fileno())
        work()
        driver.pgconn.untrace()
        log.seek(0)
        return log.read().count(b"ReadyForQuery")


def _remove(folder: Path) -> None:
    deadline = time.monotonic() + 10.0
    while folder.exists():
        # Children of a crashed server may still write for a moment.
        shutil.rmtree(folder, ignore_errors=time.monotonic() < deadline)
