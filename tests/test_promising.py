"""Searching a large graph: one plan tries in every window what most is expected of."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.baselines import BASELINES
from autofuse.cost.bounds import NOMINAL
from autofuse.cost.expected import expected_us
from autofuse.enumerate.windows import Window
from autofuse.frontends import array_api as xp
from autofuse.frontends import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search import exact
from autofuse.tuning.search.exact import ExactSearch, Goal
from tests.support.slow_bench import SlowBench

TimeOf = Callable[[Graph, FusionGroup, LaunchConfig], float]
LAYERS, WIDTH = 6, 64


def _network(x: object, *weights: object) -> object:
    for w in weights:
        x = xp.tanh(xp.matmul(x, w)) * 0.5 + x
    return x


GRAPH = canonical(
    trace(_network, spec((32, WIDTH)), *(spec((WIDTH, WIDTH)) for _ in range(LAYERS)))
)


def as_expected(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
    return expected_us(graph, group, launch, NOMINAL)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact, "WHOLE_NODES", 10)


def searched(time_us: TimeOf, seconds: float = 1e4) -> tuple[SlowBench, ExactSearch]:
    bench = SlowBench(GRAPH, seconds, 1e-6, time_us)
    bench.plans = {name: baseline_plan(GRAPH, name)[0] for name in BASELINES if name == "unfused"}
    return bench, ExactSearch(bench, Goal())


def tiles(search: ExactSearch) -> list[Window]:
    return [window for window in search.windows if window.kind == "tile"]


@pytest.mark.usefixtures("small_windows")
def test_what_is_expected_of_all_windows_is_tried_in_one_plan() -> None:
    bench, search = searched(as_expected)
    assert len(tiles(search)) >= 3
    search.run()
    first, second = (set(candidate.plan.groups) for candidate in bench.tried[:2])
    assert first == set(bench.plans["unfused"].groups)  # not "everything fused"
    new = [frozenset(group.nodes) for group in second - first]
    assert sum(any(nodes <= w.nodes for nodes in new) for w in tiles(search)) >= 3


@pytest.mark.usefixtures("small_windows")
def test_the_plan_that_was_found_is_no_slower_than_the_one_given() -> None:
    bench, search = searched(as_expected)
    search.run()
    assert search.current is not None
    given_us = search.kernels.cost_us(bench.plans["unfused"].groups)
    assert search.kernels.cost_us(search.current.groups) < given_us


@pytest.mark.usefixtures("small_windows")
def test_kernels_that_disappoint_are_left_again() -> None:
    """Whatever is fused takes long: the given plan stays."""

    def alone(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
        return as_expected(graph, group, launch) * (1.0 if len(group.nodes) == 1 else 50.0)

    bench, search = searched(alone, 40.0)
    search.run()
    assert search.current is not None
    given_us = search.kernels.cost_us(bench.plans["unfused"].groups)
    assert search.kernels.cost_us(search.current.groups) <= given_us
