"""How much of what is put in order must be read: a place in the order follows from all elements
that it is an order of."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.graph.types import Graph
from autofuse.ops.spec import Motion


def ordered_elements(graph: Graph, node: int, made: int, is_whole: Callable[[int], bool]) -> int:
    """Elements of its operand that a node of the family SORT needs at least where `made` of its own
    are; `is_whole` says of a reader whether all of its elements are made. A slice of every order
    (the k largest of each row) needs all of every row."""
    shape, axis = graph[node].types[0].shape, int(graph.call(node)["axis"])
    extent, size = max(1, shape[axis]), graph[node].types[0].size
    for reader in graph.users[node]:
        cut = graph[reader].spec.motion is Motion.CUT and len(graph[reader].inputs) == 1
        if cut and is_whole(reader):
            kept = graph[reader].types[0].shape
            if kept[:axis] + kept[axis + 1 :] == shape[:axis] + shape[axis + 1 :]:
                return size
    return min(size, -(-made // extent) * extent)
