"""Graphs and plans as networkx graphs: what its algorithms say of them, and what files hold."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from autofuse.baselines import BASELINES
from autofuse.errors import AutofuseError
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.plan.networks import plan_to_networkx, to_networkx, write_network
from autofuse.zoo import zoo_graph
from tests.support.cli_tools import call, toy_file

WORKLOADS = ("softmax", "transformer_block", "cartpole_naive", "kepler")


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_graph_is_a_dag_in_order_and_edges_are_its_operands(workload: str) -> None:
    graph = zoo_graph(workload, "small")
    found = to_networkx(graph)
    assert networkx.is_directed_acyclic_graph(found)
    assert all(one < other for one, other in found.edges())
    assert found.number_of_edges() == sum(len(n.inputs) for n in graph.nodes)
    assert found.nodes[graph.inputs[0]]["op"] == "input"


@pytest.mark.parametrize("rule", BASELINES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_groups_of_rules_make_a_dag_in_the_order_they_run(workload: str, rule: str) -> None:
    graph = zoo_graph(workload, "small")
    plan = BASELINES[rule](graph).plan
    groups = plan_to_networkx(graph, plan)
    assert list(groups) == list(range(len(plan.groups)))
    assert networkx.is_directed_acyclic_graph(groups)
    assert all(one < other for one, other in groups.edges())
    written = sum(group["writes"] for _, group in groups.nodes(data=True))
    assert written >= sum(graph.type_of(v).nbytes for v in graph.outputs)


def alike(x: Array, y: Array) -> Array:
    return xp.exp(x * 2.0) + xp.exp(y * 2.0)


def test_groups_of_one_digest_are_isomorphic_and_others_are_not() -> None:
    graph = trace(alike, spec(8), spec(8))
    network = to_networkx(graph)
    chains: dict[str, list[networkx.MultiDiGraph[int]]] = {}
    for end in (i for i, n in enumerate(graph.nodes) if n.op in ("exp", "mul")):
        nodes = (end, *(v.node for v in graph[end].inputs if graph[v.node].op == "mul"))
        key = group_digest(graph, sorted(nodes), _outputs(graph, end))
        chains.setdefault(key, []).append(network.subgraph(nodes))
    assert sorted(map(len, chains.values())) == [2, 2]

    def isomorphic(one: networkx.MultiDiGraph[int], other: networkx.MultiDiGraph[int]) -> bool:
        same = networkx.algorithms.isomorphism.categorical_node_match("op", "")
        return bool(networkx.is_isomorphic(one, other, node_match=same))

    (a, b), (c, d) = chains.values()
    assert isomorphic(a, b) and isomorphic(c, d) and not isomorphic(a, c)


def _outputs(graph: Graph, node: int) -> tuple:
    return tuple(v for n in graph.nodes for v in n.inputs if v.node == node)[:1]


def test_files_are_read_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, path = toy_file(tmp_path), tmp_path / "plan.graphml"
    done = call(capsys, "show", source, "--plan", "unfused", "--network", path)
    assert done.code == 0 and str(path) in done.err
    read = networkx.read_graphml(path)
    assert {facts["op"] for _, facts in read.nodes(data=True)} >= {"input", "reduce_max"}
    assert any(facts["groups"] for _, facts in read.nodes(data=True))
    refused = call(capsys, "show", source, "--plan", "unfused", "--network", tmp_path / "a.txt")
    assert refused.code == 2 and ".graphml, .dot" in refused.err


def test_dot_has_groups_as_clusters_and_names_are_quoted(tmp_path: Path) -> None:
    def named(x: Array) -> dict[str, Array]:
        return {"y": xp.exp(x) + 1.0}

    graph = trace(named, spec(8))
    node = graph.nodes[graph.inputs[0]]
    object.__setattr__(node, "name", 'a "quoted\\\n name')
    plan = BASELINES["unfused"](graph).plan
    write_network(graph, plan, tmp_path / "g.dot")
    text = (tmp_path / "g.dot").read_text()
    assert text.count("subgraph cluster_") == len(plan.groups)
    assert r"input a \"quoted\\\n name" in text
    assert text.count(" -> ") == sum(len(n.inputs) for n in graph.nodes)
    with pytest.raises(AutofuseError, match="none of the suffixes"):
        write_network(graph, plan, tmp_path / "g")
