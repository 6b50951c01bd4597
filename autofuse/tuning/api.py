"""`compile` puts a plan to use, and `compare` times plans side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.baselines import BASELINES
from autofuse.cost.bounds import NOMINAL, Calibration, plan_bound_us
from autofuse.cost.traffic import plan_traffic
from autofuse.devices import DeviceKind, device_named, timed_device
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.measure.session import Worker
from autofuse.measure.timing import Sampling
from autofuse.measure.workload import Workload
from autofuse.plan.types import Candidate
from autofuse.runtime.compiled import CompiledPlan, chosen_constants
from autofuse.simplify import normal_form
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import BuildResult, build, kernels_of
from autofuse.tuning.kept import kept_untuned
from autofuse.tuning.moving import moved_candidates
from autofuse.tuning.plans import (
    BEST,
    FUSED,
    best_plan,
    known_peaks,
    known_plans,
    plan_named,
)
from autofuse.tuning.refusals import kept_apart
from autofuse.tuning.together import time_together

BLOCKS, ROUNDS = 5, 6
# Wall seconds of timing all plans, and of one plan alone.
LIMIT_S = 300.0


def compile(  # autofuse.compile is the public name
    graph: Graph,
    *,
    device: str = "auto",
    target: str = "",
    db: str | None = None,
    plan: str | Candidate | None = None,
    mode: str = "",
    constants: Mapping[str, Any] | None = None,
    simplify: bool = True,
) -> CompiledPlan:
    """A callable for `graph`: the best plan known that can be built here, else the partition that
    was tuned at the nearest size, else one by rules; `.origin` says which, and `.notes` of better
    ones what they lack here.

    `target` names a GPU that device "cuda-emulated" stands for. `plan` asks for a plan by name or
    gives it: a plan of the graph's `normal_form`, which is simplified unless `simplify` is False.
    `mode` says how device "cuda" issues it: "graph" (the default) or "eager".
    `constants` has an array for each input that is declared constant, by name: they are copied
    now, and calls take the other inputs only. Raises AutofuseError."""
    kind = device_named(device, target)
    backend = kind.backend
    backend.ready()
    graph = normal_form(graph, simplify)
    chosen_constants(graph, constants)  # before anything is built

    def made(candidate: Candidate, origin: str, notes: tuple[str, ...] = ()) -> CompiledPlan:
        return CompiledPlan(backend, graph, candidate, origin, mode, notes, constants)

    if isinstance(plan, Candidate):
        return made(plan, plan.origin or "given")
    if plan is None:
        return _served(graph, kind, db, made)
    return made(plan_named(graph, plan, device=device, target=target, db=db, simplify=False), plan)


def _served(
    graph: Graph, kind: DeviceKind, db: str | None, made: Callable[..., CompiledPlan]
) -> CompiledPlan:
    """The best plan known, else that of the nearest size, else one by rules."""
    known, passed = known_plans(graph, kind.backend, db)
    notes = tuple(map(str, passed))
    if known is not None:
        best = "best that can be built here" if passed else BEST
        return made(known.candidate, f"{best} ({known.candidate.origin})", notes)
    for moved in moved_candidates(graph, kind, db):
        try:
            return made(moved, moved.origin, notes)
        except AutofuseError as error:  # kernels of this size may not be possible
            notes += (f"the plan {moved.origin} cannot be built here: {error}",)
    untuned = kept_untuned(graph, kind, known_peaks(kind.backend.environment(), db))
    return made(untuned, untuned.origin, notes)


@dataclass(frozen=True, slots=True)
class CompareResult:
    """Plans of one graph timed interleaved; `plans` maps a name to plain data."""

    name: str
    digest: str
    nodes: int
    device: str
    plans: Mapping[str, Mapping[str, Any]]

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers unrounded."""
        return {
            "name": self.name,
            "graph": {"digest": self.digest, "nodes": self.nodes},
            "device": self.device,
            "plans": {n: dict(p) for n, p in self.plans.items()},
        }


def compare(
    graph: Graph,
    *,
    device: str = "auto",
    target: str = "",
    db: str | None = None,
    plans: Sequence[str] | None = None,
    name: str = "",
    why: bool = False,
    simplify: bool = True,
) -> CompareResult:
    """Check and time plans by name (default: baselines, fused, and the best when one is known).

    `predicted_us` is what a plan must take at least, by this device's peaks where it is calibrated,
    else by those of a fast machine. `why` adds to each baseline which of its rules left the
    boundaries between its kernels. `simplify` False keeps the program as it is written."""
    kind = timed_device(device, target)
    backend = kind.backend
    graph = normal_form(graph, simplify)
    if plans is None:
        known = best_plan(graph, device=device, target=target, db=db, simplify=False)
        plans = [*BASELINES, FUSED, *([BEST] if known is not None else [])]
    candidates = {
        n: plan_named(graph, n, device=device, target=target, db=db, simplify=False) for n in plans
    }
    different = {c.digest: c for c in candidates.values()}  # equal plans are built and timed once
    built = {d: build(backend, graph, c) for d, c in different.items()}
    cache = cache_state("auto", graph, kind)
    peaks = known_peaks(backend.environment(), db)
    found = {d: _row(graph, c, built[d], peaks) for d, c in different.items()}
    with Worker(Workload(graph), hardware=kind.timer) as worker:
        for mode in backend.modes:
            _time(worker, built, found, Sampling(cache, mode=mode))
    rows = {n: dict(found[c.digest]) for n, c in candidates.items()}
    for n in rows if why else ():
        if n in BASELINES:
            kept = kept_apart(graph, n, candidates[n].plan)
            rows[n]["boundaries"] = [boundary.to_json() for boundary in kept]
    return CompareResult(name, digest(graph), len(graph.nodes), backend.name, rows)


def _row(
    graph: Graph, candidate: Candidate, built: BuildResult, peaks: Calibration | None
) -> dict[str, Any]:
    traffic = plan_traffic(graph, candidate.plan)
    bound = plan_bound_us(graph, candidate.plan, peaks or NOMINAL)
    row: dict[str, Any] = {
        "kernels": kernels_of(graph, candidate),
        "bytes": traffic.bytes,
        "read_bytes": traffic.read_bytes,
        "written_bytes": traffic.written_bytes,
        "predicted_us": bound,
        "calibrated": peaks is not None,
        "compile_s": built.compile_s,
        "plan_digest": candidate.digest,
        "verified": False,
    }
    if built.failure is not None:
        row["error"] = built.failure.message
    return row


def _time(
    worker: Worker, built: Mapping[str, BuildResult], rows: dict[str, dict[str, Any]],
    sampling: Sampling,
) -> None:  # fmt: skip
    """Fill in times; a plan that fails gets its error and the others are timed without it.

    A second mode of issuing goes under `modes`."""
    artifacts = {n: b.artifact for n, b in built.items() if b.artifact is not None}
    found = time_together(
        worker, artifacts, blocks=BLOCKS, rounds=ROUNDS, sampling=sampling,
        limit_s=LIMIT_S, single_limit_s=LIMIT_S,
    )  # fmt: skip
    for n, failure in found.failures.items():
        rows[n]["error"] = f"{failure.kind.value}: {failure.message}"
    if found.comparison is None:
        reason = "" if found.unexplained is None else found.unexplained.message
        for n in artifacts.keys() - found.failures.keys():
            rows[n]["error"] = f"the comparison failed: {reason}"
        return
    timed = zip(found.names, found.comparison.timings, found.comparison.max_rel_errors, strict=True)
    for n, timing, error in timed:
        times = {"time_us": timing.median_us, "q1_us": timing.q1_us, "q3_us": timing.q3_us}
        if "time_us" in rows[n]:  # another way of issuing the same plan
            rows[n].setdefault("modes", {})[timing.mode] = times
            continue
        rows[n] |= {**times, "mode": timing.mode, "verified": True, "max_rel_error": error}
