"""What of a plan runs once, when its constants are bound, and what a call finds of that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from autofuse.graph.settled import settled
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.program.packing import Packing, packing_of
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan


@dataclass(frozen=True, slots=True)
class Division:
    """A plan cut in two: positions of the groups that run once, each group's panels (None: it has
    none), positions of those whose panels are packed once, and values that calls find prepared."""

    once: frozenset[int]
    packings: tuple[Packing | None, ...]
    packed_once: frozenset[int]
    held: tuple[Value, ...]


def may_run_once(graph: Graph, nodes: Collection[int]) -> bool:
    """Whether a group computes from constants alone what no call changes. What reads nothing at all
    is left to calls, where it is as good as it is in graphs without constants."""
    return settled(graph).issuperset(nodes) and bool(reads(graph, nodes))


def groups_once(graph: Graph, plan: FusionPlan) -> frozenset[int]:
    """Positions of the groups that run once: no call changes what they compute, and what they read
    is there before any call."""
    known = settled(graph)
    there: set[Value] = set()
    found: set[int] = set()
    for position, group in enumerate(plan.groups if known else ()):
        if may_run_once(graph, group.nodes) and _are_there(graph, reads(graph, group.nodes), there):
            found.add(position)
            there.update(group.outputs)
    return frozenset(found)


def groups_of_calls(graph: Graph, plan: FusionPlan) -> tuple[FusionGroup, ...]:
    """The groups that run in each call, in order."""
    once = groups_once(graph, plan)
    return tuple(group for k, group in enumerate(plan.groups) if k not in once)


def _are_there(graph: Graph, values: Iterable[Value], there: Collection[Value]) -> bool:
    """Whether values exist before any call, given what is computed by then."""
    known = settled(graph)
    return all(v in there or (v.node in known and is_source(graph, v.node)) for v in values)


def _asked(graph: Graph, group: FusionGroup, packing: Packing | None, packed: bool) -> set[Value]:
    """What a group reads, those operands aside that are packed before."""
    if packing is None:
        return set(reads(graph, group.nodes))
    return set(packing.beside) if packed else {*packing.beside, *packing.made_of}


def divided(graph: Graph, candidate: Candidate) -> Division:
    """The division of a candidate's plan."""
    groups = candidate.plan.groups
    once = groups_once(graph, candidate.plan)
    there = {v for k in once for v in groups[k].outputs}
    pairs = zip(groups, candidate.launches, strict=True)
    packings = tuple(packing_of(graph, group, launch) for group, launch in pairs)
    packed = frozenset(
        k for k, p in enumerate(packings) if p is not None and _are_there(graph, p.made_of, there)
    )
    wanted = set(graph.outputs)
    for k, (group, packing) in enumerate(zip(groups, packings, strict=True)):
        if k not in once:
            wanted |= _asked(graph, group, packing, k in packed)
    return Division(once, packings, packed, tuple(sorted(there & wanted)))
