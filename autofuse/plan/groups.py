"""What a group reads and writes, and in which order groups can run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.graph.unroll import unrolled_body
from autofuse.plan.types import FusionGroup, FusionPlan, PlanError

# Trips one re-issued body may hold; more are no faster and take long to compile.
MAX_UNROLL = 64


def is_inline(graph: Graph, node: int) -> bool:
    """Scalar constants are copied into every kernel that reads them."""
    n = graph[node]
    return n.op == "constant" and n.types[0].size == 1


def is_source(graph: Graph, node: int) -> bool:
    """Values that exist before any kernel runs: graph inputs and constants."""
    return graph[node].op in ("input", "constant")


def reads(graph: Graph, nodes: Iterable[int]) -> tuple[Value, ...]:
    """Values a node set reads from memory, ascending."""
    inside = frozenset(nodes)
    found = {
        value
        for node in inside
        for value in graph[node].inputs
        if value.node not in inside and not is_inline(graph, value.node)
    }
    return tuple(sorted(found))


def needed_outputs(graph: Graph, nodes: Iterable[int]) -> tuple[Value, ...]:
    """Values of a node set that something outside it needs, if each node is computed only here."""
    inside = frozenset(nodes)
    wanted = set(graph.outputs)
    for node in inside:
        for user in graph.users[node]:
            if user not in inside:
                wanted.update(v for v in graph[user].inputs if v.node == node)
    return tuple(sorted(v for v in wanted if v.node in inside))


def reissued(graph: Graph, group: FusionGroup) -> tuple[Graph, int]:
    """What the body plan of a re-issued loop is a plan of, and how often it runs per call.

    Raises PlanError when the group is not one loop, or its unroll factor does not fit the trips."""
    if len(group.nodes) != 1 or graph[group.nodes[0]].op != "loop":
        raise PlanError(f"group {group} has a body, but is not one loop")
    call, factor = graph.call(group.nodes[0]), group.unroll
    trip: int = call["trip"]
    if factor > MAX_UNROLL:
        raise PlanError(f"a loop cannot be unrolled by {factor}: the limit is {MAX_UNROLL}")
    if trip % factor:
        raise PlanError(f"a loop of {trip} trips cannot be unrolled by {factor}, not a divisor")
    return unrolled_body(call["body"], call["carries"], factor), trip // factor


def group_of(graph: Graph, nodes: Iterable[int], body: FusionPlan | None = None) -> FusionGroup:
    """The group of a node set in a plan without recomputation."""
    ordered = tuple(sorted(set(nodes)))
    return FusionGroup(ordered, needed_outputs(graph, ordered), body)


@lru_cache(maxsize=64)
def ancestors(graph: Graph) -> tuple[int, ...]:
    """For each node a bit mask of the nodes it depends on, itself included."""
    masks: list[int] = []
    for i, node in enumerate(graph.nodes):
        mask = 1 << i
        for value in node.inputs:
            mask |= masks[value.node]
        masks.append(mask)
    return tuple(masks)


def is_convex(graph: Graph, nodes: Sequence[int], outputs: Sequence[Value]) -> bool:
    """Nothing the group reads depends on something it writes."""
    up = ancestors(graph)
    written = 0
    for value in outputs:
        written |= 1 << value.node
    return all(not up[value.node] & written for value in reads(graph, nodes))


def ordered_plan(graph: Graph, groups: Iterable[FusionGroup]) -> FusionPlan:
    """Groups in the one topological order that prefers low node numbers.

    Raises PlanError when a value is never written or groups depend on each other in a cycle."""
    left = sorted(groups, key=lambda g: (g.nodes[-1], g.nodes, g.outputs))
    ready = {Value(i) for i in range(len(graph.nodes)) if is_source(graph, i)}
    needs = {id(g): reads(graph, g.nodes) for g in left}
    placed: list[FusionGroup] = []
    while left:
        rest: list[FusionGroup] = []
        for group in left:
            if all(v in ready for v in needs[id(group)]):
                placed.append(group)
                ready.update(group.outputs)
            else:
                rest.append(group)
        if len(rest) == len(left):
            missing = next(v for v in needs[id(rest[0])] if v not in ready)
            raise PlanError(f"group {rest[0]} reads {missing}, which no earlier group can write")
        left = rest
    return FusionPlan(tuple(placed))
