"""Tuning and using plans: the library behind the command line."""

from autofuse.tuning.api import CompareResult, compare
from autofuse.tuning.compiling import compile
from autofuse.tuning.plans import KnownPlan, best_plan, plan_named
from autofuse.tuning.result import Progress, TuneResult
from autofuse.tuning.tuner import tune

__all__ = [
    "CompareResult",
    "KnownPlan",
    "Progress",
    "TuneResult",
    "best_plan",
    "compare",
    "compile",
    "plan_named",
    "tune",
]
