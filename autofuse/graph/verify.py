"""Checks that a graph is what its type promises: order, references, types, inputs, outputs."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.graph.types import Graph, Node, Value
from autofuse.ops import spec
from autofuse.ops.types import GraphError, TensorType


def describe(index: int, op: str, name: str = "") -> str:
    """A node as error messages call it: node 7 'probs' (add)."""
    return f"node {index} '{name}' ({op})" if name else f"node {index} ({op})"


def infer_node(
    index: int, node: Node, known: Sequence[tuple[TensorType, ...]]
) -> tuple[TensorType, ...]:
    """Output types of a node that reads only nodes before it; raises GraphError naming it.

    `known` holds the output types of nodes 0 .. index-1.
    """
    where = describe(index, node.op, node.name)
    for value in node.inputs:
        _check_value(value, known, where)
    operands = tuple(known[v.node][v.index] for v in node.inputs)
    try:
        return spec.infer(node.op, operands, node.attrs)
    except GraphError as error:
        raise GraphError(f"{where}: {error}") from error


def _check_value(value: Value, known: Sequence[tuple[TensorType, ...]], where: str) -> None:
    if not 0 <= value.node < len(known):
        raise GraphError(f"{where} reads {value}, which is not a node before it")
    if not 0 <= value.index < len(known[value.node]):
        raise GraphError(f"{where} reads {value}, but that node has {len(known[value.node])}")


def verify(graph: Graph) -> Graph:
    """The graph itself when it is well formed; raises GraphError naming the node at fault.

    Re-infers every type, and checks that nodes read only earlier nodes, that outputs exist, that
    inputs are listed by position and every loop body is well formed too.
    """
    known: list[tuple[TensorType, ...]] = []
    for index, node in enumerate(graph.nodes):
        where = describe(index, node.op, node.name)
        _verify_bodies(node, where)
        types = infer_node(index, node, known)
        if types != node.types:
            said, found = (", ".join(map(str, t)) for t in (node.types, types))
            raise GraphError(f"{where} is declared {said}, but computes {found}")
        known.append(types)
    _verify_inputs(graph)
    if not graph.outputs:
        raise GraphError("the graph has no outputs")
    for position, value in enumerate(graph.outputs):
        _check_value(value, known, f"output {position}")
    if graph.output_names and len(graph.output_names) != len(graph.outputs):
        raise GraphError(f"{len(graph.output_names)} output names for {len(graph.outputs)} outputs")
    return graph


def _verify_bodies(node: Node, where: str) -> None:
    for _, value in node.attrs:
        if isinstance(value, Graph):
            try:
                verify(value)
            except GraphError as error:
                raise GraphError(f"{where}, loop body: {error}") from error


def _verify_inputs(graph: Graph) -> None:
    listed = tuple(i for i, node in enumerate(graph.nodes) if node.op == "input")
    if sorted(graph.inputs) != list(listed):
        raise GraphError(f"inputs are listed as {graph.inputs}, but input nodes are {listed}")
    for position, i in enumerate(graph.inputs):
        said = dict(graph.nodes[i].attrs)["position"]
        if said != position:
            where = describe(i, "input", graph.nodes[i].name)
            raise GraphError(f"{where} has position {said}, but is listed at {position}")
