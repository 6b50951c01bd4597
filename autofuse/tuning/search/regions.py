"""A window of a graph inside a plan: what stays as it is, and what may be chosen anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autofuse.cover import LeftS, k_best, no_limit
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window
from autofuse.graph.types import Graph, Value
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.fusion.horizontal import side_by_side
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.tuning.budget import Share
from autofuse.tuning.search.cover import cover_problem, plan_of_windows

# Nodes that are planned as a whole; larger graphs are cut into windows of at most so many.
WHOLE_NODES = 600


@dataclass(frozen=True, slots=True)
class Region:
    """A window as one plan leaves it: `inner` groups may be replaced by whatever writes what
    `window` must produce from what is given to it, `rest` stays."""

    window: Window
    inner: tuple[FusionGroup, ...]
    rest: tuple[FusionGroup, ...]


def region_of(graph: Graph, window: Window, plan: FusionPlan) -> Region:
    """The part of `plan` that lies in `window`.

    Given is only what groups write that wait for nothing inside, so that any choice has an order:
    those groups, the choice, the others."""
    inner = [g for g in plan.groups if window.nodes.issuperset(g.nodes)]
    inside = set(inner)
    rest = [g for g in plan.groups if g not in inside]
    waiting: set[Value] = {v for g in inner for v in g.outputs}
    written = {v for g in rest for v in g.outputs}
    wanted = set(graph.outputs)
    given: set[Value] = set()
    for group in plan.groups:  # in the order they run
        if group in inside:
            continue
        read = reads(graph, group.nodes)
        wanted.update(read)
        if waiting.isdisjoint(read):
            given.update(group.outputs)
        else:
            waiting.update(group.outputs)
    produced = {v for g in inner for v in g.outputs if v in wanted} - written
    found = replace(window, produced=tuple(sorted(produced)), given=tuple(sorted(given)))
    return Region(found, tuple(inner), tuple(rest))


def plan_by_bounds(
    enumeration: Enumeration, windows: Sequence[Window], left_s: LeftS = no_limit,
    rough: bool = False,
) -> FusionPlan | None:  # fmt: skip
    """The least plan of each tile when every kernel costs its bound, as far as it can be found in
    the seconds that are left, or a `rough` one, which is found soon; None if tiles have none."""
    tiles: list[tuple[FusionGroup, ...]] = []
    parts = [window for window in windows if window.kind == "tile"]
    for done, window in enumerate(parts):
        fair = Share(left_s, 1 / (len(parts) - done))
        chosen = least_groups(enumeration, window, fair.left_s, rough)
        if chosen is None:
            return None
        tiles.append(chosen)
    return plan_of_windows(enumeration.graph, tiles)


def least_groups(
    enumeration: Enumeration, window: Window, left_s: LeftS = no_limit, rough: bool = False
) -> tuple[FusionGroup, ...] | None:
    """As `plan_by_bounds`, the groups of one window; None where its candidates make no plan, so
    that another start has to do."""
    cover = cover_problem(enumeration, window)
    try:
        return cover.groups(k_best(cover.problem, left_s=left_s, rough=rough)[0].plan)
    except AutofuseError:
        return None


def nodes_to_plan(graph: Graph) -> int:
    """Nodes that kernels must compute."""
    return sum(not is_source(graph, n) for n in range(len(graph.nodes)))


def starts(
    graph: Graph, given: Sequence[FusionPlan], more: Sequence[FusionPlan],
    bounds: Mapping[FusionGroup, float],
) -> list[FusionPlan]:  # fmt: skip
    """The plans of `more`, the given ones, and these fused horizontally, as far as they are made of
    kernels with `bounds` (microseconds), the least together first."""
    packed = (side_by_side(graph, plan) for plan in given)
    known = [p for p in (*more, *given, *packed) if bounds.keys() >= set(p.groups)]
    return sorted(dict.fromkeys(known), key=lambda p: sum(bounds[g] for g in p.groups))
