"""Rounds of launch configurations: few kernels are compiled for several rounds side by side."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionPlan
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.profiling import SIDE_BY_SIDE, Kernels
from search_spaces import FusionSpace
from search_spaces.launch import first_option
from tests.support.slow_bench import SlowBench


def fused(graph: Graph) -> FusionPlan:
    return FusionSpace(graph).choose(first_option)


def unfused(graph: Graph) -> FusionPlan:
    return baseline_plan(graph, "unfused")[0]


def profiled(
    planner: Callable[[Graph], FusionPlan],
) -> tuple[Graph, FusionPlan, SlowBench, Kernels]:
    graph = normal_form(trace(lambda x: xp.softmax(xp.exp(x), axis=-1), spec((64, 512))))
    plan = planner(graph)
    keys = {group: str(k) for k, group in enumerate(plan.groups)}
    bench = SlowBench(graph, 60.0, 0.0)
    kernels = Kernels(bench, keys, dict.fromkeys(keys.values(), 1.0))
    assert kernels.profile(plan, {})
    return plan, bench, kernels


def test_one_kernel_gets_several_rounds_at_once_and_none_twice() -> None:
    plan, bench, kernels = profiled(fused)
    assert len(plan.groups) == 1
    rounds = kernels.draw_rounds(plan, 9)
    (key,) = kernels.keys(plan)
    launches = [asked[key].launch for asked in rounds]
    assert len(launches) == SIDE_BY_SIDE == len(set(launches))
    assert [c.launches for c in bench.prepared[0]] == [(one,) for one in launches]
    for asked in rounds:
        kernels.tune_launches(plan, asked)
    assert set(launches) < set(kernels.by_key[key].us)
    assert not set(launches) & {asked[key].launch for asked in kernels.draw_rounds(plan, 9)}


def test_rounds_are_no_more_than_asked_for_and_one_is_built_when_it_is_run() -> None:
    plan, bench, kernels = profiled(fused)
    assert len(kernels.draw_rounds(plan, 1)) == 1
    assert bench.prepared == []


def test_many_kernels_keep_compilers_busy_by_themselves() -> None:
    plan, bench, kernels = profiled(unfused)
    assert len(plan.groups) >= SIDE_BY_SIDE
    (asked,) = kernels.draw_rounds(plan, 9)
    assert len(asked) > 1 and bench.prepared == []


def test_a_small_space_ends_when_it_is_through_and_not_while_it_waits() -> None:
    plan, _, kernels = profiled(fused)
    (key,) = kernels.keys(plan)
    seen = 0
    while rounds := kernels.draw_rounds(plan, 4):
        for asked in rounds:
            assert not kernels.by_key[key].settled
            kernels.tune_launches(plan, asked)
        seen += len(rounds)
        assert seen < 5000
        if seen > 40:
            break
    assert len(kernels.by_key[key].us) == seen + 1
