"""Which device a name means."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.backends.registry import chosen_backend


def resolve_device(name: str = "auto", tell: Callable[[str], object] | None = None) -> str:
    """The device `name` means; "auto" is the best there is, and `tell` hears why it is no better.

    Raises AutofuseError for an unknown device, and for one whose hardware is not here."""
    backend, remark = chosen_backend(name)
    if remark and tell is not None:
        tell(remark)
    backend.present()
    return backend.name
