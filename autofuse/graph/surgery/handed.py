"""Arrays of constants leave the bodies of loops: a kernel reads an array from memory, and it is the
graph around a loop that has memory for it."""

from __future__ import annotations

from dataclasses import replace

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.source import is_scalar_constant
from autofuse.ops.spec import Family
from autofuse.ops.types import make_attrs


def constants_outside(graph: Graph) -> Graph:
    """`graph` with every constant of several elements (or none) in a loop's body handed to the loop
    as an invariant; the same graph where there is none."""
    changed = {i: made for i in _loops(graph) if (made := _handed(graph[i])) is not None}
    if not changed:
        return graph
    nodes: list[Node] = []
    place: list[int] = []
    for i, node in enumerate(graph.nodes):
        inputs = tuple(Value(place[v.node], v.index) for v in node.inputs)
        if i in changed:
            body, arrays = changed[i]
            inputs = (*inputs, *(Value(len(nodes) + k) for k in range(len(arrays))))
            nodes += arrays
            attrs = dict(node.attrs) | {"body": body}
            node = replace(node, attrs=make_attrs(attrs))
        place.append(len(nodes))
        nodes.append(replace(node, inputs=inputs))
    return Graph(
        tuple(nodes), tuple(place[i] for i in graph.inputs),
        tuple(Value(place[v.node], v.index) for v in graph.outputs), graph.output_names,
    )  # fmt: skip


def _loops(graph: Graph) -> list[int]:
    return [i for i, node in enumerate(graph.nodes) if node.spec.family is Family.CONTROL]


def _handed(loop: Node) -> tuple[Graph, list[Node]] | None:
    """The body of a loop that takes its arrays of constants as further inputs, and these arrays;
    None where it has none."""
    old: Graph = dict(loop.attrs)["body"]
    body = constants_outside(old)
    found = [i for i, node in enumerate(body.nodes) if _is_array(node)]
    if not found:
        return None if body is old else (body, [])
    nodes = list(body.nodes)
    for k, i in enumerate(found):
        type_ = nodes[i].types[0]
        attrs = {"position": len(body.inputs) + k, "shape": type_.shape, "dtype": str(type_.dtype)}
        nodes[i] = Node("input", (), make_attrs(attrs), (type_,), f"constant_{i}")
    handed = Graph(tuple(nodes), (*body.inputs, *found), body.outputs, body.output_names)
    return handed, [body[i] for i in found]


def _is_array(node: Node) -> bool:
    return node.op == "constant" and not is_scalar_constant(node.op, node.types)
