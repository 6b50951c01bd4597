"""Which device a name means."""

from __future__ import annotations

from autofuse.backends.registry import backend_named


def resolve_device(name: str = "auto") -> str:
    """The device `name` means; "auto" is the best there is. Raises AutofuseError."""
    return backend_named(name).name
