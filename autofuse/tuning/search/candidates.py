"""Candidate kernels of a graph: enumerated, and those of given plans among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autofuse.cost.bounds import Calibration
from autofuse.enumerate.enumeration import Enumeration, enumerate_groups
from autofuse.graph.types import Graph
from autofuse.plan.fusion.horizontal import side_by_side
from autofuse.plan.types import FusionPlan, LoopBody
from autofuse.tuning.plans import baseline_plan
from search_spaces import FusionSpace

# Rules that plan several iterations as they plan one: unrolling would gain nothing.
NOT_UNROLLED = frozenset({"unfused"})


def candidate_kernels(
    graph: Graph, plans: Sequence[FusionPlan], calibration: Calibration, *,
    rules: Iterable[str] = (), should_stop: Callable[[], bool] = lambda: False,
) -> Enumeration:  # fmt: skip
    """The candidate kernels of a canonical graph, with those of `plans`, as they are and
    fused horizontally, among them. A loop may be
    run by the host as in one of these, or with one or several iterations fused, or planned together
    by `rules` (baselines). Told to stop, it leaves out ways to run loops from the host, then
    candidates, but none of those of `plans`."""
    spaces = FusionSpace(graph)
    ruled = [name for name in rules if name not in NOT_UNROLLED]
    bodies = {n: _ways(spaces, n, plans, ruled, should_stop) for n in spaces.loops}
    packed = (side_by_side(graph, plan) for plan in plans if not should_stop())
    return enumerate_groups(
        graph,
        include=tuple(dict.fromkeys((*plans, *packed))),
        bodies=bodies,
        calibration=calibration,
        should_stop=should_stop,
    )


def _ways(
    spaces: FusionSpace, loop: int, plans: Sequence[FusionPlan], rules: Sequence[str],
    should_stop: Callable[[], bool],
) -> list[LoopBody]:  # fmt: skip
    found: list[LoopBody] = []
    for factor in spaces.factors(loop):  # single iterations come first, and always
        if factor > 1 and should_stop():
            break
        inner = spaces.unrolled(loop, factor)
        found.append(LoopBody(inner.choose(lambda _, options: options[0], should_stop), factor))
        for name in rules if factor > 1 else ():  # of single iterations the rules' plans are given
            if should_stop():
                break
            found.append(LoopBody(baseline_plan(inner.graph, name)[0], factor))
    for plan in plans:
        groups = (g for g in plan.groups if g.nodes == (loop,))
        found += [LoopBody(g.body, g.unroll) for g in groups if g.body is not None]
    return list(dict.fromkeys(found))
