"""Every registered baseline on random graphs: valid plans, the same plan for the same graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from autofuse.baselines import BASELINES, baseline_named, explain
from autofuse.errors import AutofuseError
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion import legality
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import in_one_order, is_source, reads
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.types import FusionPlan
from autofuse.tuning.plans import baseline_candidate
from search_spaces import CpuLaunchSpace
from tests.support.random_graphs import ALL_MOVES, random_graph
from tests.support.seeds import seeds

F32, U32 = DType.F32, DType.U32


def check_plan(graph: Graph, plan: FusionPlan) -> None:
    """Groups run in an order in which all they read is written, each value by one group; groups
    are convex because none reads what depends on its own outputs."""
    written: dict[Value, int] = {}
    for k, group in enumerate(plan.groups):
        assert list(group.nodes) == sorted(set(group.nodes))
        assert list(group.outputs) == sorted(set(group.outputs))
        assert group.outputs
        assert all(not is_source(graph, n) for n in group.nodes)
        assert all(v.node in group.nodes for v in group.outputs)
        for value in reads(graph, group.nodes):
            assert is_source(graph, value.node) or value in written, f"{k} reads {value}"
        for value in group.outputs:
            assert value not in written
            written[value] = k
        loops = [n for n in group.nodes if graph[n].op == "loop"]
        assert (group.body is not None) == bool(loops)
        if group.body is not None:
            check_plan(graph.call(loops[0])["body"], group.body)
    assert all(v in written for v in graph.outputs if not is_source(graph, v.node))
    covered = {n for group in plan.groups for n in group.nodes}
    assert covered == set(live(graph))
    read = {v for group in plan.groups for v in reads(graph, group.nodes)}
    assert set(written) <= read | set(graph.outputs), "a group writes what nothing reads"


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same computation with nodes in another topological order and other names."""
    rng = np.random.default_rng(seed)
    left = {i: {v.node for v in node.inputs} for i, node in enumerate(graph.nodes)}
    place: dict[int, int] = {}
    while left:
        ready = [i for i, needed in left.items() if needed <= place.keys()]
        chosen = ready[int(rng.integers(len(ready)))]
        place[chosen] = len(place)
        del left[chosen]
    nodes = tuple(
        replace(
            graph[i],
            inputs=tuple(Value(place[v.node], v.index) for v in graph[i].inputs),
            name=f"n{rng.integers(1 << 30)}",
        )
        for i in place
    )
    outputs = tuple(Value(place[v.node], v.index) for v in graph.outputs)
    return Graph(nodes, tuple(place[i] for i in graph.inputs), outputs)


# Small graphs, because every baseline plans all of them; some are larger.
SEEDS, SHUFFLED_SEEDS = seeds(500), seeds(60)


def nodes_of(seed: int) -> int:
    return 40 if seed % 25 == 0 else 6 + seed % 16


@cache
def random_dag(seed: int) -> Graph:
    return canonical(random_graph(seed, nodes_of(seed), moves=ALL_MOVES))


@cache
def shuffled_dag(seed: int) -> Graph:
    return canonical(shuffled(random_graph(seed, nodes_of(seed), moves=ALL_MOVES), seed + 1))


@cache
def thousand_nodes() -> Graph:
    return canonical(random_graph(1, 1000))


@pytest.mark.parametrize("name", BASELINES)
def test_plans_of_random_graphs_are_valid(name: str) -> None:
    planner = BASELINES[name]
    for seed in SEEDS:
        graph = random_dag(seed)
        plan = planner(graph).plan
        check_plan(graph, plan)
        legal, _ = legalise(graph, plan)
        legality.check_plan(graph, legal)


@pytest.mark.parametrize("name", BASELINES)
def test_plans_do_not_depend_on_node_order_or_names(name: str) -> None:
    planner = BASELINES[name]
    for seed in SHUFFLED_SEEDS:
        first, again = planner(random_dag(seed)), planner(shuffled_dag(seed))
        assert again.plan == first.plan
        assert planner(random_dag(seed)) == first


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
