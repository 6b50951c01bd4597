"""What a program with products gets that was never tuned: the plan of which least is expected."""

from __future__ import annotations

from dataclasses import replace

from autofuse.cost.bounds import NOMINAL
from autofuse.cost.expected import has_products
from autofuse.enumerate.candidates import EnumerateOptions
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.enumerate.windows import windows
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionPlan
from autofuse.tuning.prospects import expectations
from autofuse.tuning.regions import WHOLE_NODES, nodes_to_plan, plan_by_bounds
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace, first_option

# A narrow search: nobody waits for a program that is only compiled.
NARROW = EnumerateOptions(max_per_seed=8, beam=2, fanout=4, horizontal=0)
# A plan has to be expected to be this much faster, as a fraction, than the one of rules.
CLEARLY = 0.03


def expected_plan(graph: Graph, ruled: FusionPlan, space: LaunchSpace) -> FusionPlan:
    """The plan of least expected time if that is clearly less than that of `ruled`, else `ruled`;
    always that for graphs without products, and for large ones.

    It follows from the graph and the launch space alone: peaks are those of a fast machine, because
    the same program should get the same plan before and after a device is calibrated."""
    if not has_products(graph, range(len(graph.nodes))) or nodes_to_plan(graph) > WHOLE_NODES:
        return ruled
    fused = FusionSpace(graph).choose(first_option)
    found = enumerate_groups(graph, NARROW, include=(ruled, fused), calibration=NOMINAL)
    names = [f"class{number}" for number in found.classes]
    samples = dict(zip(names, found.groups, strict=True))
    bounds = dict(zip(names, found.bounds_us, strict=True))
    guesses = expectations(graph, samples, bounds, space, NOMINAL, lambda: False)
    costs = {g: guesses[name] for g, name in zip(found.groups, names, strict=True)}
    guessed = replace(found, bounds_us=tuple(guesses[name] for name in names))
    plan = plan_by_bounds(guessed, windows(graph, WHOLE_NODES, supernodes=found.supernodes))
    if plan is None or any(group not in costs for group in ruled.groups):
        return ruled
    before = sum(costs[group] for group in ruled.groups)
    after = sum(costs[group] for group in plan.groups)
    return plan if after <= (1 - CLEARLY) * before else ruled
