"""A recorded space that was never measured: every kernel takes a made-up multiple of its bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.cost.bounds import NOMINAL
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionPlan, LaunchConfig
from autofuse.tuning.search.cover import cover_problem
from benchmarks.spaces import RecordedGroup, RecordedKernel, RecordedSpace

LAUNCHES = tuple(LaunchConfig.of(threads=t, stage=s) for t in (2, 1) for s in (True, False))


def by_digest(key: str, launch: int) -> float:
    """A factor between 1.05 and 1.65 that says nothing of other kernels."""
    return 1.05 + 0.1 * ((int(key[:4], 16) + 3 * launch) % 7)


def made_up_space(
    name: str,
    graph: Graph,
    plans: Sequence[FusionPlan] = (),
    launches: Sequence[LaunchConfig] = LAUNCHES,
    factor: Callable[[str, int], float] = by_digest,
) -> RecordedSpace:
    """The planner's candidates and the groups of `plans`; `factor` of time to bound by digest and
    number of the configuration."""
    planned = set(enumerate_groups(graph).groups)
    cover = cover_problem(enumerate_groups(graph, include=plans), digests=True)
    groups, kernels = [], {}
    for i, piece in enumerate(cover.problem.pieces):
        group = cover.group(i)
        groups.append(RecordedGroup(group, piece.key, piece.bound_us, group in planned))
        for n, launch in enumerate(launches):
            us = piece.bound_us * factor(piece.key, n)
            kernels[piece.key, launch] = RecordedKernel(us, 0.1)
    device = {"model": "none"}
    return RecordedSpace(
        name, graph, 0.25, "cold", tuple(groups), kernels, device, NOMINAL.to_mapping()
    )
