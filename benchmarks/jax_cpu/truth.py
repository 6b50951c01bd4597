"""Whether results are right: no further from what float64 gives than rounding explains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.jax_cpu.types import LoopProgram, asked_for, module

# Furthest from the truth, as a part of the largest number of an array.
ALLOWED = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}
# A long loop makes rounding errors larger: as far as so many times what current jax.jit is.
TIMES = 8.0
Found = Sequence[np.ndarray]


def truth_of(program: LoopProgram, what: str) -> tuple[np.ndarray, ...]:
    """Leaves of the results in float64, by current jax.jit."""
    jax = module("jax")
    with jax.enable_x64(True):
        case = program.make(np.dtype(np.float64))
        leaves = jax.tree_util.tree_leaves(jax.jit(asked_for(case, what))(*case.arguments))
        return tuple(map(np.asarray, leaves))


def error_of(found: Found, truth: Found) -> float:
    """The largest difference over the largest number, of the array where that is most; infinity
    for another number of arrays, other shapes, or NaN in other places."""
    if [a.shape for a in found] != [a.shape for a in truth]:
        return float("inf")
    return max((_apart(*pair) for pair in zip(found, truth, strict=True)), default=0.0)


def allowed(dtype: np.dtype[np.generic], of_jax: float) -> float:
    """The most that `error_of` may be where that of jax.jit is `of_jax`."""
    return max(ALLOWED[dtype], TIMES * of_jax if np.isfinite(of_jax) else 0.0)


def _apart(found: np.ndarray, truth: np.ndarray) -> float:
    a, b = found.astype(np.float64), truth.astype(np.float64)
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return float("inf")
    good = np.isfinite(b)
    if not good.any():
        return 0.0
    largest = float(np.abs(b[good]).max())
    return float(np.abs(a[good] - b[good]).max()) / max(largest, 1e-12)
