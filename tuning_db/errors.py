"""The errors of the tuning database."""

from __future__ import annotations

from autofuse.errors import AutofuseError


class DatabaseError(AutofuseError):
    """A database that cannot be opened, read or written, or a row that does not fit it.

    The message is one printable line, whatever a damaged file holds that it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__("".join(c if c.isprintable() else "?" for c in message))


class Unreachable(DatabaseError):  # noqa: N818 - it says where the server is
    """The server of the database is away, or was when it should have answered."""
