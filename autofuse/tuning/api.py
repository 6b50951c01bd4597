"""`compare` times plans side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autofuse.baselines import BASELINES, is_baseline
from autofuse.cost.bounds import NOMINAL, Calibration, plan_bound_us
from autofuse.cost.traffic import plan_traffic
from autofuse.devices import timed_device
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.plan.types import Candidate
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import BuildResult, build, kernels_of
from autofuse.tuning.explain.refusals import kept_apart
from autofuse.tuning.plans import (
    BEST,
    FUSED,
    best_plan,
    known_peaks,
    plan_named,
)
from autofuse.tuning.serve.forms import known_forms
from autofuse.tuning.together import Interleaving, time_together

# Wall seconds of timing all plans, and of one plan alone.
LIMIT_S = 300.0
HOW = Interleaving(blocks=5, rounds=6, limit_s=LIMIT_S, single_limit_s=LIMIT_S)


@dataclass(frozen=True, slots=True)
class CompareResult:
    """Plans of one graph timed interleaved; `plans` maps a name to plain data, `notes` says
    what figures do not."""

    name: str
    digest: str
    nodes: int
    device: str
    plans: Mapping[str, Mapping[str, Any]]
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, numbers unrounded."""
        return {
            "name": self.name,
            "graph": {"digest": self.digest, "nodes": self.nodes},
            "device": self.device,
            "plans": {n: dict(p) for n, p in self.plans.items()},
            "notes": list(self.notes),
        }


def _add_boundaries(
    rows: Mapping[str, dict[str, Any]], graph: Graph, candidates: Mapping[str, Candidate]
) -> None:
    for n in rows:
        if is_baseline(n):
            kept = kept_apart(graph, n, candidates[n].plan)
            rows[n]["boundaries"] = [boundary.to_json() for boundary in kept]


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
    math: str = DEFAULT_MATH,
) -> CompareResult:
    """Check and time plans by name (default: baselines, fused, and the best when one is known).

    `predicted_us` is what a plan must take at least, by this device's peaks where it is calibrated,
    else by those of a fast machine. `why` adds to each baseline which of its rules left the
    boundaries between its kernels. `simplify` False keeps the program as it is written,
    to which plans are held in any case; `math` is as for `autofuse.compile`."""
    kind = timed_device(device, target, math)
    backend = kind.backend
    forms = known_forms(graph, simplify)
    graph = forms.graph
    if plans is None:
        known = best_plan(graph, device=device, target=target, db=db, simplify=False, math=math)
        plans = [*BASELINES, FUSED, *([BEST] if known is not None else [])]
    candidates = {n: plan_named(graph, n, kind, db=db, simplify=False) for n in plans}
    different = {c.digest: c for c in candidates.values()}  # equal plans are built and timed once
    built = {d: build(backend, graph, c) for d, c in different.items()}
    cache = cache_state("auto", graph, kind)
    peaks = known_peaks(backend.environment(), db)
    by_digest = {d: _row(graph, c, built[d], peaks) for d, c in different.items()}
    with Worker(Workload(graph, written=forms.written), hardware=kind.timer) as worker:
        for mode in backend.modes:
            _time(worker, built, by_digest, Sampling(cache, mode=mode))
    rows = {n: dict(by_digest[c.digest]) for n, c in candidates.items()}
    if why:
        _add_boundaries(rows, graph, candidates)
    notes = (*forms.notes, *filter(None, (worker.blind,)))
    return CompareResult(name, digest(graph), len(graph.nodes), backend.name, rows, notes)


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
    together = time_together(worker, artifacts, sampling, HOW)
    for n, failure in together.failures.items():
        rows[n]["error"] = f"{failure.kind.value}: {failure.message}"
    if (comparison := together.comparison) is None:
        reason = "" if together.unexplained is None else together.unexplained.message
        for n in artifacts.keys() - together.failures.keys():
            rows[n]["error"] = f"the comparison failed: {reason}"
        return
    timed = zip(together.names, comparison.timings, comparison.max_rel_errors, strict=True)
    for n, timing, error in timed:
        times = {"time_us": timing.median_us, "q1_us": timing.q1_us, "q3_us": timing.q3_us}
        if "time_us" in rows[n]:  # another way of issuing the same plan
            rows[n].setdefault("modes", {})[timing.mode] = times
            continue
        rows[n] |= {
            **times,
            "mode": timing.mode,
            "verified": not worker.blind,
            "max_rel_error": error,
        }
