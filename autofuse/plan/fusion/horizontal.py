"""Horizontal fusion of a given plan: independent kernels of one element each that the same kernels
wait for, such as the updates of an optimiser step, put into one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.groups import host_loop, ordered_plan, reads
from autofuse.plan.fusion.legality import refusal_of
from autofuse.plan.schedules.forms import REDUCTION_ROOTS
from autofuse.plan.types import FusionGroup, FusionPlan


def side_by_side(graph: Graph, plan: FusionPlan) -> FusionPlan:
    """`plan` with its pointwise kernels fused horizontally wherever nobody, or the same kernels,
    read what they write; the bodies of host loops too.

    Kernels that the same ones wait for cannot wait for each other, so no circle appears, and
    nothing is written later than somebody needs it."""
    readers = _readers(graph, plan)
    packs: dict[frozenset[int], list[FusionGroup]] = {}
    kept: list[FusionGroup] = []
    for group in plan.groups:
        if group.body is not None:
            body, _ = host_loop(graph, group)
            kept.append(replace(group, body=side_by_side(body, group.body)))
        elif any(graph[n].spec.family in REDUCTION_ROOTS for n in group.nodes):
            kept.append(group)
        else:
            waiting = frozenset(k for v in group.outputs for k in readers.get(v, ()))
            packs.setdefault(waiting, []).append(group)
    packed = (one for groups in packs.values() for one in _packed(graph, groups))
    return ordered_plan(graph, (*kept, *packed))


def _readers(graph: Graph, plan: FusionPlan) -> dict[Value, list[int]]:
    found: dict[Value, list[int]] = {}
    for k, group in enumerate(plan.groups):
        for value in reads(graph, group.nodes):
            found.setdefault(value, []).append(k)
    return found


def _packed(graph: Graph, groups: Iterable[FusionGroup]) -> Iterator[FusionGroup]:
    """Neighbours joined until a kernel takes no more."""
    pack: FusionGroup | None = None
    for group in groups:
        joined = group if pack is None else _joined(pack, group)
        if pack is not None and refusal_of(graph, joined.nodes, joined.outputs) is not None:
            yield pack
            joined = group
        pack = joined
    if pack is not None:
        yield pack


def _joined(one: FusionGroup, other: FusionGroup) -> FusionGroup:
    nodes, outputs = {*one.nodes, *other.nodes}, {*one.outputs, *other.outputs}
    return FusionGroup(tuple(sorted(nodes)), tuple(sorted(outputs)))
