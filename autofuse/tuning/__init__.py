"""Tuning and using plans: the library behind the command line.

Names load when they are first used: what only shares work or reads records needs no planner.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autofuse.tuning.api import CompareResult as CompareResult
    from autofuse.tuning.api import compare as compare
    from autofuse.tuning.compiling import compile as compile
    from autofuse.tuning.job.tuner import tune as tune
    from autofuse.tuning.options import TuneOptions as TuneOptions
    from autofuse.tuning.plans import KnownPlan as KnownPlan
    from autofuse.tuning.plans import best_plan as best_plan
    from autofuse.tuning.plans import plan_named as plan_named
    from autofuse.tuning.result import Progress as Progress
    from autofuse.tuning.result import TuneResult as TuneResult

__all__ = [
    "CompareResult",
    "KnownPlan",
    "Progress",
    "TuneOptions",
    "TuneResult",
    "best_plan",
    "compare",
    "compile",
    "plan_named",
    "tune",
]

_MODULES = {
    "api": ("CompareResult", "compare"),
    "compiling": ("compile",),
    "options": ("TuneOptions",),
    "plans": ("KnownPlan", "best_plan", "plan_named"),
    "result": ("Progress", "TuneResult"),
    "job.tuner": ("tune",),
}
_SOURCES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _SOURCES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_SOURCES[name]}"), name)
    globals()[name] = found
    return found
