"""Slices: large graphs are cut where they repeat, equal slices are planned once, and the plans of
slices are a plan of the graph."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse import trace, xp
from autofuse.cost.bounds import usual_peaks
from autofuse.devices import device_named
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.enumerate.slices import slices, window_of
from autofuse.enumerate.structure import Structures
from autofuse.enumerate.supernodes import supernodes_of
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate
from autofuse.graph.types import Graph
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import FusionPlan
from autofuse.simplify import normal_form
from autofuse.tuning.plans import EXPECTED, baseline_plan, untuned_candidate
from autofuse.tuning.serve import untuned
from autofuse.zoo.networks import transformer
from benchmarks.planning import mixed
from tests.support.random_graphs import ALL_MOVES, random_graph

PEAKS = usual_peaks(2)
CPU = device_named("cpu")
LIMIT = 60
GRAPHS = {
    "random": lambda: canonical(random_graph(5, 150, moves=ALL_MOVES)),
    "mixed": lambda: canonical(mixed(150)),
    "transformer": lambda: normal_form(transformer(6, 16, 16, 2)),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_slices_are_all_of_a_graph_in_order_and_keep_to_the_limit(name: str) -> None:
    graph = GRAPHS[name]()
    supernodes = supernodes_of(graph)
    found = slices(supernodes, Structures(graph), LIMIT)
    assert found[0].first == 0 and found[-1].last == len(supernodes.items) and len(found) > 1
    assert all(before.last == after.first for before, after in pairwise(found))
    produced: set[Any] = set()
    for part in found:
        assert part.nodes == supernodes.nodes((1 << part.last) - (1 << part.first))
        own = sum(len(one.own) for one in supernodes.items[part.first : part.last])
        assert own <= LIMIT or part.last == part.first + 1
        assert set(window_of(supernodes, part).given) <= produced
        produced |= set(part.produced)
    assert produced.issuperset(graph.outputs)


def test_layers_of_a_network_are_the_same_slice_however_many_there_are() -> None:
    distinct = []
    for layers in (8, 24):
        graph = normal_form(transformer(layers, 16, 16, 2))
        shapes = Structures(graph)
        found = slices(supernodes_of(graph), shapes, LIMIT)
        for part in found:
            model = found[part.like]
            assert shapes.key(part.nodes, part.produced) == shapes.key(model.nodes, model.produced)
        distinct.append(len({part.like for part in found}))
    assert distinct[0] == distinct[1] <= 3


def test_a_slice_is_told_from_one_that_reads_constants() -> None:
    """What constants alone decide runs once, so it is planned otherwise."""

    def layers(*weights: Any) -> dict[str, Any]:
        x = weights[-1]
        for w in weights[:-1]:
            x = autofuse.xp.tanh(x @ autofuse.xp.exp(w))
        return {"y": x}

    plain, fixed = spec((8, 8)), spec((8, 8), constant=True)
    graph = normal_form(autofuse.trace(layers, *[plain] * 4, *[fixed] * 4, plain))
    found = slices(supernodes_of(graph), Structures(graph), 6)
    kinds = {part.like for part in found}
    assert len(found) >= 4 and 1 < len(kinds) < len(found)


def test_some_supernodes_alone_are_planned_as_a_graph_that_reads_the_others() -> None:
    graph = GRAPHS["transformer"]()
    supernodes = supernodes_of(graph)
    for number, part in enumerate(slices(supernodes, Structures(graph), LIMIT)):
        if part.like != number:  # planned as the other is
            continue
        some = supernodes.between(part.first, part.last)
        assert [one.own for one in some.items] == [
            one.own for one in supernodes.items[part.first : part.last]
        ]
        made = {e.value for one in some.items for e in one.exports if e.is_output}
        assert made == set(part.produced)
        inside = set(part.nodes)
        groups = enumerate_groups(graph, supernodes=some).groups
        assert len(groups) >= len(some.items)
        assert all(inside.issuperset(group.nodes) for group in groups)


@pytest.mark.parametrize("seed", range(6))
def test_plans_of_slices_are_a_plan_that_is_no_worse_than_those_of_rules(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untuned, "WHOLE_NODES", 20)
    monkeypatch.setattr(untuned, "SLICE_NODES", 20)
    graph = normal_form(random_graph(seed, 80, moves=ALL_MOVES))
    ruled, *others = (baseline_plan(graph, name)[0] for name in ("unfused", "tvm", "nnc"))
    found = untuned.expected_plan(graph, ruled, others, CPU.space, PEAKS)
    check_plan(graph, found)
    again = untuned.expected_plan(graph, ruled, others, CPU.space, PEAKS)
    assert found == again
    assert _expected(graph, found) <= min(_expected(graph, plan) for plan in (ruled, *others))


def _expected(graph: Graph, plan: FusionPlan) -> float:
    return untuned.plan_expected_us(graph, plan, CPU.space, PEAKS)


def test_a_large_program_is_planned_layer_by_layer_and_computes_what_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []

    def counted(*args: Any, **options: Any) -> Any:
        searched.append(len(options["supernodes"].items))
        return enumerate_groups(*args, **options)

    monkeypatch.setattr(untuned, "enumerate_groups", counted)
    graph = normal_form(transformer(24, 8, 16, 2))
    found = untuned_candidate(graph, CPU, PEAKS)
    assert found.origin == EXPECTED and len(searched) <= 3
    assert sum(searched) < len(supernodes_of(graph).items) / 4
    ruled = baseline_plan(graph, "xla-2022")[0]
    assert _expected(graph, found.plan) < 0.97 * _expected(graph, ruled)
    rng = np.random.default_rng(0)
    inputs = [0.1 * rng.standard_normal(t.shape).astype(np.float32) for t in graph.input_types]
    (y,) = autofuse.compile(graph, device="cpu", plan=found)(*inputs)
    (wanted,) = evaluate(graph, inputs)
    np.testing.assert_allclose(y, wanted, rtol=1e-3, atol=1e-4)


def test_where_a_slice_has_no_plan_one_of_those_that_were_given_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(untuned, "WHOLE_NODES", 20)
    monkeypatch.setattr(untuned, "least_groups", lambda *args, **options: None)
    graph = GRAPHS["transformer"]()
    ruled, fewer = (baseline_plan(graph, name)[0] for name in ("unfused", "inductor"))
    assert untuned.expected_plan(graph, ruled, [fewer], CPU.space, PEAKS) == fewer


def test_the_part_of_a_graph_has_no_kernel_of_nodes_of_another_part() -> None:
    """A product whose operand is moved elsewhere: what was moved there was taken into it, which no
    equal slice can follow."""

    def program(x: Any, w: Any) -> dict[str, Any]:
        moved = xp.tanh(x).T
        return {"a": moved + 1.0, "b": xp.exp(moved).sum(axis=0), "c": moved @ w}

    graph = canonical(trace(program, spec((6, 4)), spec((6, 5))))
    whole = supernodes_of(graph)
    product = next(k for k, one in enumerate(whole.items) if graph[one.own[0]].op == "dot_general")
    part = whole.between(product, product + 1)
    inside = set(part.nodes(1))
    assert any(len(g.nodes) > 1 for g in enumerate_groups(graph).groups if product_in(graph, g))
    assert all(inside.issuperset(g.nodes) for g in enumerate_groups(graph, supernodes=part).groups)


def product_in(graph: Graph, group: Any) -> bool:
    return any(graph[n].op == "dot_general" for n in group.nodes)


def test_loops_of_the_host_with_large_bodies_are_planned_by_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def program(x: Any) -> Any:
        def step(k: Any, state: Any) -> Any:
            for _ in range(6):
                state = xp.tanh(state @ state) + xp.cumulative_sum(state, axis=0)
            return state

        return xp.fori_loop(3, step, x)

    graph = canonical(trace(program, spec((4, 4))))
    ruled, _ = baseline_plan(graph, "unfused")
    assert any(group.body is not None for group in ruled.groups)
    assert not untuned.has_slices(graph, ruled)
    monkeypatch.setattr(untuned, "WHOLE_NODES", 8)
    assert untuned.has_slices(graph, ruled)
    found = untuned.expected_plan(graph, ruled, [], CPU.space, PEAKS)
    check_plan(graph, found)
