"""Columns past a mask are not computed, where nothing can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.lower import extract, lower
from autofuse.ops import index as ix
from autofuse.ops.conditions import latest
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit, Sym
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.parameters import LaunchConfig
from autofuse.plan.schedules.masks import Reach, reach_of
from autofuse.plan.schedules.tiles import tiles_of
from autofuse.plan.types import Candidate, FusionPlan
from tests.support.batching import quick_library
from tests.support.tile_programs import masked, softmax, whole

LENGTH = 150
LAUNCH = LaunchConfig.of(threads=1, impl="loops", micro="6x64", row_block=20, pack=True, stage=True)
Visible = Callable[[Any, Any], Any]


def causal(r: Any, c: Any) -> Any:
    return c <= r


def strict(r: Any, c: Any) -> Any:
    return c < r


def ahead(r: Any, c: Any) -> Any:
    return r + 7 >= c


def window(r: Any, c: Any) -> Any:
    return (c <= r) & (c > r - 9)


def every_other(r: Any, c: Any) -> Any:
    return c % 2 == 0


def graph_of(function: Callable[..., Any], length: int = LENGTH) -> Graph:
    return canonical(trace(function, *[spec((2, length, 16))] * 3))


def offset(graph: Graph) -> int | None:
    """The reach of the scores of attention as one kernel."""
    group = whole(graph)
    forms = check_group(graph, group.nodes, group.outputs)
    assert not isinstance(forms, Refusal)
    tiles = tiles_of(graph, forms[0])
    assert tiles is not None
    found = reach_of(graph, forms[0], tiles, tiles.products[0])
    return None if found is None else found.offset


CASES: dict[str, tuple[Visible, float, int | None]] = {
    "causal": (causal, -np.inf, 0),
    "causal, finite": (causal, -1e30, 0),
    "causal, small": (causal, -1e9, 0),
    "too near": (causal, -1e4, None),
    "strict": (strict, -np.inf, -1),
    "strict leaves a row nothing": (strict, -1e30, None),
    "ahead": (ahead, -1e30, 7),
    "window": (window, -np.inf, 0),
    "a window may leave a row nothing": (window, -1e30, None),
    "no order": (every_other, -np.inf, None),
}


@given(st.integers(-9, 9), st.integers(1, 20), st.integers(1, 20), st.integers(0, 20))
def test_columns_that_some_of_the_first_rows_need(
    offset: int, width: int, rows: int, first: int
) -> None:
    reach = Reach(offset, width, frozenset())
    needed = {c for r in range(rows) for c in range(width) if c <= r + offset}
    assert reach.columns(ix.lit(rows), 0) == ix.lit(len(needed))
    assert reach.columns(ix.lit(rows)) == ix.lit(max(1, len(needed)))
    beyond = reach.beyond(ix.lit(rows), ix.lit(first))
    assert isinstance(beyond, Call) and beyond.fn == "max"
    counts = [int(a.value) for a in beyond.args if isinstance(a, Lit)]
    assert len(counts) == 2 and max(counts) == len(range(first, rows + offset))


@pytest.mark.parametrize("name", CASES)
def test_the_reach_of_a_mask(name: str) -> None:
    visible, hidden, wanted = CASES[name]
    assert offset(graph_of(masked(visible, hidden))) == wanted


@pytest.mark.parametrize("name", [n for n, case in CASES.items() if case[2] is not None])
def test_what_is_cut_short_is_right(name: str) -> None:
    visible, hidden, _ = CASES[name]
    graph = graph_of(masked(visible, hidden))
    candidate = Candidate(FusionPlan((whole(graph),)), (LAUNCH,))
    inputs = random_inputs(graph, 5)
    (found,) = quick_library(graph, candidate).run(inputs)
    (wanted,) = evaluate(graph, inputs)
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_a_mask_that_is_a_constant_is_read() -> None:
    assert offset(graph_of(masked(causal, -1e30, np.arange))) == 0
    assert offset(graph_of(masked(window, -1e30, np.arange))) == 0, "every row sees itself"
    assert offset(graph_of(masked(strict, -1e30, np.arange))) is None


def test_weights_that_are_returned_are_all_needed() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        rows, columns = xp.arange(LENGTH)[:, None], xp.arange(LENGTH)[None, :]
        return softmax(xp.where(columns <= rows, q @ np.swapaxes(k, -1, -2), -np.inf))

    assert offset(graph_of(function)) is None


def test_a_sum_of_scores_before_the_mask_needs_all() -> None:
    def function(q: Any, k: Any, v: Any) -> Any:
        rows, columns = xp.arange(LENGTH)[:, None], xp.arange(LENGTH)[None, :]
        scores = q @ np.swapaxes(k, -1, -2)
        weights = softmax(xp.where(columns <= rows, scores, -np.inf))
        return weights @ v + np.sum(scores, axis=-1, keepdims=True)

    assert offset(graph_of(function)) is None


def test_loops_over_columns_end_early() -> None:
    graph = graph_of(masked(causal, -np.inf))
    text = str(lower(extract(graph, whole(graph))[0], LAUNCH))
    assert "serial s0 < min(e0, 2:i64)" in text, "panels of scores"
    assert text.count("min(mul(e0, 64:i64), 150:i64)") >= 3, "maximum, sum, product with values"


ROW, COLUMN = Sym("r", DType.I64, 100), Sym("c", DType.I64, 100)


def narrow(value: Expr) -> Expr:
    return Call("cast", (value,), DType.I32)


def compared(fn: str, a: Expr, b: Expr) -> Expr:
    return Call(fn, (a, b), DType.BOOL)


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        (compared("le", COLUMN, ROW), ROW),
        (compared("lt", narrow(COLUMN), narrow(ROW)), ix.isub(ROW, ix.lit(1))),
        (compared("ge", ix.iadd(ROW, ix.lit(3)), COLUMN), ix.iadd(ROW, ix.lit(3))),
        (compared("gt", ROW, COLUMN), ix.isub(ROW, ix.lit(1))),
        (compared("ge", COLUMN, ROW), None),
        (compared("eq", COLUMN, ROW), None),
        (compared("le", ix.imul(COLUMN, 2), ROW), None),
    ],
)
def test_the_last_value_for_which_a_condition_holds(condition: Expr, wanted: Expr | None) -> None:
    assert latest(condition, "c") == wanted
