"""A running fleet job is a lease in the database: who wants the job to end takes it away.

So it can be seen and ended from any host that reaches the database. While that is away a job goes
on; one that was killed is seen no more once its lease has expired.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from uuid import uuid4

from autofuse.errors import AutofuseError
from tuning_db import DatabaseError, Lease, Store

_PREFIX = "fleet:"
# Seconds that a job is taken to run without another word, and between two words.
HOLD_S, LOOK_S = 60.0, 2.0
_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job that runs: its id, what it was told to tune, and host and process that decide."""

    id: str
    what: str
    owner: str


class JobLease:
    """A context manager: this process runs a job on a store; `clock` is in seconds."""

    def __init__(
        self, store: Store, what: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.store, self.clock, self.id = store, clock, uuid4().hex[:8]
        self._key = f"{_PREFIX}{self.id}:{what[-_NAME_CHARACTERS:]}"
        self._lease: Lease | None = None
        self._looked = 0.0

    def __enter__(self) -> JobLease:
        owner = f"{platform.node()} {os.getpid()}"
        self._lease, self._looked = self.store.claim(self._key, owner, HOLD_S), self.clock()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lease is not None:
            with suppress(DatabaseError):  # it expires
                self.store.release(self._lease)

    def is_cancelled(self) -> bool:
        """Whether somebody has ended the job; the database is asked every LOOK_S seconds."""
        if self._lease is not None and self.clock() - self._looked >= LOOK_S:
            self._looked = self.clock()
            try:
                if not self.store.prolong(self._lease, HOLD_S):
                    self._lease = None
            except DatabaseError:  # it is away, and the job goes on
                return False
        return self._lease is None


def running_jobs(store: Store) -> tuple[FleetJob, ...]:
    """Every job that runs on a database."""
    return tuple(_job(key, owner) for key, owner in store.held(_PREFIX))


def cancel_jobs(store: Store, job: str | None) -> tuple[FleetJob, ...]:
    """Make a job end, by its id, or all for None; what they measured is kept. Raises AutofuseError
    for an id that no running job has."""
    found = tuple(one for one in running_jobs(store) if job in (None, one.id))
    if job is not None and not found:
        raise AutofuseError(f"no fleet job {job} is running on this database")
    for one in found:
        store.revoke(f"{_PREFIX}{one.id}:{one.what}")
    return found


def _job(key: str, owner: str) -> FleetJob:
    job, _, what = key.removeprefix(_PREFIX).partition(":")
    return FleetJob(job, what, owner)
