"""Which errors of a server pass by themselves, by SQLSTATE (PostgreSQL manual, appendix A)."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Callable
from enum import Enum
from itertools import count
from typing import TypeVar

from sqlalchemy.exc import DBAPIError, DisconnectionError

from tuning_db.errors import DatabaseError

T = TypeVar("T")


class Fate(Enum):
    """What may be done about an error."""

    AGAIN = "again"  # it ran into another transaction: at once
    AWAY = "away"  # the server cannot be reached: when it is back


# Serialisation failure and deadlock.
_AGAIN = ("40001", "40P01")
# Connection lost, server shut down or starting, too many clients.
_AWAY = ("08", "57P0", "53300")
_FIRST_S, _LONGEST_S = 0.02, 1.0


def fate_of(error: BaseException) -> Fate | None:
    """None for an error that trying again would only repeat."""
    if isinstance(error, DatabaseError):
        return None if error.__cause__ is None else fate_of(error.__cause__)
    if isinstance(error, DisconnectionError):
        return Fate.AWAY
    cause = error.orig if isinstance(error, DBAPIError) else error
    if cause is None or isinstance(cause, sqlite3.Error) or not hasattr(cause, "sqlstate"):
        return None
    return _fate_of_state(cause.sqlstate, type(cause).__name__)


def _fate_of_state(state: str | None, name: str) -> Fate | None:
    if state is None:
        # The driver itself: no connection was made, or the one there was has gone.
        lost = name in ("OperationalError", "InterfaceError", "ConnectionTimeout")
        return Fate.AWAY if lost else None
    if state in _AGAIN:
        return Fate.AGAIN
    return Fate.AWAY if state.startswith(_AWAY) else None


def insist(work: Callable[[], T], patience_s: float) -> T:
    """`work`, tried again while its error may pass, for so many seconds. It may have been done
    when its error was that the connection was lost: doing it twice must be as doing it once."""
    deadline = time.monotonic() + patience_s
    for tries in count():
        try:
            return work()
        except Exception as error:  # `fate_of` tells which pass; all others go on as they are
            if fate_of(error) is None or time.monotonic() >= deadline:
                raise
        # Drawn, so that those who met do not meet again.
        time.sleep(min(_FIRST_S * 2**tries, _LONGEST_S) * random.uniform(0.5, 1.0))
    raise AssertionError("counting has no end")
