"""Jobs on one database share their work: what one of them measures, the others wait for and read.

Who measures holds a lease of the database and prolongs it. One that ends without a word loses it
in time (at once, if it ran on this host), and another measures in its place; while the server is
away everybody measures for himself.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from types import TracebackType
from typing import TypeVar

from autofuse.records import Environment, KernelMeasurement, Measurement
from tuning_db import DatabaseError, Lease, Store, Unreachable

T = TypeVar("T")
# Seconds that a lease lasts unless it is prolonged, and between two looks at what another measures.
LEASE_S, LOOK_S = 12.0, 0.05


class Turns:
    """The lease that a job holds, one at a time; a context manager."""

    def __init__(self, store: Store) -> None:
        self.store, self.owner = store, f"{platform.node()} {os.getpid()}"
        self.lease: Lease | None = None
        # Whether the last wait for others ended before they did.
        self.is_elsewhere = False
        # The kernel that was told of last; None before anything was asked. And the measurement.
        self._told: int | None = None
        self._measured = 0
        self._over = Event()
        self._thread = Thread(target=self._prolong, name="lease", daemon=True)

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self.end()

    def turn(
        self, work: str, known: Callable[[], T | None], is_over: Callable[[], bool]
    ) -> T | None:
        """What others have found out about a piece of work, waiting for it while they are at it.
        None: nobody has, and it is this job's turn; or `is_over`, and somebody is still at it, as
        `is_elsewhere` then says."""
        self.end()
        self.is_elsewhere = False
        while True:
            try:
                self.lease = self.store.claim(work, self.owner, LEASE_S, is_gone)
                found = known()
            except Unreachable:
                return None
            if found is not None:
                self.end()
                return found
            self.is_elsewhere = self.lease is None and is_over()
            if self.lease is not None or self.is_elsewhere:
                return None
            time.sleep(LOOK_S)

    def news(self, env: Environment, workload: str, session: int) -> Sequence[KernelMeasurement]:
        """What other jobs on a workload have measured of its kernels since this was asked last;
        nothing the first time, and nothing while the server is away."""
        try:
            if self._told is None:
                self._told = self.store.newest_kernel()
                return ()
            self._told, found = self.store.kernel_news(env, workload, session, self._told)
        except Unreachable:
            return ()
        return found

    def measured(self, env: Environment, workload: str) -> Mapping[str, Measurement]:
        """The latest measurement of each candidate of a workload, of all jobs; asked again, of what
        has come since."""
        after, self._measured = self._measured, self.store.newest_measurement()
        return self.store.measured(env, workload, after)

    def spend(self) -> Lease | None:
        """The lease, for the store to take with what was found out: it releases it with that, so
        that nobody else is told before or asked after."""
        lease, self.lease = self.lease, None
        return lease

    def end(self) -> None:
        """What was to be found out is known, or never will be."""
        lease = self.spend()
        if lease is not None:
            with suppress(Unreachable):  # it expires
                self.store.release(lease)

    def _prolong(self) -> None:
        while not self._over.wait(LEASE_S / 4):
            if (lease := self.lease) is not None:
                with suppress(DatabaseError):  # the next time, or it expires
                    self.store.prolong(lease, LEASE_S)


def is_gone(owner: str) -> bool:
    """Whether a job of this host has ended; of other hosts nothing is known."""
    host, _, process = owner.rpartition(" ")
    if host != platform.node() or not process.isdigit():
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except OSError:  # somebody else's
        return False
    return False
