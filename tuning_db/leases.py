"""Leases: who does a piece of work, so that nobody else does it too. The caller holds the
transaction, and the clock is the database's.

A lease that has expired can be taken over, by one statement. The token of the new holder fences
the old one off: `holds` is part of the statement that stores a result (Kleppmann, "How to do
distributed locking", 2016).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, delete, select, update
from sqlalchemy.orm import Session as Transaction

from tuning_db import models as m
from tuning_db.clock import server_now
from tuning_db.upsert import replace_or_put


@dataclass(frozen=True, slots=True)
class Lease:
    """`key` names the work, `token` this one hold of it."""

    key: str
    token: str


def claim(
    c: Connection, lease: Lease, owner: str, seconds: float, is_gone: Callable[[str], bool]
) -> bool:
    """Whether the work is ours for so many seconds; who `is_gone` loses it at once."""
    values = {"token": lease.token, "owner": owner, "expires": server_now(seconds)}
    # Ours already: the answer to the first time was lost.
    free = (m.Lease.expires < server_now()) | (m.Lease.token == lease.token)
    if replace_or_put(c, m.Lease, {"key": lease.key, **values}, free):
        return True
    had = c.execute(select(m.Lease.token, m.Lease.owner).where(m.Lease.key == lease.key)).first()
    if had is None or not is_gone(had.owner):
        return False
    taken = update(m.Lease).where(m.Lease.key == lease.key, m.Lease.token == had.token)
    return c.execute(taken.values(values)).rowcount == 1


def prolong(c: Connection, lease: Lease, seconds: float) -> bool:
    """Whether the work is still ours, now for so many seconds from now."""
    held = update(m.Lease).where(*_own(lease)).values(expires=server_now(seconds))
    return c.execute(held).rowcount == 1


def release(c: Connection, lease: Lease | None) -> None:
    """Others may have the work; nothing happens if it is not ours any more."""
    if lease is not None:
        c.execute(delete(m.Lease).where(*_own(lease)))


def held(t: Transaction, prefix: str) -> tuple[tuple[str, str], ...]:
    """Key and owner of every lease that has not expired and whose key begins so."""
    mine = m.Lease.key.startswith(prefix, autoescape=True), m.Lease.expires > server_now()
    rows = t.execute(select(m.Lease.key, m.Lease.owner).where(*mine).order_by(m.Lease.key))
    return tuple((row.key, row.owner) for row in rows)


def revoke(t: Transaction, key: str) -> bool:
    """Take a lease away from whoever has it; whether anybody had."""
    return bool(t.connection().execute(delete(m.Lease).where(m.Lease.key == key)).rowcount)


def is_held(lease: Lease | None) -> ColumnElement[bool] | None:
    """That the lease is still ours, as part of a statement; nobody takes it over before the
    transaction ends."""
    if lease is None:
        return None
    return select(m.Lease.key).where(*_own(lease)).with_for_update().exists()


def _own(lease: Lease) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return m.Lease.key == lease.key, m.Lease.token == lease.token
