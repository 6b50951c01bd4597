"""Products of the reference on threads of ours.

Threads of OpenBLAS wait for each other in a loop. Where somebody else has one of the cores, as who
plans while a reference is computed, a product that takes 0.15 ms on one thread took 16 ms on two.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from threading import Lock
from typing import Any, TypeVar

from autofuse.limits import usable_cores

T = TypeVar("T")
# How NumPy's wheels and distributions call the functions of their OpenBLAS.
_NAMES = tuple(
    f"{prefix}openblas_{{}}_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)


@dataclass
class _BlasThreads:
    """How many threads NumPy's OpenBLAS has, which is one number for the process: `held` callers
    want one thread, and `before` is what the last of them puts back."""

    get: Callable[[], int]
    put: Callable[[int], object]
    held: int = 0
    before: int = 1
    lock: Lock = field(default_factory=Lock)

    def hold(self) -> None:
        with self.lock:
            if self.held == 0:
                self.before = int(self.get())
                self.put(1)
            self.held += 1

    def release(self) -> None:
        with self.lock:
            self.held -= 1
            if self.held == 0:
                self.put(self.before)


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """NumPy's products on the calling thread alone meanwhile, in the whole process; another BLAS
    than OpenBLAS is left as it is."""
    threads = _blas_threads()
    if threads is None:
        yield
        return
    threads.hold()
    try:
        yield
    finally:
        threads.release()


def side_by_side(work: Callable[[T], object], parts: Sequence[T]) -> None:
    """`work` on each part, on as many threads as there are cores: for what NumPy does without its
    lock."""
    count = min(len(parts), usable_cores())

    def share(first: int) -> None:
        for part in parts[first::count]:
            work(part)

    waiting = [_others(os.getpid()).submit(share, first) for first in range(1, count)]
    if count > 0:
        share(0)
    for one in waiting:
        one.result()


@lru_cache(maxsize=1)
def _others(process: int) -> ThreadPoolExecutor:
    """Threads beside the calling one, which last: beginning one takes as long as a product. Of a
    process, for what was forked has none of its parent's."""
    return ThreadPoolExecutor(max(1, usable_cores() - 1))


@lru_cache(maxsize=1)
def _blas_threads() -> _BlasThreads | None:
    """Found through NumPy's extension, whose dependencies a look-up includes."""
    library: Any = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            get, put = (getattr(library, name.format(how)) for how in ("get", "set"))
            return _BlasThreads(get, put)
    return None
