"""The traffic model: bytes each kernel moves and arithmetic it does, from the plan alone.

A kernel reads a value from memory once, however often it uses it, and of a value that it only
slices or gathers from no more elements than it takes; of one that it updates it writes the window.
Copies of loop states are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import host_loop, reads
from autofuse.plan.fusion.overwriting import stored
from autofuse.plan.program.binding import groups_of_calls
from autofuse.plan.types import FusionGroup, FusionPlan

# Families whose every output element reads at most one element of each operand.
_PER_ELEMENT = (Family.ELEMENTWISE, Family.MOVEMENT, Family.RANDOM)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes read from and written to memory, and arithmetic operations, per call of the plan."""

    read_bytes: int
    written_bytes: int
    flops: float

    @property
    def bytes(self) -> int:
        return self.read_bytes + self.written_bytes

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(
            self.read_bytes + other.read_bytes,
            self.written_bytes + other.written_bytes,
            self.flops + other.flops,
        )

    def __mul__(self, times: int) -> Traffic:
        return Traffic(self.read_bytes * times, self.written_bytes * times, self.flops * times)


def group_traffic(graph: Graph, group: FusionGroup) -> Traffic:
    """What one call of the plan spends in `group`; a host loop counts every iteration."""
    if group.body is not None:
        body, trips = host_loop(graph, group)
        return plan_traffic(body, group.body) * trips
    read = sum(read_bytes(graph, group).values())
    written = sum(written_bytes(graph, group, value) for value in group.outputs)
    flops = sum(graph[n].spec.flops(graph.call(n)) for n in group.nodes)
    return Traffic(read, written, float(flops))


def plan_traffic(graph: Graph, plan: FusionPlan) -> Traffic:
    """The traffic of all groups that run in a call; recomputed nodes count in every group that
    computes them."""
    return total(group_traffic(graph, group) for group in groups_of_calls(graph, plan))


def total(parts: Iterable[Traffic]) -> Traffic:
    return sum(parts, Traffic(0, 0, 0.0))


def written_bytes(graph: Graph, group: FusionGroup, value: Value) -> int:
    """Bytes the kernel of `group` writes of one of its outputs."""
    return graph.type_of(stored(graph, group.nodes, value)).nbytes


def read_bytes(graph: Graph, group: FusionGroup) -> dict[Value, int]:
    """Bytes the kernel of `group` reads of each value it reads from memory, ascending by value."""
    made = [stored(graph, group.nodes, value) for value in group.outputs]
    counts = _needed(graph, frozenset(group.nodes), made)
    return {
        value: counts.get(value, 0) * graph.type_of(value).dtype.itemsize
        for value in reads(graph, group.nodes)
    }


def _needed(graph: Graph, inside: Collection[int], outputs: Iterable[Value]) -> dict[Value, int]:
    """An upper bound of how many elements of each value are needed to make `outputs`."""
    counts = {value: graph.type_of(value).size for value in outputs}
    for node in sorted(inside, reverse=True):
        made = [counts.get(Value(node, k), 0) for k in range(len(graph[node].types))]
        for value in dict.fromkeys(graph[node].inputs):
            size = graph.type_of(value).size
            more = _demand(graph, node, size, max(made))
            counts[value] = min(size, counts.get(value, 0) + more)
    return counts


def _demand(graph: Graph, node: int, size: int, made: int) -> int:
    """Elements of an operand of `size` elements that `made` elements of a node's output take."""
    if not made:
        return 0
    family = graph[node].spec.family
    if family in _PER_ELEMENT:
        return min(size, made)
    if family is Family.REDUCTION:
        return min(size, made * -(-size // max(1, graph[node].types[0].size)))
    return size
