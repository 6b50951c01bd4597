"""Results that are only reshaped: row-major arrays lie in memory as they did before, so a kernel
may write what was reshaped, whose axes its products and reductions have."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Motion


def before_reshapes(graph: Graph, value: Value, nodes: frozenset[int]) -> Value:
    """What a value of a group was before its last reshapes, as far as the group computes it."""
    node = graph[value.node]
    while node.spec.motion is Motion.RESHAPE and node.inputs[0].node in nodes:
        value = node.inputs[0]
        node = graph[value.node]
    return value


def without_reshapes(
    graph: Graph, nodes: tuple[int, ...], outputs: tuple[Value, ...]
) -> tuple[tuple[int, ...], tuple[Value, ...]] | None:
    """A group that writes the same memory without reshaping its results; None where it reshapes
    none, or two of them would be one."""
    inside = frozenset(nodes)
    found = tuple(before_reshapes(graph, v, inside) for v in outputs)
    if found == outputs or len(set(found)) < len(found):
        return None
    needed = {v.node for v in found}
    for n in reversed(nodes):
        if n in needed:
            needed.update(v.node for v in graph[n].inputs)
    return tuple(n for n in nodes if n in needed), found
