"""What a tuning session found, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from autofuse.plan.types import Candidate
from autofuse.records import Cost, Measurement, Verdict, gap_to

# How the best plan was held to the reference: to all of it, at drawn places, or not at all.
BY_REFERENCE, SAMPLED, UNCHECKED = "reference", "sampled", "no"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a running session; times in microseconds, `left_s` in seconds; the gaps are as
    in a TuneResult."""

    best_us: float | None
    baseline_us: float | None
    baseline: str
    trials: int
    measured: int
    failed: dict[str, int]
    left_s: float
    phase: str
    search_gap: float | None = None
    bound_gap: float | None = None


@dataclass(frozen=True, slots=True)
class Predicted:
    """A baseline that was not run: the microseconds that are predicted of it, and its kernels."""

    us: float
    kernels: int


def idle(left_s: float, phase: str) -> Progress:
    """The state of a session that has found nothing yet."""
    return Progress(None, None, "", 0, 0, {}, left_s, phase)


@dataclass(frozen=True, slots=True)
class TuneResult:
    """The end of a tuning session.

    `best` won the final interleaved comparison (`final`: its median and the baselines', in
    microseconds); `measurements` has the record of the best and of each baseline. `planned_us` is
    the sum of the planned kernels' times.

    There are two gaps. `search_gap`, the gap of this search: no plan of the kernels that it
    enumerated, at the launches that it tried, is below `search_floor_us`; `certificate` says
    whether that holds for the "whole" graph or "per window". `bound_gap`, the gap to the bound: no
    plan whatever is below `bound_us` (`graph_bound_us`), be it of kernels or launches that were
    never tried, as far as the calibrated peaks hold.

    `checked` says how the best plan was held to the reference. Where `is_timed` is False there was
    no time to measure anything, and `best_us` is what the plan is expected to take.

    `peak_bytes` are those of intermediates;
    `left_out` are baselines for which the budget had no time, `predicted` those that were not run
    because they cannot be the fastest by the kernels they share with others.
    """

    name: str
    digest: str
    nodes: int
    device: str
    strategy: str
    seed: int
    budget_s: float
    spent: Cost
    trials: int
    measured: int
    failed: Mapping[str, int]
    best: Candidate
    best_record: Measurement
    best_us: float
    baselines: Mapping[str, Measurement]
    baseline_us: Mapping[str, float]
    verdicts: tuple[Verdict, ...]
    checked: str
    interrupted: bool
    total_s: float
    notes: tuple[str, ...] = field(default=())
    cache: str = "cold"
    search_gap: float | None = None
    planned_us: float | None = None
    search_floor_us: float | None = None
    bound_us: float | None = None
    certificate: str | None = None
    peak_bytes: int = 0
    residual_us: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    checked_on: tuple[str, ...] = ()
    is_timed: bool = True
    predicted: Mapping[str, Predicted] = field(default_factory=dict)

    @property
    def verified(self) -> bool:
        """Whether the best plan was held to the whole reference."""
        return self.checked == BY_REFERENCE

    @property
    def bound_gap(self) -> float | None:
        """How far the best plan found may be above the best there is."""
        return gap_to(self.bound_us, self.best_us) if self.is_timed else None

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, numbers unrounded."""
        return {
            "name": self.name,
            "graph": {"digest": self.digest, "nodes": self.nodes},
            "device": self.device,
            "strategy": self.strategy,
            "seed": self.seed,
            "budget_s": self.budget_s,
            "spent_s": _cost(self.spent, self.total_s),
            "trials": self.trials,
            "measured": self.measured,
            "failed": dict(self.failed),
            "baselines": {n: self._baseline(n, m) for n, m in self.baselines.items()},
            "predicted": {
                n: {"time_us": p.us, "kernels": p.kernels} for n, p in self.predicted.items()
            },
            "best": {
                "time_us": self.best_us if self.is_timed else None,
                "expected_us": None if self.is_timed else _known(self.best_us),
                "kernels": self.best_record.kernels,
                "compile_s": self.best_record.cost.compile,
                "peak_bytes": self.peak_bytes,
                "plan_digest": self.best.digest,
                "origin": self.best.origin,
            },
            "speedup_over": {
                v.other: {
                    "ratio": v.ratio,
                    "low": v.low,
                    "high": v.high,
                    "outcome": v.outcome,
                }
                for v in self.verdicts
            },
            "left_out": list(self.left_out),
            "break_even_runs": {n: self.break_even(n) for n in self.baseline_us},
            "verified": self.verified,
            "checked": self.checked,
            "checked_on": list(self.checked_on),
            "cache": self.cache,
            "max_rel_error": self.best_record.max_rel_error,
            "search_gap": self.search_gap,
            "bound_gap": self.bound_gap,
            "certificate": self.certificate,
            "planned_us": self.planned_us,
            "search_floor_us": self.search_floor_us,
            "bound_us": self.bound_us,
            "residual_us": self.residual_us,
            "candidates": dict(self.counts),
            "interrupted": self.interrupted,
            "notes": list(self.notes),
        }

    def _baseline(self, name: str, record: Measurement) -> dict[str, Any]:
        found: dict[str, Any] = {
            "time_us": self.baseline_us.get(name),
            "kernels": record.kernels,
            "compile_s": record.cost.compile,
        }
        if record.failure is not None:
            found["failure"] = {
                "kind": record.failure.kind.value,
                "message": record.failure.message,
            }
        return found

    def break_even(self, name: str) -> float | None:
        """Runs after which the session has paid for itself against a baseline; None: never."""
        saved_s = (self.baseline_us[name] - self.best_us) * 1e-6
        spent = self.baselines[name].cost
        extra = self.total_s - spent.codegen - spent.compile
        return max(extra, 0.0) / saved_s if saved_s > 0 else None


def _known(us: float) -> float | None:
    return us if isfinite(us) else None


def _cost(spent: Cost, total_s: float) -> dict[str, float]:
    return {
        "codegen": spent.codegen,
        "compile": spent.compile,
        "measure": spent.measure,
        "sampler": spent.sampler,
        "total": total_s,
    }
