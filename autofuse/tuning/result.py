"""What a tuning session found, and what it tells while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

from autofuse.plan.types import Candidate
from autofuse.records import UNPROVED, Cost, Measurement, Proof, SessionResult, Verdict

# How the best plan was held to the reference: to all of it, at drawn places, or not at all.
BY_REFERENCE, SAMPLED, UNCHECKED = "reference", "sampled", "no"


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a running session; times in microseconds, `left_s` in seconds."""

    best_us: float | None
    baseline_us: float | None
    baseline: str
    trials: int
    measured: int
    failed: dict[str, int]
    left_s: float
    phase: str
    proof: Proof = UNPROVED

    @property
    def bound_gap(self) -> float | None:
        """How far the incumbent may be above the best plan there is."""
        return self.proof.gap_of(self.best_us)


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
    """The end of a tuning session; times in microseconds.

    `session` is what the database keeps of it, with what is proved of the best plan. `best` won the
    final interleaved comparison: `best_us` and `baseline_us` are the medians there.
    `best_record` and `baselines` are the records of the best plan and of each baseline.

    `checked` says how the best plan was held to the reference, on the draws of inputs `checked_on`.
    Where `is_timed` is False there was no time to measure anything, and `best_us` is what the plan
    is expected to take.

    `total_s` are all seconds that it took; `cache` is the state that plans were timed in, "cold" or
    "warm"; `peak_bytes` are those of the best plan's intermediates; `counts` are of candidate
    kernels; `left_out` are baselines for which the budget had no time, `predicted` those that were
    not run because they cannot be the fastest by the kernels they share with others."""

    name: str
    digest: str
    nodes: int
    device: str
    session: SessionResult
    best: Candidate
    best_record: Measurement
    best_us: float
    baselines: Mapping[str, Measurement]
    baseline_us: Mapping[str, float]
    checked: str
    checked_on: tuple[str, ...]
    total_s: float
    notes: tuple[str, ...]
    cache: str
    peak_bytes: int
    counts: Mapping[str, int]
    left_out: tuple[str, ...]
    predicted: Mapping[str, Predicted]
    is_timed: bool = True

    @property
    def verified(self) -> bool:
        """Whether the best plan was held to the whole reference."""
        return self.checked == BY_REFERENCE

    @property
    def interrupted(self) -> bool:
        """Whether the user ended it before its time."""
        return not self.session.finished

    @property
    def trials(self) -> int:
        """How often the strategy proposed something."""
        return self.session.trials

    @property
    def measured(self) -> int:
        """How many candidates were measured now."""
        return self.session.measured

    @property
    def failed(self) -> dict[str, int]:
        """How many of them failed, by kind."""
        return dict(self.session.failed)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The best plan against each baseline."""
        return self.session.verdicts

    @property
    def proof(self) -> Proof:
        """What is proved of the best plan, with the definitions of the two gaps."""
        return self.session.proof

    @property
    def search_gap(self) -> float | None:
        """How far the plan may be above the best of this search."""
        return self.proof.search_gap

    @property
    def bound_gap(self) -> float | None:
        """How far the best plan found may be above the best there is."""
        return self.proof.gap_of(self.best_us) if self.is_timed else None

    def to_json(self) -> dict[str, Any]:
        """The result as plain data, numbers unrounded."""
        return {
            "name": self.name,
            "graph": {"digest": self.digest, "nodes": self.nodes},
            "device": self.device,
            "strategy": self.session.strategy,
            "seed": self.session.seed,
            "budget_s": self.session.budget_s,
            "spent_s": _cost(self.session.spent, self.total_s),
            "trials": self.trials,
            "measured": self.measured,
            "failed": self.failed,
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
            "certificate": self.proof.certificate,
            "planned_us": self.proof.planned_us,
            "search_floor_us": self.proof.search_floor_us,
            "bound_us": self.proof.bound_us,
            "residual_us": self.proof.residual_us,
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
