"""Graphs and plans as networkx graphs, and as files that other tools draw and analyse.

Attributes are text and whole numbers only, so that every format of networkx can hold them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autofuse.errors import AutofuseError
from autofuse.graph.canonical import node_text
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.types import FusionPlan

if TYPE_CHECKING:
    from networkx import DiGraph, MultiDiGraph


def to_networkx(graph: Graph, plan: FusionPlan | None = None) -> MultiDiGraph[int]:
    """The nodes of `graph` by number, and an edge for each operand, keyed by its position.

    Nodes have `op`, `name`, `text` (their canonical line), `type` and `bytes` of all results, and
    with a `plan` `groups`, the numbers of the groups that compute them (several, by spaces, where
    they are computed again; none for what is in memory before). Edges have `output` (which result
    is read), `type` and `bytes`. `graph.graph` has `inputs` and `outputs`, values by spaces."""
    import networkx

    found: MultiDiGraph[int] = networkx.MultiDiGraph(
        inputs=" ".join(f"%{i}" for i in graph.inputs),
        outputs=" ".join(map(str, graph.outputs)),
    )
    owners: dict[int, list[str]] = {}
    for number, group in enumerate(() if plan is None else plan.groups):
        for i in group.nodes:
            owners.setdefault(i, []).append(str(number))
    for i, node in enumerate(graph.nodes):
        facts: dict[str, Any] = {
            "op": node.op,
            "name": node.name,
            "text": node_text(i, node),
            "type": ", ".join(map(str, node.types)),
            "bytes": sum(t.nbytes for t in node.types),
        }
        if plan is not None:
            facts["groups"] = " ".join(owners.get(i, ()))
        found.add_node(i, **facts)
        for position, value in enumerate(node.inputs):
            found.add_edge(value.node, i, key=position, **_carried(graph, value))
    return found


def _nbytes(graph: Graph, values: Iterable[Value]) -> int:
    return sum(graph.type_of(v).nbytes for v in values)


def plan_to_networkx(graph: Graph, plan: FusionPlan) -> DiGraph[int]:
    """The groups of `plan` by number, in the order they run, and an edge from a group to another
    that reads what it writes.

    Groups have `ops` and `nodes` (by spaces), `reads` and `writes` in bytes, edges `values` (by
    spaces) and `bytes`. Where several groups write a value, the first one of them is the edge's."""
    import networkx

    found: DiGraph[int] = networkx.DiGraph()
    writers: dict[Value, int] = {}
    for number, group in enumerate(plan.groups):
        given = reads(graph, group.nodes)
        found.add_node(
            number,
            ops=" ".join(graph[i].op for i in group.nodes),
            nodes=" ".join(map(str, group.nodes)),
            reads=_nbytes(graph, given),
            writes=_nbytes(graph, group.outputs),
        )
        links: dict[int, list[Value]] = {}
        for value in given:
            if not is_source(graph, value.node) and value in writers:
                links.setdefault(writers[value], []).append(value)
        for writer, values in links.items():
            told, carried = " ".join(map(str, values)), _nbytes(graph, values)
            found.add_edge(writer, number, values=told, bytes=carried)
        for value in group.outputs:
            writers.setdefault(value, number)
    return found


def _carried(graph: Graph, value: Value) -> dict[str, Any]:
    type_ = graph.type_of(value)
    return {"output": value.index, "type": str(type_), "bytes": type_.nbytes}


def write_network(graph: Graph, plan: FusionPlan, path: str | os.PathLike[str]) -> None:
    """Write graph and plan to a file: GraphML for `.graphml`, DOT for `.dot`, where groups are
    clusters. Raises AutofuseError for another suffix, OSError."""
    writer = FORMATS.get(Path(path).suffix)
    if writer is None:
        raise AutofuseError(f"{path} has none of the suffixes {', '.join(FORMATS)}")
    Path(path).write_text(writer(graph, plan), encoding="utf-8", newline="\n")


def _graphml(graph: Graph, plan: FusionPlan) -> str:
    import networkx

    return "\n".join(networkx.generate_graphml(to_networkx(graph, plan))) + "\n"


def _dot(graph: Graph, plan: FusionPlan) -> str:
    return "\n".join(_dot_lines(graph, plan)) + "\n"


def _dot_lines(graph: Graph, plan: FusionPlan) -> Iterator[str]:
    """A node that several groups compute is drawn in the first of them."""
    network = to_networkx(graph, plan)
    yield "digraph {"
    yield "  node [shape=box];"
    inside: dict[str, list[int]] = {}
    for node, groups in network.nodes(data="groups"):
        inside.setdefault(groups.partition(" ")[0], []).append(node)
    for group, nodes in inside.items():
        lines = [f"{n} [label={_quoted(_label(network.nodes[n]))}];" for n in nodes]
        if not group:
            yield from (f"  {line}" for line in lines)
            continue
        yield f'  subgraph cluster_{group} {{ label="group {group}";'
        yield from (f"    {line}" for line in lines)
        yield "  }"
    for one, other, type_ in network.edges(data="type"):
        yield f"  {one} -> {other} [label={_quoted(type_)}];"
    yield "}"


def _label(facts: dict[str, Any]) -> str:
    return f"{facts['op']} {facts['name']}".strip()


def _quoted(text: str) -> str:
    """A string of the DOT language, whatever the text holds."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


FORMATS: dict[str, Callable[[Graph, FusionPlan], str]] = {".graphml": _graphml, ".dot": _dot}
