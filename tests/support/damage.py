"""Damaged bytes, and readers held to time and memory."""

from __future__ import annotations

import os
import random
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SEED = os.environ.get("AUTOFUSE_FUZZ_SEED", "0")
# More than any file of a few kilobytes can need.
SPARE_BYTES, SECONDS = 1 << 29, 60

INSERTED = [b"\xff", b"\xed\xa0\x80", b"\xc3", b"\0", b"\xef\xbb\xbf", b"[" * 9000,
            b'{"a":' * 9000, b"9" * 9000, b"1e9999"]  # fmt: skip


def damaged_bytes(rng: random.Random, raw: bytes) -> bytes:
    at, end = sorted(rng.randrange(len(raw) + 1) for _ in range(2))
    few = bytes(rng.randrange(32, 127) for _ in range(3))
    return rng.choice(
        [
            raw[:at],
            raw[:at] + raw[end:],
            raw[:end] + raw[at:],
            raw[:at] + rng.choice(INSERTED) + raw[at:],
            raw[:at] + few + raw[at + len(few) :],
        ]
    )


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
