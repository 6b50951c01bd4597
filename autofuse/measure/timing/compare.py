"""Is A faster than B? Interleaved samples, a ratio of medians, and its bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.measure.timing.sampling import MeasureError
from autofuse.records import Verdict

Blocks = Sequence[Sequence[float]]
_RESAMPLES = 2000
_CONFIDENCE = 0.95
_SEED = 20240607


def verdict(
    name: str,
    samples_other: Blocks,
    samples_best: Blocks,
    threshold: float = 0.01,
    resamples: int = _RESAMPLES,
) -> Verdict:
    """The best against `name`: microseconds by block, block i of both taken at the same time.

    `ratio` is median(other) / median(best) with a 95 % interval. The best is "faster" only if the
    whole interval lies above 1 + threshold, "slower" if it lies below 1 / (1 + threshold), else it
    is a "tie". Blocks, then samples within them, are drawn again: neighbours in time are alike.
    """
    if len(samples_other) != len(samples_best) or not samples_other:
        raise MeasureError("a comparison needs the same, positive, number of blocks on each side")
    if any(len(block) == 0 for block in (*samples_other, *samples_best)):
        raise MeasureError("a comparison needs samples in every block")
    draw = np.random.default_rng(_SEED)
    chosen = draw.integers(0, len(samples_other), (resamples, len(samples_other)))
    ratios = _medians(samples_other, chosen, draw) / _medians(samples_best, chosen, draw)
    tail = 50 * (1 - _CONFIDENCE)
    low, high = (float(q) for q in np.percentile(ratios, (tail, 100 - tail)))
    other, best = (float(np.median(np.concatenate(b))) for b in (samples_other, samples_best))
    outcome = "tie"
    if low > 1 + threshold:
        outcome = "faster"
    elif high < 1 / (1 + threshold):
        outcome = "slower"
    return Verdict(name, other, best, other / best, low, high, outcome)


def _medians(blocks: Blocks, chosen: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """For each row of block numbers, the median of those blocks resampled."""
    longest = max(len(block) for block in blocks)
    lengths = np.array([len(block) for block in blocks])
    table = np.array([np.resize(np.asarray(block, np.float64), longest) for block in blocks])
    positions = draw.random((*chosen.shape, longest)) * lengths[chosen][..., None]
    picked = table[chosen[..., None], positions.astype(np.int64)]
    medians: np.ndarray = np.median(picked.reshape(len(chosen), -1), axis=1)
    return medians
