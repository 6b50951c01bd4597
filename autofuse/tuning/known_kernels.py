"""Stored kernels, as far as they would be compiled to the same code now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from autofuse.backends.registry import Backend
from autofuse.devices import DeviceKind
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import KernelMeasurement
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.search.cover import kernel_key
from autofuse.tuning.search.launches import launch_of
from search_spaces.launch import LaunchSpace
from tuning_db import Store
from tuning_db.kernels import best_first


def launch_now(
    backend: Backend, graph: Graph, group: FusionGroup, record: KernelMeasurement,
    space: LaunchSpace,
) -> LaunchConfig | None:  # fmt: skip
    """The launch configuration that a kernel was measured under; None where the group would be
    other code under it now, or none."""
    launch = launch_of(record.launch)
    if group.body is not None and not launch.inner:  # as they were stored before
        launch = replace(launch, inner=space.default(graph, group).inner)
    if not backend.allows(launch):
        return None
    try:
        code = backend.group_code(graph, group, launch)
    except AutofuseError:
        return None
    return launch if record.code == code else None


def tuned_candidate(
    graph: Graph, plan: FusionPlan, kind: DeviceKind, db: str | None, origin: str
) -> tuple[Candidate, int]:
    """A plan of a canonical graph with each kernel under the configuration that is the fastest
    known in the database, and how many of its kernels that knows; the others have their defaults.

    Raises AutofuseError for an unusable database."""
    base = default_candidate(graph, plan, kind.space, origin)
    keys = [kernel_key(group_digest(graph, g.nodes, g.outputs), g) for g in plan.groups]
    groups = dict(zip(keys, plan.groups, strict=True))
    with Store.open(db) as store:
        stored = store.kernels(kind.backend.environment(), set(keys))
    state = cache_state("auto", graph, kind)
    timed = [one for _, one in best_first(stored) if one.timing is not None and one.cache == state]
    best: dict[str, LaunchConfig] = {}
    for one in timed:
        if one.group in best:
            continue
        launch = launch_now(kind.backend, graph, groups[one.group], one, kind.space)
        if launch is not None:
            best[one.group] = launch
    return _with(base, keys, best), sum(key in best for key in keys)


def _with(base: Candidate, keys: list[str], best: Mapping[str, LaunchConfig]) -> Candidate:
    pairs = zip(keys, base.launches, strict=True)
    return replace(base, launches=tuple(best.get(key, default) for key, default in pairs))
