"""Jobs on one database share their work: what one of them measures, the others wait for and read.

Who measures holds a lease of the database. One that ends without a word loses it in time, and
another measures in its place; while the server is away everybody measures for himself.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import TypeVar

from tuning_db import Lease, Store, Unreachable

T = TypeVar("T")
# Seconds between two looks at what another is measuring.
LOOK_S = 0.05


class Sharing:
    """The lease that a job holds, one at a time."""

    def __init__(self, store: Store, owner: str) -> None:
        self.store, self.owner = store, f"{owner} on {platform.node()}, process {os.getpid()}"
        self.lease: Lease | None = None

    def turn(
        self,
        work: str,
        seconds: float,
        known: Callable[[], T | None],
        is_over: Callable[[], bool],
    ) -> T | None:
        """What others have found out about a piece of work, waiting for it while they are at it.
        None: nobody has, and it is this job's turn, for so many seconds; or `is_over`."""
        self.end()
        while True:
            try:
                self.lease = self.store.claim(work, self.owner, seconds)
                found = known()
            except Unreachable:
                return None
            if found is not None:
                self.end()
                return found
            if self.lease is not None or is_over():
                return None
            time.sleep(LOOK_S)

    def end(self) -> None:
        """What was to be found out is known, or never will be."""
        lease, self.lease = self.lease, None
        if lease is not None:
            try:
                self.store.release(lease)
            except Unreachable:
                return  # it expires
