"""Parts of one graph, or all of it, in another one that is being written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.types import GraphError
from autofuse.order import closure


def embedded(w: GraphWriter, graph: Graph, inputs: Sequence[Value]) -> tuple[Value, ...]:
    """The outputs of `graph` where its inputs are these values of `w`, in order.

    Raises GraphError where a value has another type than the input that it stands for."""
    types = tuple(map(w.type_of, inputs))
    if types != graph.input_types:
        wanted, given = (", ".join(map(str, t)) for t in (graph.input_types, types))
        raise GraphError(f"the graph takes {wanted or 'nothing'}, not {given or 'nothing'}")
    return tuple(copies(w, graph, graph.outputs, dict(zip(graph.inputs, inputs, strict=True))))


def copies(
    w: GraphWriter, graph: Graph, values: Sequence[Value], given: dict[int, Value]
) -> list[Value]:
    """`values` of a graph with everything before them, as far as it is not `given`. Inputs that are
    not become inputs of `w`, called by their positions, and are added to what is given."""

    def near(n: int) -> Iterator[int]:
        return (v.node for v in graph[n].inputs if v.node not in given)

    needed = closure((v.node for v in values if v.node not in given), near)
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
