"""A database whose users share work: who does a piece of it holds a lease (see `leases`)."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from tuning_db import leases, rows
from tuning_db.leases import Lease
from tuning_db.transactions import HURRIED_S, Database


class SharedWork(Database):
    """An open tuning database, as those see it who share work. Raises as `Store` does."""

    def claim(
        self,
        key: str,
        owner: str,
        seconds: float,
        is_gone: Callable[[str], bool] = lambda _: False,
    ) -> Lease | None:
        """A lease on the work of this name for so many seconds of the database's clock, unless
        somebody has it who is not known to be gone. Raises Unreachable soon where the server is
        away."""
        lease = Lease(key, rows.new_uid())

        def claim(c: Connection) -> bool:
            return leases.claim(c, lease, owner, seconds, is_gone)

        return lease if self.change(claim, HURRIED_S) else None

    def prolong(self, lease: Lease, seconds: float) -> bool:
        """Whether a lease is still ours, now for so many seconds more."""
        return self.change(lambda c: leases.prolong(c, lease, seconds), HURRIED_S)

    def release(self, lease: Lease) -> None:
        """Let others have the work."""
        self.change(lambda c: leases.release(c, lease), HURRIED_S)

    def held(self, prefix: str) -> tuple[tuple[str, str], ...]:
        """Work, by key, and who does it, of all keys that begin so."""
        return self.read(lambda t: leases.held(t, prefix))

    def revoke(self, key: str) -> bool:
        """Take work away from whoever does it: their lease is lost, as if others had it now.
        Whether anybody did it."""
        return self.write(lambda t: leases.revoke(t, key))
