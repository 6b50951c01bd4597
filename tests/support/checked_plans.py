"""What every plan must be: see `check_plan`."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from autofuse.baselines.base import Baseline
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion import legality
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.types import FusionPlan
from tests.support.random_graphs import ALL_MOVES, random_graph
from tests.support.seeds import seeds


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


def check_plans_of_random_graphs(planner: Baseline) -> None:
    """Plans are valid, and legal once they are made so."""
    for seed in SEEDS:
        graph = random_dag(seed)
        plan = planner(graph).plan
        check_plan(graph, plan)
        legal, _ = legalise(graph, plan)
        legality.check_plan(graph, legal)


def check_plans_of_shuffled_graphs(planner: Baseline) -> None:
    """Plans do not depend on the order or the names of nodes."""
    for seed in SHUFFLED_SEEDS:
        first, again = planner(random_dag(seed)), planner(shuffled_dag(seed))
        assert again.plan == first.plan
        assert planner(random_dag(seed)) == first
