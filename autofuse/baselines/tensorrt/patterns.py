"""Patterns over graphs: trees of ops with names for what must be the same node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from autofuse.graph.types import Graph, Node
from autofuse.plan.fusion.partition import is_rematerialisable

_COMMUTES = frozenset(("add", "mul", "max", "min"))


@dataclass(frozen=True, slots=True)
class Any:
    """Any node; the same one wherever the name occurs."""

    name: str


@dataclass(frozen=True, slots=True)
class Scalar:
    """A literal spread over a shape, or a literal."""


@dataclass(frozen=True, slots=True)
class Op:
    """An op of the given operands, in either order where it commutes; `name` as for Any."""

    op: str
    operands: tuple[FusionPattern, ...]
    name: str = ""


FusionPattern = Any | Scalar | Op
Bound = Mapping[str, int]


def op(name: str, *operands: FusionPattern) -> Op:
    return Op(name, operands)


def named(name: str, pattern: Op) -> Op:
    return Op(pattern.op, pattern.operands, name)


def spread(pattern: FusionPattern) -> Op:
    """A broadcast of what matches."""
    return Op("broadcast", (pattern,))


def matches(graph: Graph, node: int, pattern: FusionPattern) -> frozenset[int] | None:
    """The nodes of the first match rooted at `node`, without what Any and Scalar stand for."""
    found = next(_match(graph, node, pattern, {}), None)
    return None if found is None else found[0]


def _match(
    graph: Graph, node: int, pattern: FusionPattern, bound: Bound
) -> Iterator[tuple[frozenset[int], Bound]]:
    if isinstance(pattern, Scalar):
        if _is_scalar(graph, node):
            yield frozenset(), bound
        return
    if bound.get(pattern.name, node) != node:
        return
    bound = {**bound, pattern.name: node} if pattern.name else bound
    if isinstance(pattern, Any):
        yield frozenset(), bound
        return
    found = graph[node]
    if found.op != pattern.op or len(found.inputs) != len(pattern.operands):
        return
    for order in _orders(found):
        for inner, names in _match_all(graph, order, pattern.operands, bound):
            yield inner | {node}, names


def _is_scalar(graph: Graph, node: int) -> bool:
    return is_rematerialisable(graph, node) or graph[node].op == "constant"


def _orders(node: Node) -> list[list[int]]:
    operands = [v.node for v in node.inputs]
    return [operands, operands[::-1]] if node.op in _COMMUTES else [operands]


def _match_all(
    graph: Graph, nodes: list[int], wanted: tuple[FusionPattern, ...], bound: Bound
) -> Iterator[tuple[frozenset[int], Bound]]:
    if not nodes:
        yield frozenset(), bound
        return
    for first, names in _match(graph, nodes[0], wanted[0], bound):
        for rest, more in _match_all(graph, nodes[1:], wanted[1:], names):
            yield first | rest, more
