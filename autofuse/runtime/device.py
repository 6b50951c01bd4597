"""Which device a name means."""

from __future__ import annotations

from autofuse.errors import AutofuseError

DEVICES = ("cpu",)


class DeviceError(AutofuseError):
    """A device that does not exist, or that this autofuse cannot use."""


def resolve_device(name: str = "auto") -> str:
    """The device `name` means: "auto" is the best there is. Raises DeviceError."""
    if name == "auto":
        return DEVICES[0]
    if name in DEVICES:
        return name
    if name == "cuda" or name.startswith("cuda:"):
        raise DeviceError("device 'cuda' cannot be used: this autofuse has no CUDA backend yet")
    raise DeviceError(f"unknown device '{name}' (known: auto, {', '.join(DEVICES)})")
