"""The planner that fuses nothing: one kernel per op."""

from __future__ import annotations

from autofuse.baselines.base import BaselineResult, planned_bodies
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.groups import ordered_plan
from autofuse.plan.types import FusionGroup


def unfused(graph: Graph) -> BaselineResult:
    """One group per computed node, movement ops and iota included; loops are host loops of their
    bodies.

    A node with several outputs writes those that something reads or the graph returns.
    """
    nodes = live(graph)
    read = {v for n in nodes for v in graph[n].inputs} | set(graph.outputs)
    bodies, decisions = planned_bodies(graph, nodes, unfused)
    groups = [
        FusionGroup(
            (n,),
            tuple(v for k in range(len(graph[n].types)) if (v := Value(n, k)) in read),
            bodies.get(n),
        )
        for n in nodes
    ]
    return BaselineResult(ordered_plan(graph, groups), tuple(decisions))
