"""Readers of damaged files, held to time and memory (`benchmarks/hostile/damage.py` damages)."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SEED = os.environ.get("AUTOFUSE_FUZZ_SEED", "0")
# More than any file of a few kilobytes can need.
SPARE_BYTES, SECONDS = 1 << 29, 60


@contextmanager
def bounded() -> Iterator[None]:
    """Address space and time end soon after what is used now: then MemoryError or TimeoutError."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"not done after {SECONDS} s")

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, hard))
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
