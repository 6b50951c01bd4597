"""Plans for a device that is not here: every figure is a lower bound, and nothing is timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autofuse.backends.registry import Backend
from autofuse.baselines import BASELINES
from autofuse.cost.bounds import Calibration, candidate_bytes, plan_bound_us
from autofuse.cover import k_best
from autofuse.devices import device_named, targeted, under
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import windows
from autofuse.graph.canonical import digest
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.groups import ordered_plan
from autofuse.plan.types import Candidate, FusionPlan
from autofuse.simplify import normal_form
from autofuse.tuning.evaluate import kernels_of
from autofuse.tuning.options import TuneOptions
from autofuse.tuning.plans import FUSED, baseline_candidate, fused_candidate
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.search.candidates import candidate_kernels
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.regions import WHOLE_NODES, nodes_to_plan, plan_by_bounds

PLANNED = "planned"


@dataclass(frozen=True, slots=True)
class PlannedResult:
    """Plans of one graph for a target, by name, with what each must cost at least.

    `best` is the name of the one with the least bound; no plan of the enumerated kernels has a
    lower one (per window when `windows` is over 1)."""

    name: str
    digest: str
    nodes: int
    device: str
    target: str
    best: str
    candidates: Mapping[str, Candidate]
    plans: Mapping[str, Mapping[str, Any]]
    windows: int = 1

    def to_json(self) -> dict[str, Any]:
        """Plain data; `timed` is False, and every time in it is a lower bound."""
        best = self.candidates[self.best]
        return {
            "name": self.name,
            "graph": {"digest": self.digest, "nodes": self.nodes},
            "device": self.device,
            "target": self.target,
            "timed": False,
            "windows": self.windows,
            "plans": {n: dict(p) for n, p in self.plans.items()},
            "best": {
                "name": self.best,
                "plan_digest": best.digest,
                "plan": best.to_json(),
                **self.plans[self.best],
            },
        }


def plan_for(graph: Graph, options: TuneOptions) -> PlannedResult:
    """Baselines, everything fused, and the plan of the enumerated kernels whose kernels have the
    least bounds together, for the device and target of `options`.

    Every plan's kernels are written (not compiled); one that the target cannot hold says why under
    `error`. Raises AutofuseError for an
    unknown target, and for a device that is timed."""
    kind = device_named(options.device, options.target)
    if kind.backend.target is None:
        kind = targeted(kind, options.target)
    kind = under(kind, options.math)
    backend, space = kind.backend, kind.space
    graph, calibration = normal_form(graph, options.simplify), kind.calibrate()
    found = {n: baseline_candidate(graph, n, space)[0] for n in BASELINES}
    found[FUSED] = fused_candidate(graph, space)
    enumeration = candidate_kernels(graph, [c.plan for c in found.values()], calibration)
    least, count = _least(graph, enumeration)
    if least is not None:
        found[PLANNED] = default_candidate(graph, least, space, PLANNED)
    rows = {n: _row(backend, graph, c, calibration) for n, c in found.items()}
    works = [n for n in found if "error" not in rows[n]]
    if not works:
        raise AutofuseError(f"no plan can be built for {backend.target}: {rows[FUSED]['error']}")
    best = min(works, key=lambda n: (rows[n]["bound_us"], rows[n]["kernels"]))
    return PlannedResult(
        options.name, digest(graph), len(graph.nodes), backend.name, str(backend.target), best,
        found, rows, count,
    )  # fmt: skip


def _least(graph: Graph, enumeration: Enumeration) -> tuple[FusionPlan | None, int]:
    """The plan with the least bounds, and how many windows it was made in."""
    if nodes_to_plan(graph) > WHOLE_NODES:
        parts = windows(graph, WHOLE_NODES, supernodes=enumeration.supernodes)
        return plan_by_bounds(enumeration, parts), sum(w.kind == "tile" for w in parts)
    cover = cover_problem(enumeration)
    return ordered_plan(graph, cover.groups(k_best(cover.problem)[0].plan)), 1


def _row(
    backend: Backend, graph: Graph, candidate: Candidate, calibration: Calibration
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "bound_us": plan_bound_us(graph, candidate.plan, calibration),
        "kernels": kernels_of(graph, candidate),
        "peak_bytes": candidate_bytes(graph, candidate),
    }
    try:
        backend.program(graph, candidate)
    except AutofuseError as error:
        row["error"] = str(error)
    return row
