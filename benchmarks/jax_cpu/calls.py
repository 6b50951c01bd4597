"""A function ready to be called, and how long its calls take. An old JAX reads this too."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.jax_cpu.types import Function, module

# A sample lasts at least so long: calls of a few microseconds are timed many at once.
SAMPLE_S = 0.002


@dataclass(frozen=True, slots=True)
class Prepared:
    """`call` runs to the end; `first_s` is what the first one took, tracing and compiling in it;
    `found` are the leaves of its results."""

    call: Callable[[], Any]
    first_s: float
    found: tuple[np.ndarray, ...]


def set_wide(wide: bool) -> None:
    """f64 or not; and the draws of random numbers that newer releases make."""
    config = module("jax").config
    config.update("jax_enable_x64", wide)
    config.update("jax_threefry_partitionable", True)


def prepared(function: Function, arguments: tuple[Any, ...]) -> Prepared:
    """After the first call of a function of JAX on these arrays."""
    jax = module("jax")
    there = jax.device_put(arguments)

    def call() -> Any:
        return jax.block_until_ready(function(*there))

    begun = time.perf_counter()
    first = call()
    first_s = time.perf_counter() - begun
    return Prepared(call, first_s, tuple(map(np.asarray, jax.tree_util.tree_leaves(first))))


def sample_us(call: Callable[[], Any]) -> float:
    """Microseconds of a call, by calls in a row that last SAMPLE_S together; one before them is not
    timed."""
    call()
    begun, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - begun < SAMPLE_S:
        call()
        count += 1
    return (time.perf_counter() - begun) / count * 1e6
