"""What of a graph is known before any call: its constants, and what is computed from them alone."""

from __future__ import annotations

from functools import lru_cache

from autofuse.graph.types import Graph, Node
from autofuse.ops.spec import Family


def constant_inputs(graph: Graph) -> tuple[int, ...]:
    """The positions of inputs that are declared constant, ascending."""
    pairs = enumerate(graph.inputs)
    return tuple(p for p, node in pairs if dict(graph[node].attrs).get("constant", False))


@lru_cache(maxsize=256)
def settled(graph: Graph) -> frozenset[int]:
    """Nodes whose values no call changes: constant inputs, literals, and what is computed from
    these alone and draws no random numbers. Empty where no input is declared constant."""
    given = {graph.inputs[p] for p in constant_inputs(graph)}
    if not given:
        return frozenset()
    others = set(graph.inputs) - given
    found: set[int] = set()
    for n, node in enumerate(graph.nodes):
        if n not in others and all(v.node in found for v in node.inputs) and not _draws(node):
            found.add(n)
    return frozenset(found)


def _draws(node: Node) -> bool:
    """Whether a node draws random numbers, in a loop's body too."""
    bodies = (value for _, value in node.attrs if isinstance(value, Graph))
    inner = (n for body in bodies for n in body.nodes)
    return node.spec.family is Family.RANDOM or any(map(_draws, inner))
