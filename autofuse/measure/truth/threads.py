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
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from autofuse.limits import usable_cores

T = TypeVar("T")
# How NumPy's wheels and distributions call the functions of their OpenBLAS.
_NAMES = tuple(
    f"{prefix}openblas_{{}}_num_threads{suffix}"
    for prefix in ("scipy_", "")
    for suffix in ("64_", "")
)


@contextmanager
def one_thread_of_blas() -> Iterator[None]:
    """NumPy's products on the calling thread alone meanwhile; another BLAS than OpenBLAS is left as
    it is."""
    found = _thread_functions()
    if found is None:
        yield
        return
    get, put = found
    before = int(get())
    put(1)
    try:
        yield
    finally:
        put(before)


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
def _thread_functions() -> tuple[Any, Any] | None:
    """Get and set how many threads NumPy's OpenBLAS has, found through the extension, whose
    dependencies a look-up includes."""
    library = ctypes.CDLL(import_module("numpy.linalg._umath_linalg").__file__)
    for name in _NAMES:
        if hasattr(library, name.format("set")):
            return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None
