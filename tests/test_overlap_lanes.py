"""The last lanes of a short row as a whole vector: as text, and by what kernels compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse import xp
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel, Loop, statements
from autofuse.kernel.lower import lower
from autofuse.kernel.passes import overlap_lanes, verify
from autofuse.plan.types import Candidate, LaunchConfig
from tests.support.batching import Case, failures
from tests.support.kernel_eval import run
from tests.support.split_lanes import traced
from tests.support.unrolled_plans import fused


def lowered(graph: Graph) -> Kernel:
    return lower(graph, LaunchConfig.of(tile=1024))


def lanes(kernel: Kernel) -> list[str]:
    return [str(s) for s in statements(kernel.body) if isinstance(s, Loop) and s.kind == "lane"]


def test_what_is_left_of_a_row_is_a_vector_that_begins_earlier() -> None:
    kernel = verify(overlap_lanes(lowered(traced(lambda x: xp.exp(x), 38))))
    assert lanes(kernel) == ["lane l0 < 32:i64", "lane l0_t < 16:i64"]
    assert "in0[add(l0_t, 22:i64)]" in str(kernel) and "out0[add(l0_t, 22:i64)]" in str(kernel)


@pytest.mark.parametrize(
    ("extent", "found"),
    [
        (16, [16]),
        (17, [17]),
        (12, [8, 8]),
        (6, [4, 4]),
        (3, [3]),
        (148, [144, 16]),
        (256, [256]),
        (260, [260]),
    ],
)
def test_rows_of_whole_vectors_of_one_element_more_and_long_ones_stay(
    extent: int, found: list[int]
) -> None:
    kernel = overlap_lanes(lowered(traced(lambda x: xp.exp(x), extent)))
    assert [int(text.split()[3].removesuffix(":i64")) for text in lanes(kernel)] == found


@pytest.mark.parametrize("fn", [lambda x: xp.sum(x), lambda x: xp.softmax(x, axis=-1)])
def test_folds_stay(fn: Any) -> None:
    kernel = lowered(traced(fn, 38))
    folded = [text for text in lanes(overlap_lanes(kernel)) if "->" in text]
    assert folded == [text for text in lanes(kernel) if "->" in text] != []


@pytest.mark.parametrize("extent", [7, 12, 25, 38, 100])
def test_rows_compute_what_they_did(extent: int) -> None:
    kernel = lowered(traced(lambda x: xp.concat([x[1:], x[:1]], axis=0) * 2.0 - x, extent))
    given = [np.random.default_rng(0).random(extent, np.float32)]
    (want,), (found,) = run(kernel, given), run(overlap_lanes(kernel), given)
    np.testing.assert_array_equal(want, found)


def test_short_rows_are_right_in_c() -> None:
    graphs = [
        traced(lambda x: xp.exp(x[:, 1:]) + x[:, :-1], 5, extent) for extent in (9, 24, 39, 120)
    ]
    cases = [
        Case(g, Candidate(fused(g), (LaunchConfig.of(tile=1024),)), str(k))
        for k, g in enumerate(graphs)
    ]
    assert failures(cases) == []
