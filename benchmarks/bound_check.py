"""Whether lower bounds are ones: kernels of random plans of random graphs, timed inside their
plans, against what their bounds say they take at least."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from autofuse.backends.base import Artifact
from autofuse.backends.library import load
from autofuse.cost.bounds import Calibration, group_bound_us
from autofuse.cost.latency import reassociated
from autofuse.devices import timed_device
from autofuse.graph.settled import constant_inputs
from autofuse.graph.types import Graph
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.plan.arithmetic import is_relaxed
from autofuse.plan.parameters import THREADS
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import build
from autofuse.tuning.plans import fused_candidate
from autofuse.zoo import zoo_graph

# Many short samples: the least of them is what the kernel takes when nothing disturbs it.
FEWEST, MOST, SECONDS = 8, 100, 0.3
# By what fraction a bound is above the least time, where violations are counted.
SLACKS = (0.0, 0.02, 0.05, 0.1, 0.25)
# What is told: by less a clock that changes between calibrating and timing is.
NOISE = 0.25
# Below so many microseconds a kernel says more of the clock than of arithmetic.
LEAST_US = 1.0


@dataclass(frozen=True, slots=True)
class BoundRow:
    """One kernel: group `group` of the plan called `plan`, its bound and its least and median time
    in microseconds."""

    plan: str
    group: int
    bound_us: float
    least_us: float
    median_us: float

    def violates(self, slack: float) -> bool:
        """Whether the kernel was faster than its bound allows, by more than a fraction."""
        return self.bound_us > self.least_us * (1 + slack)


Make = Callable[[int], tuple[Graph, Candidate]]


def check_bounds(
    make: Make, seeds: Iterable[int], groups: int, peaks: Calibration,
    tell: Callable[[BoundRow], None] = lambda row: None,
) -> list[BoundRow]:  # fmt: skip
    """Time the kernels of one plan a seed until there are so many `groups`, or until Ctrl-C; a plan
    that cannot be built or run is left out. `tell` is given what took less than its bound."""
    rows: list[BoundRow] = []
    with suppress(KeyboardInterrupt):
        for seed in seeds:
            for row in timed_rows(f"seed {seed}", *make(seed), peaks):
                rows.append(row)
                if row.violates(0.0):
                    tell(row)
            if len(rows) >= groups:
                break
    return rows


def _wants_more(samples: int, end: float) -> bool:
    return samples < FEWEST or (samples < MOST and time.perf_counter() < end)


def timed_rows(
    plan: str, graph: Graph, candidate: Candidate, peaks: Calibration
) -> Iterator[BoundRow]:
    """The kernels of one plan, timed in this process, those that take long enough to be told. What
    they compute is not checked: that would take longest, and other tests do."""
    built = build(timed_device("cpu").backend, graph, candidate)
    if not isinstance(built.artifact, Artifact):
        return
    library, groups = load(built.artifact), candidate.plan.groups
    inputs = draw_inputs(Workload(graph))
    outputs = [np.empty(t.shape, t.dtype.numpy) for t in graph.output_types]
    library.prepare([inputs[k] for k in constant_inputs(graph)])
    given = [x for k, x in enumerate(inputs) if k not in constant_inputs(graph)]
    call = library.bind_profile(given, outputs, len(groups))
    samples, end = [call()], time.perf_counter() + SECONDS
    while _wants_more(len(samples), end):
        samples.append(call())
    library.close()
    us, peaks = np.array(samples), _allowed(peaks, candidate)
    for k, group in enumerate(groups):
        if us[:, k].min() >= LEAST_US:
            bound = group_bound_us(graph, group, peaks)
            yield BoundRow(plan, k, bound, float(us[:, k].min()), float(np.median(us[:, k])))


def _allowed(peaks: Calibration, candidate: Candidate) -> Calibration:
    """The peaks that bound kernels which may do with arithmetic what these do."""
    if not any(map(is_relaxed, candidate.launches)):
        return peaks
    return replace(peaks, latency=reassociated(peaks.latency))


def by_one_thread(graph: Graph) -> Candidate:
    """Whatever is legal merged, each kernel run by one thread, which disturbs times least."""
    found = fused_candidate(graph, timed_device("cpu").space)
    return replace(found, launches=tuple(one.changed(_alone) for one in found.launches))


def _alone(launch: LaunchConfig) -> LaunchConfig:
    settings = dict(launch.settings)
    return LaunchConfig(tuple((k, 1 if k == THREADS.name else v) for k, v in settings.items()))


def summary(rows: Sequence[BoundRow]) -> dict[str, Any]:
    """Kernels, violations by slack, and how near bounds come to the least times."""
    near = sorted(row.bound_us / row.least_us for row in rows)
    return {
        "kernels": len(rows),
        "violations": {str(slack): sum(r.violates(slack) for r in rows) for slack in SLACKS},
        "bound_over_least": {
            str(q): near[min(len(near) - 1, int(q * len(near)))] for q in (0.1, 0.5, 0.9, 1.0)
        }
        if near
        else {},
    }


def as_json(rows: Sequence[BoundRow], peaks: Calibration) -> dict[str, Any]:
    """All that was found, and by which figures."""
    return {
        "calibration": peaks.to_mapping(), **summary(rows), "rows": [asdict(r) for r in rows],
    }  # fmt: skip


def zoo_rows(names: Sequence[str], peaks: Calibration) -> list[BoundRow]:
    """Small workloads of the zoo, each as one plan by one thread."""
    graphs = [(name, normal_form(zoo_graph(name, "small"))) for name in names]
    plans = ((name, graph, by_one_thread(graph)) for name, graph in graphs)
    return [row for plan in plans for row in timed_rows(*plan, peaks)]
