"""Plans of one graph built and timed in turns."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

from autofuse.devices import DeviceKind
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.measure.timing.compare import Blocks
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.plan.types import Candidate
from autofuse.records import Timing
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import BuildResult, build
from autofuse.tuning.together import Interleaving, Together, time_together


@dataclass(frozen=True, slots=True)
class InTurns:
    """By the names of plans: what those that were begun were built to; samples by block and times
    of those that ran and were right; what the others failed of."""

    built: Mapping[str, BuildResult]
    samples: Mapping[str, Blocks]
    timings: Mapping[str, Timing]
    failures: Mapping[str, str]


def timed_in_turns(
    graph: Graph, kind: DeviceKind, plans: Mapping[str, Candidate], how: Interleaving,
    building_s: float = math.inf, cache: str = "auto",
) -> InTurns:  # fmt: skip
    """Plans built, checked and timed in a cache state ("cold", "warm"; "auto" as a session would).
    After `building_s` seconds no other one is begun: the last ones are then missing. Raises
    AutofuseError where not one could be timed."""
    begun, built = time.monotonic(), dict[str, BuildResult]()
    for name, plan in plans.items():
        if built and time.monotonic() - begun > building_s:
            break
        built[name] = build(kind.backend, graph, plan)
    artifacts = {name: b.artifact for name, b in built.items() if b.artifact is not None}
    sampling = Sampling(cache_state(cache, graph, kind))
    with Worker(Workload(graph), hardware=kind.timer) as worker:
        return _in_turns(built, time_together(worker, artifacts, sampling, how))


def _in_turns(built: Mapping[str, BuildResult], found: Together) -> InTurns:
    failures = {name: b.failure.message for name, b in built.items() if b.failure is not None}
    failures |= {name: failure.message for name, failure in found.failures.items()}
    if found.comparison is None:
        first = next(iter(failures.values()), "there is none")
        why = first if found.unexplained is None else found.unexplained.message
        raise AutofuseError(f"no plan was timed: {why}")
    samples = zip(found.names, found.comparison.samples, strict=True)
    timings = zip(found.names, found.comparison.timings, strict=True)
    return InTurns(built, dict(samples), dict(timings), failures)
