"""Plans of one graph built and timed in turns."""

from __future__ import annotations

import math
import time
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
    graph: Graph, kind: DeviceKind, plans: Mapping[str, Candidate], how: Interleaving,
    building_s: float = math.inf,
) -> tuple[dict[str, BuildResult], Together]:  # fmt: skip
    """What each plan was built to, and those that run checked and timed; all by name. After
    `building_s` seconds no other plan is begun: the last ones are then missing from both."""
    begun, built = time.monotonic(), dict[str, BuildResult]()
    for name, plan in plans.items():
        if built and time.monotonic() - begun > building_s:
            break
        built[name] = build(kind.backend, graph, plan)
    artifacts = {name: b.artifact for name, b in built.items() if b.artifact is not None}
    sampling = Sampling(cache_state("auto", graph, kind))
    with Worker(Workload(graph), hardware=kind.timer) as worker:
        return built, time_together(worker, artifacts, sampling, how)
