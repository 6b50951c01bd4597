"""`embedded` writes one graph into another."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.types import GraphError


def embedded(w: GraphWriter, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of `graph` where its inputs are these values of `w`, in order.

    Raises GraphError where a value has another type than the input that it stands for."""
    types = tuple(map(w.type_of, inputs))
    if types != graph.input_types:
        wanted, given = (", ".join(map(str, t)) for t in (graph.input_types, types))
        raise GraphError(f"the graph takes {wanted or 'nothing'}, not {given or 'nothing'}")
    made: dict[int, tuple[Value, ...]] = {
        node: (value,) for node, value in zip(graph.inputs, inputs, strict=True)
    }
    for i, node in enumerate(graph.nodes):
        if i not in made:
            operands = (made[v.node][v.index] for v in node.inputs)
            made[i] = w.op_many(node.op, *operands, **dict(node.attrs))
    return tuple(made[v.node][v.index] for v in graph.outputs)
