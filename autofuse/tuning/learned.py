"""Kernel times learned from measured kernels: a forest of trees over group features.

What is learned is the ratio of a kernel's time to its lower bound, on a log scale, so that one
model serves kernels of every size. Predictions order measurements and skip hopeless ones; they
prove nothing. How good they are is said by predicting kernels that were kept from the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.cost.features import vector
from autofuse.ops.types import AutofuseError
from autofuse.records import KernelMeasurement

Floats = NDArray[np.float64]

# Kernels that a model needs at least; below, every kernel is guessed at the same ratio.
LEAST = 24
TREES, LEAF = 100, 1
FOLDS = 5
# Microseconds that a bound of nothing counts as, so that there are ratios to it.
TINY = 1e-6
# The share of kernels that may turn out faster than what is said of them at the least.
QUANTILE = 0.1


@dataclass(frozen=True, slots=True)
class KernelSample:
    """A kernel as a model sees it: features by name, and its lower bound in microseconds."""

    features: Mapping[str, float]
    bound_us: float


@dataclass(frozen=True, slots=True)
class Lesson:
    """A measured kernel: its key, the workload it was measured for, and its microseconds under
    the first configuration that was tried."""

    key: str
    workload: str
    sample: KernelSample
    us: float


@dataclass(frozen=True, slots=True)
class HeldOut:
    """How well kernels are predicted that the model has not seen: `kernels` of them, kept back
    by "workload", or by "kernel" where there are too few workloads. Spearman rank correlation
    of prediction and time, and of lower bound and time, None where it is not defined; `low` is
    the factor below a prediction that all but QUANTILE of the times keep to."""

    by: str
    kernels: int
    rank_correlation: float | None
    bound_rank_correlation: float | None
    low: float


@dataclass(frozen=True)
class Model:
    """`trained_on` kernels. `typical`: the ratio of time to bound where there is no forest."""

    trained_on: int
    typical: float
    forest: Any = None

    def predict(self, samples: Sequence[KernelSample]) -> Floats:
        """Microseconds of each kernel, never below its bound."""
        bounds = _bounds(samples)
        if self.forest is None or not samples:
            return bounds * max(1.0, self.typical)
        ratios = np.exp(self.forest.predict(_matrix(samples)))
        return np.asarray(bounds * np.maximum(1.0, ratios), dtype=float)


def library(module: str = "ensemble") -> Any:
    """A module of scikit-learn; raises AutofuseError without it."""
    try:
        return import_module(f"sklearn.{module}")
    except ImportError as error:
        raise AutofuseError(
            "learning kernel times needs scikit-learn: pip install autofuse[model]"
        ) from error


def fit(lessons: Sequence[Lesson], seed: int = 0) -> Model:
    """The model of these kernels; equal lessons in equal order and seeds give equal models.
    Raises AutofuseError without scikit-learn."""
    ensemble = library()
    if not lessons:
        return Model(0, 1.0)
    targets = _targets(lessons)
    typical = float(np.exp(np.median(targets)))
    if len(lessons) < LEAST:
        return Model(len(lessons), typical)
    forest = ensemble.ExtraTreesRegressor(TREES, min_samples_leaf=LEAF, random_state=seed)
    forest.fit(_matrix([lesson.sample for lesson in lessons]), targets)
    return Model(len(lessons), typical, forest)


def held_out(lessons: Sequence[Lesson], seed: int = 0) -> HeldOut | None:
    """Every kernel predicted by a model of the others; None where there are too few to say."""
    if len(lessons) < 2 * LEAST:
        return None
    workloads = [lesson.workload for lesson in lessons]
    by = "workload" if len(set(workloads)) >= 3 else "kernel"
    groups = workloads if by == "workload" else [lesson.key for lesson in lessons]
    splitter = library("model_selection").GroupKFold(min(FOLDS, len(set(groups))))
    predicted = np.zeros(len(lessons))
    for train, test in splitter.split(groups, groups=groups):
        model = fit([lessons[i] for i in train], seed)
        predicted[test] = model.predict([lessons[i].sample for i in test])
    times = np.array([lesson.us for lesson in lessons])
    bounds = np.array([lesson.sample.bound_us for lesson in lessons])
    return HeldOut(
        by,
        len(lessons),
        rank_correlation(predicted, times),
        rank_correlation(bounds, times),
        low_factor(predicted, times),
    )


def low_factor(predicted: Floats | Sequence[float], us: Floats | Sequence[float]) -> float:
    """The factor, at most 1, below a prediction that all but QUANTILE of the times keep to."""
    ratios = np.asarray(us, dtype=float) / np.asarray(predicted, dtype=float)
    return min(1.0, float(np.quantile(ratios, QUANTILE)))


def rank_correlation(
    one: Floats | Sequence[float], other: Floats | Sequence[float]
) -> float | None:
    """Spearman's rank correlation, None for fewer than three or all equal values."""
    if len(one) < 3 or len(set(one)) == 1 or len(set(other)) == 1:
        return None
    from scipy.stats import spearmanr  # takes a third of a second to import

    return float(spearmanr(one, other).statistic)


def lessons_of(history: Iterable[tuple[str, KernelMeasurement]], cache: str) -> list[Lesson]:
    """The lessons of stored kernels (workload, measurement), oldest first: the first time of each
    kernel in this cache state, of those that were stored with bound and features."""
    found: dict[str, Lesson] = {}
    for workload, one in history:
        usable = one.timing is not None and one.bound_us and one.facts
        if not usable or one.cache != cache or one.group in found:
            continue
        assert one.timing is not None and one.bound_us is not None
        sample = KernelSample(dict(one.facts), one.bound_us)
        found[one.group] = Lesson(one.group, workload, sample, one.timing.median_us)
    return list(found.values())


def _targets(lessons: Sequence[Lesson]) -> Floats:
    times = np.array([lesson.us for lesson in lessons], dtype=float)
    return np.asarray(np.log(times / _bounds([lesson.sample for lesson in lessons])))


def _bounds(samples: Sequence[KernelSample]) -> Floats:
    return np.array([max(sample.bound_us, TINY) for sample in samples], dtype=float)


def _matrix(samples: Sequence[KernelSample]) -> Floats:
    return np.array([vector(sample.features) for sample in samples], dtype=float)
