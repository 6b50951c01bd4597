"""A loose check that an implementation computes the workload at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.peers.types import Arrays, BenchError

# Peers may choose other formulas than we do, and a roll-out may reset an environment one step
# earlier or later: few elements may be off, the others by little.
TOLERANCE = 2e-3
SHARE = 0.01
# Programs that draw their own numbers agree in means and spreads only.
MOMENTS = 0.1


def check(found: Arrays, wanted: Sequence[np.ndarray], random: bool) -> float:
    """The 99th percentile of |found - wanted| / (|wanted| + rms) over all outputs.

    Raises BenchError for a wrong shape or value; `random` compares distributions only."""
    if len(found) != len(wanted):
        raise BenchError(f"gives {len(found)} outputs instead of {len(wanted)}")
    worst = 0.0
    for position, (array, reference) in enumerate(zip(found, wanted, strict=True)):
        if array.shape != reference.shape:
            shapes = f"{list(array.shape)} instead of {list(reference.shape)}"
            raise BenchError(f"output {position} has shape {shapes}")
        error = (_moments if random else _elements)(np.asarray(array, np.float64), reference)
        limit = MOMENTS if random else TOLERANCE
        if not error <= limit:
            raise BenchError(f"output {position} is wrong: relative error {error:.3g}")
        worst = max(worst, error)
    return worst


def _elements(found: np.ndarray, wanted: np.ndarray) -> float:
    exact = np.asarray(wanted, np.float64)
    rms = float(np.sqrt(np.mean(exact**2))) if exact.size else 0.0
    error = np.abs(found - exact) / (np.abs(exact) + rms + np.finfo(np.float32).tiny)
    return float(np.quantile(error, 1.0 - SHARE)) if error.size else 0.0


def _moments(found: np.ndarray, wanted: np.ndarray) -> float:
    """Difference of means and of deviations, relative to the larger of the two."""
    if not np.isfinite(found).all():
        return float("inf")
    mean, deviation = float(wanted.mean()), float(wanted.std())
    scale = max(abs(mean), deviation)
    return max(abs(float(found.mean()) - mean), abs(float(found.std()) - deviation)) / scale
