"""The one error of the tuning database."""

from __future__ import annotations

from autofuse.errors import AutofuseError


class DatabaseError(AutofuseError):
    """A database that cannot be opened, read or written, or a row that does not fit it."""
