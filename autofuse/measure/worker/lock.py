"""One measurement at a time per device unit, across the processes of one user.

A unit is one GPU, or the processor of one host (`Hardware.unit`): units take no turns with each
other, be it on one host or on several that share the user's home.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager

from autofuse.backends.cache import CacheError, cache_directory
from autofuse.ops.types import AutofuseError

_POLL_S = 0.02


class DeviceBusy(AutofuseError):  # noqa: N818 - the name is what the user is told
    """Another process measured on the device for longer than we would wait."""


@contextmanager
def measurement_lock(unit: str, wait_s: float | None = None) -> Iterator[None]:
    """Hold `unit` for one measurement; waits for ever, or `wait_s` seconds, then DeviceBusy.

    The lock is not reentrant. It goes with the process that holds it, however that ends.
    """
    name = re.sub(r"[^A-Za-z0-9.-]", "_", unit)
    path = cache_directory() / f"measure-{name}.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise CacheError(f"cannot lock {path}: {error.strerror}") from error
    try:
        if wait_s is None:
            fcntl.flock(handle, fcntl.LOCK_EX)
        else:
            _wait(handle, unit, wait_s)
        yield
    finally:
        os.close(handle)


def _wait(handle: int, unit: str, wait_s: float) -> None:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise DeviceBusy(f"{unit} is being measured on by another process") from None
            time.sleep(_POLL_S)
