"""Parts of one graph in another one that is being written."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter


def copies(
    w: GraphWriter, graph: Graph, values: tuple[Value, ...], given: dict[int, Value]
) -> list[Value]:
    """`values` of a graph with everything before them, as far as it is not `given`. Inputs are
    called by their positions."""
    needed = {v.node for v in values} - given.keys()
    for n in reversed(range(len(graph.nodes))):
        if n in needed:
            needed |= {v.node for v in graph[n].inputs} - given.keys()
    made: dict[int, tuple[Value, ...]] = {n: (value,) for n, value in given.items()}
    positions = {n: p for p, n in enumerate(graph.inputs)}
    for n in sorted(needed):
        node = graph[n]
        if n in positions:
            given[n] = w.input(str(positions[n]), node.types[0].shape, node.types[0].dtype)
            made[n] = (given[n],)
        else:
            operands = (made[v.node][v.index] for v in node.inputs)
            made[n] = w.op_many(node.op, *operands, **dict(node.attrs))
    return [made[v.node][v.index] for v in values]
