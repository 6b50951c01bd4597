"""Transactions on an open database: short ones, tried again where that helps, and kept in a local
spool while the server is away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import TypeVar

from sqlalchemy import Connection, Engine, select
from sqlalchemy.engine import URL
from sqlalchemy.orm import Session as Transaction

from tuning_db import clock, lines, rows, sqlite, union
from tuning_db.engine import (
    asking_options,
    data_directory,
    reading_options,
    translated,
    url_name,
)
from tuning_db.errors import Unreachable
from tuning_db.retry import insist
from tuning_db.spool import Spool

T = TypeVar("T")
# Seconds to wait for a server before the caller is told; before a row goes into the spool; and
# between two looks whether it is back.
PATIENCE_S, HURRIED_S, LOOK_S = 180.0, 2.0, 5.0


class Database:
    """An open tuning database."""

    def __init__(self, engine: Engine, url: URL) -> None:
        self.engine, self.url = engine, url
        self._reader = engine.execution_options(**reading_options(engine))
        self._asker = engine.execution_options(**asking_options(engine))
        self._writer = engine.execution_options(**sqlite.WRITES)
        self._changer = engine.execution_options(**asking_options(engine), **sqlite.WRITES)
        # Row numbers that will not change, as `rows.remembered` finds them.
        self._ids = rows.Ids()
        self.spool: Spool | None = None
        self._away_until, self._ahead_s = 0.0, 0.0
        if engine.dialect.name != "sqlite":
            name = sha256(self.name.encode()).hexdigest()[:16]
            self.spool = Spool(data_directory() / "spool" / f"{name}.jsonl")
            self._ahead_s = self.read(_ahead_s)

    @property
    def name(self) -> str:
        """The database's path, or its URL without the password."""
        return url_name(self.url)

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that sees one state of the database and writes nothing."""
        with translated(self.name), Transaction(self._reader) as t, t.begin():
            yield t

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that writes, on SQLite holding the write lock from the start; committed
        if all goes well."""
        with translated(self.name), Transaction(self._writer) as t, t.begin():
            t.connection()  # a session begins with its first statement: make that now
            yield t

    def read(self, work: Callable[[Transaction], T]) -> T:
        """What `work` reads; waits for a server that is away. Raises Unreachable in the end."""

        def once() -> T:
            self._replay()
            with self.reading() as t:
                return work(t)

        return insist(once, PATIENCE_S)

    def ask(self, question: Callable[[Connection], T], patience_s: float = PATIENCE_S) -> T:
        """As `read`, but of a single statement: one round trip to a server."""

        def once() -> T:
            self._replay()
            with translated(self.name), self._asker.connect() as connection:
                return question(connection)

        return insist(once, patience_s)

    def change(self, work: Callable[[Connection], T], patience_s: float) -> T:
        """As `write`, but each statement of `work` stands by itself: one round trip to a server."""

        def once() -> T:
            with translated(self.name), self._changer.connect() as c, c.begin():
                return work(c)

        return insist(once, patience_s)

    def write(
        self, work: Callable[[Transaction], T], patience_s: float | None = None, fresh: bool = False
    ) -> T:
        """Do `work`, which must do nothing when it was done already: whether a commit whose answer
        was lost has happened is not known. `fresh`: trust no row number known from before."""

        def once() -> T:
            with self.writing() as t:
                rows.remember(t, rows.Ids() if fresh else rows.Ids(self._ids))
                done = work(t)
            if not fresh:
                self._ids = rows.known_ids(t)
            return done

        return insist(once, PATIENCE_S if patience_s is None else patience_s)

    def keep(
        self, work: Callable[[Transaction], T], told: Callable[[], Sequence[lines.Line]], kept: T
    ) -> T:
        """`write`, but while the server is away `told` goes into the spool and the result is
        `kept`."""
        if self.spool is None:
            return self.write(work)
        if time.monotonic() >= self._away_until:
            try:
                self._replay()
                return self.write(work, HURRIED_S)
            except Unreachable:
                self._away_until = time.monotonic() + LOOK_S
        self.spool.append(told())
        return kept

    def time(self) -> str:
        """The server's time as far as this machine's clock tells."""
        return clock.now(-self._ahead_s)

    def _replay(self) -> None:
        """Send what is in the spool. Raises Unreachable if the server is still away."""
        if self.spool is None or self.spool.is_empty():
            return
        with self.spool.emptied() as texts:
            if not texts:  # another process has sent them since we looked
                return
            schema, parsed = union.parse(texts)
            self.write(lambda t: union.add_all(t, schema, parsed), HURRIED_S, fresh=True)


def _ahead_s(t: Transaction) -> float:
    """Seconds that this machine's clock is ahead of the database's."""
    theirs = datetime.fromisoformat(t.scalars(select(clock.server_now())).one())
    return (datetime.fromisoformat(clock.now()) - theirs) / timedelta(seconds=1)
