"""`unrolled_body` makes one body of several iterations of a counted loop."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.control import COUNTER
from autofuse.ops.types import GraphError, Literal, make_attrs


@lru_cache(maxsize=256)
def unrolled_body(body: Graph, carries: int, factor: int) -> Graph:
    """`factor` copies of a loop body chained, in canonical form; for 1 the body itself.

    Inputs as those of the body: the iteration counter t (i32), `carries` states, invariants. Copy i
    runs iteration factor * t + i on the states that copy i - 1 left. Outputs: the states after the
    last copy, then for each value to be stacked its rows of copy 0, copy 1, ... Raises GraphError
    for a factor below 1."""
    if factor < 1:
        raise GraphError(f"a loop body cannot be unrolled by {factor}")
    if factor == 1:
        return body
    nodes = [body[i] for i in body.inputs]
    inputs = tuple(Value(i) for i in range(len(nodes)))
    states = inputs[1 : 1 + carries]
    rows: list[tuple[Value, ...]] = []
    for copy in range(factor):
        counter = _counter(nodes, factor, copy)
        operands = (counter, *states, *inputs[1 + carries :])
        results = _append(nodes, body, operands)
        states = results[:carries]
        rows.append(results[carries:])
    stacks = tuple(value for stack in zip(*rows, strict=True) for value in stack)
    return canonical(Graph(tuple(nodes), tuple(range(len(inputs))), (*states, *stacks)))


def _counter(nodes: list[Node], factor: int, copy: int) -> Value:
    """The iteration of a copy, counted in iterations of the loop; equal nodes are merged later."""

    def add(op: str, *operands: Value, **attrs: Literal) -> Value:
        nodes.append(Node(op, operands, make_attrs(attrs), (COUNTER,)))
        return Value(len(nodes) - 1)

    def number(value: int) -> Value:
        data = value.to_bytes(COUNTER.nbytes, "little")
        return add("constant", value=Literal(COUNTER, data))

    first = add("mul", Value(0), number(factor))
    return add("add", first, number(copy)) if copy else first


def _append(nodes: list[Node], body: Graph, operands: tuple[Value, ...]) -> tuple[Value, ...]:
    """One copy of the body after `nodes`; the values of its outputs."""
    renamed = dict(zip(body.inputs, (v.node for v in operands), strict=True))
    indices = dict(zip(body.inputs, (v.index for v in operands), strict=True))

    def found(value: Value) -> Value:
        return Value(renamed[value.node], indices.get(value.node, value.index))

    for i, node in enumerate(body.nodes):
        if i not in renamed:
            renamed[i] = len(nodes)
            nodes.append(replace(node, inputs=tuple(map(found, node.inputs))))
    return tuple(map(found, body.outputs))
