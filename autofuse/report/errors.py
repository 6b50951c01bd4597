"""The one error of this package."""

from __future__ import annotations

from autofuse.errors import AutofuseError


class ReportError(AutofuseError):
    """Records that do not belong in one report, a figure that cannot be drawn, or a file of peers
    that cannot be read."""
