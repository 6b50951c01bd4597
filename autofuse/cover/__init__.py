"""The exact planner: choose kernels as a 0/1 program, measuring only what its proof needs."""

from __future__ import annotations

from autofuse.cover.budget import certified_gain_s, worth_measuring
from autofuse.cover.kbest import Ranked, k_best
from autofuse.cover.planner import Options, PlanningStep, PlanResult, plan
from autofuse.cover.prepared import Prepared
from autofuse.cover.protocol import (
    CoverProblem,
    LeftS,
    Measure,
    Measured,
    Piece,
    Plan,
    Seconds,
    no_limit,
)

__all__ = [
    "CoverProblem",
    "LeftS",
    "Measure",
    "Measured",
    "Options",
    "Piece",
    "Plan",
    "PlanResult",
    "PlanningStep",
    "Prepared",
    "Ranked",
    "Seconds",
    "certified_gain_s",
    "k_best",
    "no_limit",
    "plan",
    "worth_measuring",
]
