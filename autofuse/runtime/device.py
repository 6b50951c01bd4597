"""Which device a name means."""

from __future__ import annotations

from autofuse.backends.registry import BACKENDS, backend_named
from autofuse.errors import AutofuseError


class DeviceError(AutofuseError):
    """A device that this autofuse cannot use."""


def resolve_device(name: str = "auto") -> str:
    """The device `name` means; "auto" is the best there is. Raises AutofuseError."""
    if name not in BACKENDS and name.partition(":")[0] == "cuda":
        raise DeviceError("device 'cuda' cannot be used: this autofuse has no CUDA backend yet")
    return backend_named(name).name
