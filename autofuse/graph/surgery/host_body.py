"""`host_body`: what a host loop issues again for each iteration."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Node, Value
from autofuse.ops.types import OpCall, TensorType, make_attrs


def host_body(call: OpCall) -> Graph:
    """The body of a loop as the host runs it for all places together, in canonical form where it is
    not the body itself. Where the places of a `while` end alone, it keeps the states of those that
    have ended: new flag = go and go', new state = select(go, state', state)."""
    body: Graph = call["body"]
    alone = "max_trips" in dict(call.attrs) and call.ins[0].shape
    return _kept(body, call["carries"]) if alone else body


@lru_cache(maxsize=256)
def _kept(body: Graph, carries: int) -> Graph:
    nodes = list(body.nodes)
    go, *states = (Value(i) for i in body.inputs[1 : 1 + carries])
    flags = body.type_of(go)

    def add(op: str, kind: TensorType, *operands: Value, **attrs: object) -> Value:
        nodes.append(Node(op, operands, make_attrs(attrs), (kind,)))
        return Value(len(nodes) - 1)

    outputs = [add("and", flags, go, body.outputs[0])]
    dims = tuple(range(len(flags.shape)))
    for old, new in zip(states, body.outputs[1:], strict=True):
        kind = body.type_of(old)
        mask = go
        if kind.shape != flags.shape:
            spread = TensorType(kind.shape, flags.dtype)
            mask = add("broadcast", spread, go, shape=kind.shape, dims=dims)
        outputs.append(add("select", kind, mask, new, old))
    return canonical(Graph(tuple(nodes), body.inputs, tuple(outputs)))
