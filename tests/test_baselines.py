"""Every registered baseline on random graphs: valid plans, the same plan for the same graph."""

from __future__ import annotations

from functools import cache

import pytest

from autofuse.baselines import BASELINES, baseline_named, explain
from autofuse.errors import AutofuseError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import in_one_order
from autofuse.plan.types import FusionPlan
from autofuse.tuning.plans import baseline_candidate
from search_spaces import CpuLaunchSpace
from tests.support.checked_plans import (
    check_plan,
    check_plans_of_random_graphs,
    check_plans_of_shuffled_graphs,
    shuffled,
)
from tests.support.random_graphs import random_graph
from tests.support.seeds import seeds

F32, U32 = DType.F32, DType.U32


@cache
def thousand_nodes() -> Graph:
    return canonical(random_graph(1, 1000))


@pytest.mark.wide(4)
@pytest.mark.parametrize("name", BASELINES)
def test_plans_of_random_graphs_are_valid(name: str) -> None:
    check_plans_of_random_graphs(BASELINES[name])


@pytest.mark.parametrize("name", BASELINES)
def test_plans_do_not_depend_on_node_order_or_names(name: str) -> None:
    check_plans_of_shuffled_graphs(BASELINES[name])


@pytest.mark.parametrize("name", BASELINES)
def test_a_thousand_nodes_are_planned(name: str) -> None:
    graph = thousand_nodes()
    check_plan(graph, BASELINES[name](graph).plan)


def test_shuffling_changes_the_order() -> None:
    graph = random_graph(3, 25)
    assert shuffled(graph, 1).nodes != graph.nodes


def loop_graph() -> Graph:
    """Ten steps of s = tanh(s + 1) * 0.5 with an invariant added."""
    body = GraphBuilder()
    body.input("i", (), DType.I32)
    state, bias = body.input("s", (6,), F32), body.input("b", (6,), F32)
    half = body.constant(0.5, F32, (6,))
    inner = body.add("mul", body.add("tanh", body.add("add", state, bias)), half)
    b = GraphBuilder()
    x, y = b.input("x", (6,), F32), b.input("y", (6,), F32)
    start = b.add("neg", x)
    (last,) = b.add_multi("loop", start, y, body=body.build([inner]), trip=10, carries=1)
    return canonical(b.build([b.add("abs", last)]))


@pytest.mark.parametrize("name", BASELINES)
def test_a_loop_is_a_group_whose_body_is_planned(name: str) -> None:
    graph = loop_graph()
    result = BASELINES[name](graph)
    check_plan(graph, result.plan)
    (loop,) = (g for g in result.plan.groups if g.body is not None)
    assert [graph[n].op for n in loop.nodes] == ["loop"]
    assert len(result.plan.groups) == 3
    body = loop.body
    assert body is not None
    assert len(body.groups) == (4 if name == "unfused" else 1)


def test_unfused_is_one_group_per_op() -> None:
    for seed in seeds(20):
        graph = canonical(random_graph(seed, 30))
        groups = BASELINES["unfused"](graph).plan.groups
        assert sorted(g.nodes for g in groups) == [(n,) for n in live(graph)]


def test_equal_kernels_are_one_plan_whoever_made_them() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (6,), F32), b.input("y", (8,), F32)
    graph = canonical(b.build([b.add("neg", x), b.add("abs", y)]))
    names = ("unfused", "tvm", "nvfuser", "greedy-chains")
    assert len({baseline_candidate(graph, name, CpuLaunchSpace())[0].digest for name in names}) == 1
    backwards = FusionPlan(BASELINES["unfused"](graph).plan.groups[::-1])
    assert in_one_order(graph, backwards) == BASELINES["unfused"](graph).plan


def test_an_output_that_is_an_input_needs_no_group() -> None:
    b = GraphBuilder()
    x = b.input("x", (4,), F32)
    graph = canonical(b.build([x]))
    for planner in BASELINES.values():
        assert planner(graph).plan.groups == ()


def test_unused_outputs_are_not_written() -> None:
    b = GraphBuilder()
    words = [b.input(f"w{k}", (4,), U32) for k in range(4)]
    first, _ = b.add_multi("threefry2x32", *words)
    graph = canonical(b.build([first]))
    for planner in BASELINES.values():
        (group,) = planner(graph).plan.groups
        assert group.outputs == (Value(group.nodes[0], 0),)


def test_an_unknown_baseline_is_named() -> None:
    with pytest.raises(AutofuseError, match=r"unknown baseline 'best'.*unfused, xla-2022"):
        baseline_named("best")
    assert baseline_named("unfused") is BASELINES["unfused"]


def test_explain_has_a_line_per_group_and_decision() -> None:
    graph = loop_graph()
    result = BASELINES["xla-2022"](graph)
    lines = explain(result, graph)
    assert len(lines) == len(result.plan.groups) + len(result.decisions)
    assert any("[library-call]" in line and line.startswith("refused") for line in lines)
    assert any(line.startswith("fused") and "in %" in line for line in lines)
