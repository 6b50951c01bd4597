"""Rounding as noise: what runs of the reference are perturbed by."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.ops.spec import Family

# Of what storing a narrow type rounds by, as a part of the noise of other types: its arithmetic is
# that of a wider one, so that each value is rounded once, correctly.
STORED = 0.25
# Of the error of a fold, in units of its order: `sqrt(terms)` roundings of partial results.
FOLDED = 0.5


class Noise:
    """Monte Carlo arithmetic (Parker 1997): a relative error of up to `scale` units in the last
    place on every rounded result, so that running twice shows how ill-conditioned an element is.
    A negative `scale` mirrors the errors of the same seed.
    """

    LENGTH = 65_521
    # Whether results are rounded to their types, too.
    rounds = False

    def __init__(self, seed: int, scale: float = 2.0) -> None:
        self._rng = np.random.default_rng(seed)
        self._table = np.tile(scale * self._rng.uniform(-1.0, 1.0, self.LENGTH), 2)

    @property
    def table(self) -> np.ndarray:
        """The numbers in -scale .. scale that results are perturbed by, `LENGTH` of them."""
        return self._table[: self.LENGTH]

    def seed(self) -> int:
        """A number that says where compiled code begins to read the table; another each time."""
        return int(self._rng.integers(2**62))

    def stored(self, array: np.ndarray, dtype: DType, size: np.ndarray | None) -> np.ndarray:
        """`array` with the noise of values of `dtype`; what it cannot hold becomes infinite, as in
        arithmetic of that type. `size`: of a fold, see `_fold_sizes`."""
        noisy = self(array, dtype.eps * (1.0 if dtype.compute is dtype else STORED))
        if size is not None:
            moved = self(size.astype(np.float64), 1.0) - size
            noisy = np.asarray(noisy + FOLDED * moved)
        if self.rounds and dtype is not DType.F64:
            noisy = _rounded(noisy, splitter(dtype))
        if dtype is DType.F64:
            return noisy
        top = dtype.largest
        with np.errstate(all="ignore"):
            if not max(noisy.max(initial=0.0), -noisy.min(initial=0.0)) <= top:
                beyond = np.abs(noisy) > top
                noisy[beyond] = np.copysign(np.inf, noisy[beyond])
        return noisy

    def __call__(self, array: np.ndarray, eps: float) -> np.ndarray:
        """`array` (float64) with noise relative to `eps`; a new array of the same shape."""
        start = int(self._rng.integers(self.LENGTH))
        factors = 1.0 + eps * self._table[start : start + min(array.size, self.LENGTH)]
        if array.flags.c_contiguous:
            return self._times(array.reshape(-1), factors).reshape(array.shape)
        order = np.argsort([-stride for stride in array.strides], kind="stable")
        flat = np.ascontiguousarray(array.transpose(order)).reshape(-1)
        moved = self._times(flat, factors).reshape([array.shape[axis] for axis in order])
        return np.asarray(moved.transpose(np.argsort(order)))

    def _times(self, flat: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """In the order of memory and one table at a time, which stays in cache."""
        noisy = np.empty_like(flat)
        with np.errstate(all="ignore"):
            for first in range(0, flat.size, self.LENGTH):
                part = flat[first : first + self.LENGTH]
                out = noisy[first : first + self.LENGTH]
                np.multiply(part, factors[: part.size], out=out)
        return noisy


class Rounding(Noise):
    """Every result rounded to its type, as where each op is a kernel of its own. Nothing is left to
    chance in it: errors that all lean to one side add up, as those of equal elements do, and of
    iterations that compute the same."""

    rounds = True

    def __init__(self) -> None:
        super().__init__(0, 0.0)


def may_lean(graph: Graph) -> bool:
    """Whether errors may all lean to one side: of results that are stored in types narrower than
    their arithmetic, and of a loop that computes floats."""
    own = [t.dtype for node in graph.nodes if node.inputs for t in node.types if t.dtype.is_float]
    loops = any(node.spec.family is Family.CONTROL for node in graph.nodes)
    if own and (loops or any(dtype.compute is not dtype for dtype in own)):
        return True
    return any(map(may_lean, _bodies(graph)))


def _bodies(graph: Graph) -> Iterator[Graph]:
    values = (value for node in graph.nodes for _, value in node.attrs)
    return (value for value in values if isinstance(value, Graph))


def splitter(dtype: DType) -> float:
    """What a float64 is multiplied by to be rounded to the bits of a narrower type (Veltkamp
    1968): to p bits of 53, 2^(53 - p) + 1."""
    return 2.0**52 * dtype.eps + 1.0


def _rounded(array: np.ndarray, split: float) -> np.ndarray:
    with np.errstate(all="ignore"):
        large = array * split
        return np.where(np.isfinite(large), large - (large - array), array)
