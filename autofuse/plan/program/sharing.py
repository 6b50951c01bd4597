"""Which results of a plan take the memory of what they are made from, and when that is free.

A result may lie where an operand does if its kernel writes a window of it only
(`autofuse.plan.fusion.overwriting`), or if it is a loop's last state. The operand must not be
needed any more then: groups that read it run before the one that overwrites it, where they can.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from autofuse.graph.types import Graph, Value
from autofuse.ops.control import is_counted
from autofuse.order import closure, stable_order
from autofuse.plan.fusion.groups import host_loop, most_trips, reads
from autofuse.plan.fusion.overwriting import in_place, overwrites
from autofuse.plan.program.rotation import Ring, rings_of
from autofuse.plan.program.steps import Ref
from autofuse.plan.types import FusionGroup, FusionPlan


@dataclass(frozen=True)
class Sharing:
    """The groups of a plan as their kernels are made, the positions in which they run, and for each
    result that may lie where an operand does that operand, in the order they are computed."""

    groups: tuple[FusionGroup, ...]
    order: tuple[int, ...]
    operand_of: Mapping[Value, Value] = field(default_factory=dict)


@lru_cache(maxsize=1024)
def sharing(graph: Graph, plan: FusionPlan, trip: int = 0) -> Sharing:
    """What results of a plan share. `trip`: `graph` is the body of a loop of so many iterations."""
    groups = tuple(in_place(graph, group, trip) for group in plan.groups)
    found = dict(_pairs(graph, groups, trip))
    order = tuple(range(len(groups)))
    if not found:
        return Sharing(groups, order)
    waits = _waits(graph, groups, found)
    late = {p for p, before in waits.items() if any(r > p for r in before)}
    if late:
        moved = _ordered(graph, groups, waits) if _written_once(groups) else None
        found = {v: pair for v, pair in found.items() if moved or pair[1] not in late}
        order = moved or order
    rank = {p: k for k, p in enumerate(order)}
    ordered = sorted(found.items(), key=lambda item: (rank[item[1][1]], item[0]))
    return Sharing(groups, order, {value: x for value, (x, _) in ordered})


def loop_rings(graph: Graph, group: FusionGroup, plan: FusionPlan) -> tuple[Ring, ...]:
    """How the states of a loop run by the host take turns in buffers, its body under `plan`."""
    body, most = host_loop(graph, group)[0], most_trips(graph, group)
    operand_of = sharing(body, plan, most).operand_of
    return rings_of(body, int(graph.call(group.nodes[0])["carries"]), operand_of)


def _pairs(
    graph: Graph, groups: tuple[FusionGroup, ...], trip: int
) -> Iterator[tuple[Value, tuple[Value, int]]]:
    """Results with the operand that each could lie at, and the group that makes it."""
    writers = Counter(v for group in groups for v in group.outputs)
    leaving = set(graph.outputs)
    for position, group in enumerate(groups):
        candidates = overwrites(graph, group, trip)
        if group.body is not None:
            candidates = tuple(_last_states(graph, group, group.body))
        for value, x in candidates:
            still = x in leaving or graph[x.node].op == "constant"
            if not still and writers[value] == 1 and writers[x] <= 1:
                yield value, (x, position)


def _last_states(
    graph: Graph, group: FusionGroup, plan: FusionPlan
) -> Iterator[tuple[Value, Value]]:
    """Last states of a loop with the first ones that began in the same buffer. Where data decide
    how many iterations there are, only what has one buffer is known to."""
    node = group.nodes[0]
    counted, most = is_counted(graph[node].op), most_trips(graph, group)
    operands = graph[node].inputs
    for ring in loop_rings(graph, group, plan) if most > 1 or counted else ():
        began = {ring.slot(i, 0): operands[k] for i, k in enumerate(ring.states)}
        if not counted and ring.buffers > 1:
            continue
        for i, k in enumerate(ring.states):
            value, x = Value(node, k), began.get(ring.slot(i, most))
            if x is not None and operands.count(x) == 1 and value in group.outputs:
                yield value, x


def _waits(
    graph: Graph, groups: tuple[FusionGroup, ...], found: dict[Value, tuple[Value, int]]
) -> dict[int, set[int]]:
    """For each group that overwrites what others read those others. What is read by a group that
    needs the result first is no longer in `found`, nor is what two groups would overwrite."""
    readers: dict[Value, set[int]] = {}
    for position, group in enumerate(groups):
        for value in reads(graph, group.nodes):
            readers.setdefault(value, set()).add(position)
    taken = Counter(x for x, _ in found.values())
    waits: dict[int, set[int]] = {}
    for value, (x, position) in list(found.items()):
        others = readers[x] - {position}
        if taken[x] > 1 or others & _dependents(groups, readers, position):
            del found[value]
        else:
            waits.setdefault(position, set()).update(others)
    return waits


def _dependents(
    groups: tuple[FusionGroup, ...], readers: Mapping[Value, set[int]], position: int
) -> set[int]:
    """The groups that cannot run before this one has."""

    def after(p: int) -> Iterator[int]:
        return (r for value in groups[p].outputs for r in readers.get(value, ()))

    return closure(after(position), after)


def _written_once(groups: Iterable[FusionGroup]) -> bool:
    return max(Counter(v for group in groups for v in group.outputs).values(), default=0) <= 1


def _ordered(
    graph: Graph, groups: tuple[FusionGroup, ...], waits: Mapping[int, set[int]]
) -> tuple[int, ...] | None:
    """Positions such that every group comes after what it reads is written and after those that it
    `waits` for, as near to the order of the plan as can be; None where there is no such order."""
    writer = {v: p for p, group in enumerate(groups) for v in group.outputs}
    before = {
        p: {writer[v] for v in reads(graph, group.nodes) if v in writer} | waits.get(p, set())
        for p, group in enumerate(groups)
    }
    order = stable_order(before, before.__getitem__)
    return tuple(order) if len(order) == len(groups) else None


def homes(operand_of: Mapping[Value, Value], place: dict[Value, Ref]) -> dict[Value, Value]:
    """Of the results that may lie where an operand does those that will. What has no place yet is
    put where its result has to be."""
    for value, operand in reversed(list(operand_of.items())):
        if value in place:
            place.setdefault(operand, place[value])
    return {v: x for v, x in operand_of.items() if place.get(v) == place.get(x)}


def last_uses(graph: Graph, groups: Sequence[FusionGroup]) -> dict[Value, int]:
    """For each value the position of the last group that reads or writes it.

    A value may be written twice, the second time after its last reader."""
    last: dict[Value, int] = {}
    for position, group in enumerate(groups):
        for value in (*reads(graph, group.nodes), *group.outputs):
            last[value] = position
    return last
