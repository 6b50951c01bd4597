"""What a program gets that was never tuned: the plan of which least is expected."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from autofuse.cost.bounds import NOMINAL, Calibration
from autofuse.cost.expected import depends_on_launch, expected_us, has_products
from autofuse.cost.repeated import NOTHING
from autofuse.enumerate.candidates import EnumerateOptions
from autofuse.enumerate.enumeration import Enumeration, enumerate_groups
from autofuse.enumerate.slices import Slice, slices, window_of
from autofuse.enumerate.structure import structures_of
from autofuse.enumerate.supernodes import Supernodes, supernodes_of
from autofuse.enumerate.windows import windows
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.schedules.multiplicity import may_repeat
from autofuse.plan.types import FusionGroup, FusionPlan, LaunchConfig
from autofuse.tuning.search.cover import plan_of_windows
from autofuse.tuning.search.regions import WHOLE_NODES, least_groups, nodes_to_plan, plan_by_bounds
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace, first_option

# A narrow search: nobody waits for a program that is only compiled.
NARROW = EnumerateOptions(max_per_seed=8, beam=2, fanout=4, horizontal=0)
# Of slices one set of each size is tried (measured to find as good plans), and the fewer the more
# nodes slices have that differ: about so many in all.
NARROWER = replace(NARROW, beam=1, fanout=2)
SETS = 1700
# A plan has to be expected to be this much faster, as a fraction, than the one of rules.
CLEARLY = 0.03
# Nodes of a slice of a large graph.
SLICE_NODES = 150


def expected_plan(
    graph: Graph, ruled: FusionPlan, others: Sequence[FusionPlan], space: LaunchSpace,
    peaks: Calibration = NOMINAL,
) -> FusionPlan:  # fmt: skip
    """The plan of least expected time if that is clearly less than that of `ruled`, else `ruled`.
    It is made of candidate kernels, among them those of `others`; that of a large graph is made of
    slices, of which equal ones are planned once; the body of a loop that the host runs is planned
    as the graph that it is.

    It follows from the graph, the launch space and the peaks alone, whatever time it takes: the
    same program gets the same plan until its device is calibrated anew."""
    return _expected(_KernelTimes(graph, space, peaks), ruled, others)


def _expected(times: _KernelTimes, ruled: FusionPlan, others: Sequence[FusionPlan]) -> FusionPlan:
    graph = times.graph
    if _is_least(graph, ruled):
        return ruled
    if nodes_to_plan(graph) > WHOLE_NODES:
        given = tuple(dict.fromkeys((ruled, *others)))
        best = _plan_by_slices(times, given)
    else:
        inside = _planned_inside(times, ruled, others)
        fused = () if has_slices(graph, ruled) else (FusionSpace(graph).choose(first_option),)
        given = tuple(dict.fromkeys((ruled, inside, *fused, *others)))
        best = _plan_whole(times, given)
    plans = [plan for plan in (best, *given) if plan is not None]
    least = min(plans, key=times.plan_us)
    return least if times.plan_us(least) <= (1 - CLEARLY) * times.plan_us(ruled) else ruled


def plan_expected_us(
    graph: Graph, plan: FusionPlan, space: LaunchSpace, peaks: Calibration
) -> float:
    """Microseconds that a plan is expected to take, under default launches."""
    return _KernelTimes(graph, space, peaks).plan_us(plan)


def has_slices(graph: Graph, ruled: FusionPlan) -> bool:
    """Whether a graph, or what the host runs of its loops by a plan of rules, is too large to be
    planned whole. Kernels of other rules are no help then: what slices find without them is
    expected to be within 1 % (five models of 1,300 to 2,900 nodes)."""
    if nodes_to_plan(graph) > WHOLE_NODES:
        return True
    inside = (host_loop(graph, g)[0] for g in ruled.groups if g.body is not None)
    bodies = (g.body for g in ruled.groups if g.body is not None)
    return any(map(has_slices, inside, bodies))


def _planned_inside(
    times: _KernelTimes, ruled: FusionPlan, others: Sequence[FusionPlan]
) -> FusionPlan:
    """The plan of rules with what the host runs of its loops planned as a graph of its own."""

    def planned(group: FusionGroup) -> FusionGroup:
        if group.body is None:
            return group
        body, _ = host_loop(times.graph, group)
        ways = (g.body for plan in others for g in plan.groups
                if g.nodes == group.nodes and g.unroll == group.unroll)  # fmt: skip
        given = tuple(way for way in ways if way is not None)
        return replace(group, body=_expected(times.inside(body), group.body, given))

    return FusionPlan(tuple(map(planned, ruled.groups)))


class _KernelTimes:
    """Microseconds that kernels of a graph are expected to take under default launches; equal ones
    are asked once, those of a loop's body as of the graph that it is."""

    def __init__(self, graph: Graph, space: LaunchSpace, peaks: Calibration) -> None:
        self.graph, self.space, self.peaks = graph, space, peaks
        self.shapes = structures_of(graph)
        self._known: dict[Hashable, float] = {}
        self._inside: dict[Graph, _KernelTimes] = {}

    def inside(self, body: Graph) -> _KernelTimes:
        """Those of the body of a loop."""
        if body not in self._inside:
            self._inside[body] = _KernelTimes(body, self.space, self.peaks)
        return self._inside[body]

    def group_us(self, group: FusionGroup) -> float:
        key = (self.shapes.key(group.nodes, group.outputs), group.body, group.unroll)
        if key not in self._known:
            self._known[key] = self._group_us(group)
        return self._known[key]

    def _group_us(self, group: FusionGroup) -> float:
        """A host loop takes every trip of its body."""
        if group.body is not None:
            body, trips = host_loop(self.graph, group)
            return trips * self.inside(body).plan_us(group.body)
        asked = depends_on_launch(self.graph, group.nodes)
        launch = self.space.default(self.graph, group) if asked else LaunchConfig()
        return expected_us(self.graph, group, launch, self.peaks)

    def plan_us(self, plan: FusionPlan) -> float:
        return sum(map(self.group_us, plan.groups))

    def of(self, found: Enumeration) -> Enumeration:
        """Candidate kernels with these times for bounds."""
        return replace(found, bounds_us=tuple(map(self.group_us, found.groups)))


def _plan_whole(times: _KernelTimes, given: Sequence[FusionPlan]) -> FusionPlan | None:
    graph = times.graph
    found = enumerate_groups(
        graph, NARROW, include=given, calibration=times.peaks, shapes=times.shapes
    )
    parts = windows(graph, WHOLE_NODES, supernodes=found.supernodes)
    # Expectations are no better than a rough plan, and the least one of a few layers of a
    # transformer takes a minute to find. It may be worse than one of those that were given.
    return plan_by_bounds(times.of(found), parts, rough=True)


def _plan_by_slices(times: _KernelTimes, given: Sequence[FusionPlan]) -> FusionPlan | None:
    """The plan of a large graph, put together from those of its slices; None where one has none."""
    graph, supernodes = times.graph, supernodes_of(times.graph)
    parts = slices(supernodes, times.shapes, SLICE_NODES)
    distinct = sum(len(part.nodes) for place, part in enumerate(parts) if part.like == place)
    options = replace(NARROWER, max_per_seed=max(2, min(6, SETS // distinct)))
    planned: dict[int, tuple[FusionGroup, ...]] = {}
    tiles: list[tuple[FusionGroup, ...]] = []
    for place, part in enumerate(parts):
        if part.like == place:
            chosen = _slice_groups(times, supernodes, part, given, options)
            if chosen is None:
                return None
            planned[place] = chosen
        model = parts[part.like]
        tiles.append(tuple(model.moved(group, part) for group in planned[part.like]))
    return plan_of_windows(graph, tiles)


def _slice_groups(
    times: _KernelTimes, supernodes: Supernodes, part: Slice, given: Sequence[FusionPlan],
    options: EnumerateOptions,
) -> tuple[FusionGroup, ...] | None:  # fmt: skip
    """The kernels of a slice of which least is expected; those of `given` plans are candidates."""
    window = window_of(supernodes, part)
    inside = (g for plan in given for g in plan.groups if window.nodes.issuperset(g.nodes))
    found = enumerate_groups(
        times.graph, options, include=(FusionPlan(tuple(dict.fromkeys(inside))),),
        calibration=times.peaks, supernodes=supernodes.between(part.first, part.last),
        shapes=times.shapes,
    )  # fmt: skip
    return least_groups(times.of(found), window, rough=True)


def _is_least(graph: Graph, plan: FusionPlan) -> bool:
    """Whether a plan is one kernel that does nothing twice: any other launches and moves more."""
    nodes = plan.groups[0].nodes if plan.groups else ()
    if len(plan.groups) > 1 or any(group.body is not None for group in plan.groups):
        return False
    return not has_products(graph, nodes) and not may_repeat(graph, nodes, NOTHING)
