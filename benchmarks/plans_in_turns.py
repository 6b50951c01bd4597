"""Plans of one graph built and timed in turns on the CPU."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.devices import DeviceKind
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.plan.types import Candidate
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import BuildResult, build
from autofuse.tuning.together import Interleaving, Together, time_together


def timed_in_turns(
    graph: Graph, kind: DeviceKind, plans: Mapping[str, Candidate], how: Interleaving
) -> tuple[dict[str, BuildResult], Together]:
    """What each plan was built to, and those that run checked and timed; all by name."""
    built = {name: build(kind.backend, graph, plan) for name, plan in plans.items()}
    artifacts = {name: b.artifact for name, b in built.items() if b.artifact is not None}
    sampling = Sampling(cache_state("auto", graph, kind))
    with Worker(Workload(graph), hardware=kind.timer) as worker:
        return built, time_together(worker, artifacts, sampling, how)
