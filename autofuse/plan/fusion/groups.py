"""What a group reads and writes, and the one order in which the groups of a plan run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autofuse.graph.surgery.host_body import host_body
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family
from autofuse.order import stable_order
from autofuse.plan.types import FusionGroup, FusionPlan, PlanError

# Iterations one run by the host body may hold; more are no faster and take long to compile.
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


def host_loop(graph: Graph, group: FusionGroup) -> tuple[Graph, int]:
    """What the body plan of a host loop is a plan of, and how often it runs per call; that of a
    `while` counts once, since only data say how often.

    Raises PlanError when the group is not one loop, or its unroll factor does not fit the
    iterations."""
    if len(group.nodes) != 1 or graph[group.nodes[0]].spec.family is not Family.CONTROL:
        raise PlanError(f"group {group} has a body, but is not one loop")
    call, factor = graph.call(group.nodes[0]), group.unroll
    if not is_counted(graph[group.nodes[0]].op):
        if factor != 1:
            raise PlanError("a loop whose end data decide cannot be unrolled by the host")
        return host_body(call), 1
    trip: int = call["trip"]
    if factor > MAX_UNROLL:
        raise PlanError(f"a loop cannot be unrolled by {factor}: the limit is {MAX_UNROLL}")
    if trip % factor:
        raise PlanError(f"a loop of {trip} iterations cannot be unrolled by {factor}: no divisor")
    return unrolled_body(call["body"], call["carries"], factor), trip // factor


def most_trips(graph: Graph, group: FusionGroup) -> int:
    """Times that a host loop runs its body in one call at most."""
    node = group.nodes[0]
    counted = is_counted(graph[node].op)
    return host_loop(graph, group)[1] if counted else int(graph.call(node)["max_trips"])


def group_of(graph: Graph, nodes: Iterable[int], body: FusionPlan | None = None) -> FusionGroup:
    """The group of a node set in a plan without recomputation."""
    ordered = tuple(sorted(set(nodes)))
    return FusionGroup(ordered, needed_outputs(graph, ordered), body)


def rank(group: FusionGroup) -> tuple[object, ...]:
    """The key that breaks ties between groups: low node numbers first. Unequal groups differ."""
    return (group.nodes[-1], group.nodes, group.outputs, group.unroll, str(group.body or ""))


def ordered_plan(graph: Graph, groups: Iterable[FusionGroup]) -> FusionPlan:
    """The plan of these groups, whatever order they come in; every plan is made here.

    The first group by `rank` whose reads are written runs next; a group that comes twice runs once.
    A value that several groups write is there once the first of them has run. Raises PlanError
    when a value is never written or groups wait for each other in a circle."""
    ranked = sorted(dict.fromkeys(groups), key=rank)
    needs = {
        group: [v for v in reads(graph, group.nodes) if not is_source(graph, v.node)]
        for group in ranked
    }
    placed = stable_order(ranked, needs.__getitem__, lambda group: group.outputs, rank)
    if len(placed) < len(ranked):
        raise _stuck(needs, placed)
    return FusionPlan(tuple(placed))


def _stuck(
    needs: Mapping[FusionGroup, Sequence[Value]], placed: Iterable[FusionGroup]
) -> PlanError:
    """Why groups that are not `placed` cannot run. `needs`: what every group reads, by rank."""
    there = {v for group in placed for v in group.outputs}
    written = {v for group in needs for v in group.outputs}
    waiting: dict[Value, FusionGroup] = {}
    for group, values in needs.items():
        for value in values:
            if value not in there:
                waiting.setdefault(value, group)
    for value, group in sorted(waiting.items()):
        if value not in written:
            return PlanError(f"group {group} reads {value}, which no group writes")
    value, group = min(waiting.items(), key=lambda item: rank(item[1]))
    return PlanError(
        f"groups wait for each other in a circle: group {group} reads {value}, "
        "which no earlier group can write"
    )


def in_one_order(graph: Graph, plan: FusionPlan) -> FusionPlan:
    """A plan made elsewhere in the order of `ordered_plan`, loop bodies too, so that equal sets of
    kernels are equal plans, whoever made them."""
    groups = (
        g if g.body is None else replace(g, body=in_one_order(host_loop(graph, g)[0], g.body))
        for g in plan.groups
    )
    return ordered_plan(graph, groups)
