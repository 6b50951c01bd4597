"""Timing several implementations in turns, in one process.

A sample of an implementation is: nothing for SETTLE_S, so that the threads of the one before no
longer hold a core; calls that are not timed, for WARM_S or one at least, so that its own threads
and the caches are as in a program that uses it (a last level of cache that takes what others evict
has little of what was read once); the caches overwritten by this thread alone, which wakes nobody,
where they are to be cold; and the timed call.

Threads of OpenMP look for work for milliseconds after a call, those of OpenBLAS 0.3 for 2^28
cycles, a tenth of a second, unless OPENBLAS_THREAD_TIMEOUT says less.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from autofuse.measure.timing.sampling import WARM_S, call_for

SETTLE_S = 0.12
BLOCKS = 3
MIN_SAMPLES = 6
MAX_SAMPLES = 60


def take_turns(
    calls: Mapping[str, Callable[[], Any]],
    overwrite: Callable[[], Any],
    seconds: float,
    seed: int = 0,
    samples: tuple[int, int] = (MIN_SAMPLES, MAX_SAMPLES),
) -> dict[str, list[float]]:
    """Microseconds of each sample of each call (see above), taken in turns."""
    samplers = {name: partial(_sample, call, overwrite) for name, call in calls.items()}
    return sample_in_turns(samplers, seconds, seed, samples)


def sample_in_turns(
    samplers: Mapping[str, Callable[[], float]],
    seconds: float,
    seed: int = 0,
    samples: tuple[int, int] = (MIN_SAMPLES, MAX_SAMPLES),
) -> dict[str, list[float]]:
    """Samples of each sampler, interleaved in shuffled order.

    They are spread over BLOCKS blocks. Each is asked until it has used its share of `seconds`, but
    at least and at most so many times as `samples` says, rounded up to whole blocks."""
    order = np.random.default_rng(seed)
    names = list(samplers)
    taken: dict[str, list[float]] = {name: [] for name in names}
    share = seconds / max(1, len(names)) / BLOCKS
    least, most = (math.ceil(count / BLOCKS) for count in samples)
    for _ in range(BLOCKS):
        used = dict.fromkeys(names, 0.0)
        for round_ in range(most):
            due = [n for n in names if round_ < least or used[n] < share]
            for at in order.permutation(len(due)):
                begun = time.perf_counter()
                taken[due[at]].append(samplers[due[at]]())
                used[due[at]] += time.perf_counter() - begun
    return taken


def overwriter(nbytes: int) -> Callable[[], None]:
    """Writes through a buffer of `nbytes`, from the calling thread."""
    buffer = np.ones(nbytes, np.uint8)

    def overwrite() -> None:
        np.add(buffer, 1, out=buffer)

    return overwrite


def _sample(call: Callable[[], Any], overwrite: Callable[[], Any]) -> float:
    time.sleep(SETTLE_S)
    call_for(WARM_S, call)
    overwrite()
    begun = time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begun
    del result  # freeing is not timed for anyone
    return elapsed * 1e6
