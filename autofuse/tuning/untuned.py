"""What a program gets that was never tuned: the plan of which least is expected."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from autofuse.cost.bounds import NOMINAL, Calibration
from autofuse.cost.expected import depends_on_launch, expected_us, has_products
from autofuse.cost.repeated import NOTHING
from autofuse.enumerate.candidates import EnumerateOptions
from autofuse.enumerate.enumeration import Enumeration, enumerate_groups
from autofuse.enumerate.structure import Structures
from autofuse.enumerate.windows import windows
from autofuse.graph.types import Graph
from autofuse.plan.groups import host_loop
from autofuse.plan.multiplicity import may_repeat
from autofuse.plan.types import FusionGroup, FusionPlan, LaunchConfig
from autofuse.tuning.regions import WHOLE_NODES, nodes_to_plan, plan_by_bounds
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace, first_option

# A narrow search: nobody waits for a program that is only compiled.
NARROW = EnumerateOptions(max_per_seed=8, beam=2, fanout=4, horizontal=0)
# A plan has to be expected to be this much faster, as a fraction, than the one of rules.
CLEARLY = 0.03


def expected_plan(
    graph: Graph, ruled: FusionPlan, others: Sequence[FusionPlan], space: LaunchSpace,
    peaks: Calibration = NOMINAL,
) -> FusionPlan:  # fmt: skip
    """The plan of least expected time if that is clearly less than that of `ruled`, else `ruled`.
    It is made of candidate kernels, among them those of `others`; for large graphs it is one of
    these plans.

    It follows from the graph, the launch space and the peaks alone, whatever time it takes: the
    same program gets the same plan until its device is calibrated anew."""
    if _is_least(graph, ruled):
        return ruled
    if nodes_to_plan(graph) > WHOLE_NODES:
        return _least_of(graph, ruled, others, space, peaks)
    fused = FusionSpace(graph).choose(first_option)
    given = tuple(dict.fromkeys((ruled, fused, *others)))
    found = enumerate_groups(graph, NARROW, include=given, calibration=peaks)
    costs = _costs(graph, found, space, peaks)
    guessed = replace(found, bounds_us=tuple(costs[group] for group in found.groups))
    parts = windows(graph, WHOLE_NODES, supernodes=found.supernodes)
    # Expectations are no better than a rough plan, and the least one of a few layers of a
    # transformer takes a minute to find. It may be worse than one of those that were given.
    best = plan_by_bounds(guessed, parts, rough=True)
    if any(group not in costs for group in ruled.groups):
        return ruled
    plans = [plan for plan in (best, *given) if plan is not None]
    return _clearly_least(ruled, plans, lambda plan: _sum_us(plan, costs))


def _sum_us(plan: FusionPlan, costs: Mapping[FusionGroup, float]) -> float:
    """Microseconds that a plan is expected to take; no end to them where one of its kernels is no
    candidate."""
    return sum(costs.get(group, math.inf) for group in plan.groups)


def _clearly_least(
    ruled: FusionPlan, plans: Sequence[FusionPlan], expected: Callable[[FusionPlan], float]
) -> FusionPlan:
    """The plan of least expected time, `ruled` unless another one's is clearly less."""
    best = min(plans, key=expected, default=ruled)
    return best if expected(best) <= (1 - CLEARLY) * expected(ruled) else ruled


def _least_of(
    graph: Graph, ruled: FusionPlan, others: Sequence[FusionPlan], space: LaunchSpace,
    peaks: Calibration,
) -> FusionPlan:  # fmt: skip
    """As `expected_plan`, one of these plans."""
    shapes, known = Structures(graph), dict[Hashable, float]()

    def expected(plan: FusionPlan) -> float:
        total = 0.0
        for group in plan.groups:
            key = (shapes.key(group.nodes, group.outputs), group.body)
            if key not in known:
                known[key] = _expected_us(graph, group, space, peaks)
            total += known[key]
        return total

    return _clearly_least(ruled, others, expected)


def _is_least(graph: Graph, plan: FusionPlan) -> bool:
    """Whether a plan is one kernel that does nothing twice: any other launches and moves more."""
    nodes = plan.groups[0].nodes if plan.groups else ()
    if len(plan.groups) > 1 or any(group.body is not None for group in plan.groups):
        return False
    return not has_products(graph, nodes) and not may_repeat(graph, nodes, NOTHING)


def _costs(
    graph: Graph, found: Enumeration, space: LaunchSpace, peaks: Calibration
) -> dict[FusionGroup, float]:
    """Microseconds that each candidate kernel is expected to take; equal ones are asked once."""
    classes: dict[int, float] = {}
    for number, group in zip(found.classes, found.groups, strict=True):
        if number not in classes:
            classes[number] = _expected_us(graph, group, space, peaks)
    return {g: classes[number] for number, g in zip(found.classes, found.groups, strict=True)}


def _expected_us(graph: Graph, group: FusionGroup, space: LaunchSpace, peaks: Calibration) -> float:
    """Under default launches, where they matter; a host loop takes every trip of its body."""
    if group.body is None:
        asked = depends_on_launch(graph, group.nodes)
        launch = space.default(graph, group) if asked else LaunchConfig()
        return expected_us(graph, group, launch, peaks)
    body, trips = host_loop(graph, group)
    return trips * sum(_expected_us(body, inner, space, peaks) for inner in group.body.groups)
