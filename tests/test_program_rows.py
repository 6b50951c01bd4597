"""Sparse rows, as dense matrices have them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autofuse.cover.rows import Row, Rows

WIDTH = 7
ROW = st.dictionaries(st.integers(0, WIDTH - 1), st.sampled_from([1.0, -1.0, 0.5]), max_size=5).map(
    lambda held: Row(tuple(held), tuple(held.values()), 1.0)
)
ROWS = st.lists(ROW, max_size=6)


def dense(rows: list[Row]) -> np.ndarray:
    found = np.zeros((len(rows), WIDTH))
    for r, row in enumerate(rows):
        found[r, list(row.columns)] = row.coefficients
    return found


def text(rows: Rows) -> np.ndarray:
    found = [rows.dot(unit) for unit in np.eye(rows.width)]
    return np.array(found).reshape(rows.width, len(rows)).T


@given(ROWS, ROWS, st.sets(st.integers(0, WIDTH - 1)))
def test_rows_are_those_of_the_matrix(one: list[Row], more: list[Row], kept: set[int]) -> None:
    rows = Rows.of(one, WIDTH).with_more(Rows.of(more, WIDTH))
    matrix, columns = dense(one + more), np.array(sorted(kept), dtype=np.intp)
    chosen = np.isin(np.arange(WIDTH), columns)
    assert len(rows) == len(one + more)
    assert np.array_equal(text(rows), matrix)
    weights = np.arange(len(rows), dtype=np.float64)
    assert np.array_equal(rows.weighed(weights), matrix.T @ weights)
    assert np.array_equal(rows.counts(chosen), np.count_nonzero(matrix[:, columns], axis=1))
    assert np.array_equal(text(rows.narrowed(columns)), matrix[:, columns])
