"""Where threads sit while libraries with threads of their own are timed beside each other."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def caller_apart() -> Iterator[None]:
    """Inside, the calling thread has a core to itself, and every other thread of this process the
    rest; afterwards they have what they had. With one core nothing changes.

    For libraries whose caller works too (OpenMP, OpenBLAS, ours) and has called each of them
    before: a worker that sleeps between calls is often woken on its caller's core, where a barrier
    that spins costs a time slice of 8 ms. A program that calls one library alone sees none of it.
    """
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        yield
        return
    caller, own = threading.get_native_id(), min(cores)
    before = {
        int(task.name): cores_of(int(task.name)) for task in Path("/proc/self/task").iterdir()
    }
    try:
        for thread in before:
            move(thread, {own} if thread == caller else cores - {own})
        yield
    finally:
        for thread, had in before.items():
            move(thread, had)


def cores_of(thread: int) -> set[int]:
    """The cores that a thread may use; none where it has ended."""
    with suppress(ProcessLookupError):
        return os.sched_getaffinity(thread)
    return set()


def move(thread: int, cores: set[int]) -> None:
    """Let a thread run on `cores` alone; a thread that has ended, or no core, is left alone."""
    if cores:
        with suppress(ProcessLookupError):
            os.sched_setaffinity(thread, cores)
