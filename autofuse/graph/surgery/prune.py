"""Removes nodes that nothing needs."""

from __future__ import annotations

from autofuse.graph.types import Graph, Node, Value


def prune(graph: Graph) -> Graph:
    """`graph` without nodes that no output depends on; inputs stay, so positions keep."""
    needed = set(graph.inputs)
    stack = [value.node for value in graph.outputs]
    while stack:
        at = stack.pop()
        if at not in needed:
            needed.add(at)
            stack += [value.node for value in graph[at].inputs]
    order = sorted(needed)
    moved = {old: new for new, old in enumerate(order)}

    def renumber(values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple(Value(moved[v.node], v.index) for v in values)

    nodes = tuple(
        Node(n.op, renumber(n.inputs), n.attrs, n.types, n.name) for n in (graph[i] for i in order)
    )
    inputs = tuple(moved[i] for i in graph.inputs)
    return Graph(nodes, inputs, renumber(graph.outputs), graph.output_names)
