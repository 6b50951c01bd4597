"""Rows of a linear program, sparse: what a solver and its bounds ask of a matrix.

NumPy alone: scipy.sparse takes longer to import than most problems take to solve.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Row:
    """sum of coefficients[i] * x[columns[i]] >= lower"""

    columns: tuple[int, ...]
    coefficients: tuple[float, ...]
    lower: float


@dataclass(frozen=True, slots=True)
class Rows:
    """Entry i of the matrix has coefficient `values[i]` in column `columns[i]`; those of row r are
    from `starts[r]` to `starts[r + 1]`. `width` columns in all."""

    starts: Indices
    columns: Indices
    values: Floats
    lower: Floats
    width: int

    @staticmethod
    def of(rows: Sequence[Row], width: int) -> Rows:
        return Rows(
            np.cumsum([0] + [len(row.columns) for row in rows], dtype=np.int32),
            np.array([c for row in rows for c in row.columns], dtype=np.int32),
            np.array([c for row in rows for c in row.coefficients], dtype=np.float64),
            np.array([row.lower for row in rows], dtype=np.float64),
            width,
        )

    def __len__(self) -> int:
        return len(self.lower)

    def _of(self) -> Indices:
        """The row of each entry."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.starts))

    def dot(self, x: Floats) -> Floats:
        """What each row sums to."""
        found = np.bincount(self._of(), self.values * x[self.columns], len(self))
        return found.astype(np.float64, copy=False)

    def weighed(self, weights: Floats) -> Floats:
        """The sum of all rows, each times its weight, by column."""
        found = np.bincount(self.columns, self.values * weights[self._of()], self.width)
        return found.astype(np.float64, copy=False)

    def counts(self, chosen: NDArray[np.bool_]) -> NDArray[np.intp]:
        """How many entries of each row are in chosen columns."""
        return np.bincount(self._of()[chosen[self.columns]], minlength=len(self))

    def with_more(self, more: Rows) -> Rows:
        return Rows(
            np.concatenate([self.starts, more.starts[1:] + self.starts[-1]], dtype=np.int32),
            np.concatenate([self.columns, more.columns]),
            np.concatenate([self.values, more.values]),
            np.concatenate([self.lower, more.lower]),
            self.width,
        )

    def narrowed(self, kept: NDArray[np.intp]) -> Rows:
        """The same rows over some columns, ascending, which are numbered anew."""
        number = np.full(self.width, -1, dtype=np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        stays = number[self.columns] >= 0
        ends = np.concatenate([[0], np.cumsum(stays)])
        return Rows(
            ends[self.starts].astype(np.int32), number[self.columns[stays]], self.values[stays],
            self.lower, len(kept),
        )  # fmt: skip
