"""The database's time: rows are dated by one clock, whatever the clocks of those who write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Double, String, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

# What SQLite, whose server is the asking process, calls `now`.
LOCAL = "autofuse_now"


def now(seconds: float = 0.0) -> str:
    """The time of this machine in so many seconds, in UTC, ISO 8601, always of one length so that
    text order is time order."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.isoformat(timespec="microseconds")


class server_now(FunctionElement[str]):  # noqa: N801 - an SQL function
    """The time of the database in so many seconds, as `now` writes it."""

    type = String()
    inherit_cache = True
    name = LOCAL

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__(bindparam(None, seconds, type_=Double()))


@compiles(server_now)
def _ask_local(element: server_now, compiler: Any, **options: Any) -> str:
    return f"{LOCAL}({compiler.process(element.clauses, **options)})"


@compiles(server_now, "postgresql")
def _ask_postgresql(element: server_now, compiler: Any, **options: Any) -> str:
    seconds = compiler.process(element.clauses, **options)
    moment = f"clock_timestamp() AT TIME ZONE 'UTC' + make_interval(secs => {seconds})"
    return f"(to_char({moment}, 'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00')"
