"""Removes nodes that nothing needs."""

from __future__ import annotations

from autofuse.graph.types import Graph, Node, Value
from autofuse.order import closure


def prune(graph: Graph) -> Graph:
    """`graph` without nodes that no output depends on; inputs stay, so positions keep."""
    ends = (*graph.inputs, *(value.node for value in graph.outputs))
    order = sorted(closure(ends, lambda n: (value.node for value in graph[n].inputs)))
    moved = {old: new for new, old in enumerate(order)}

    def renumber(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(Value(moved[v.node], v.index) for v in values)

    nodes = tuple(
        Node(n.op, renumber(n.inputs), n.attrs, n.types, n.name) for n in (graph[i] for i in order)
    )
    inputs = tuple(moved[i] for i in graph.inputs)
    return Graph(nodes, inputs, renumber(graph.outputs), graph.output_names)
