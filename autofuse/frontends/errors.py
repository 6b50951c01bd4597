"""The errors of front ends."""

from autofuse.ops.types import AutofuseError


class TraceError(AutofuseError):
    """Traced Python did something no graph can hold."""
