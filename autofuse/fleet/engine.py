"""The seam between who decides what is tuned and what runs it.

An engine has device units, each of which does one slice at a time. The database is the truth: an
engine may lose a slice at any moment and loses no measurement with it, and it never does a slice
again by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from autofuse.errors import AutofuseError
from autofuse.fleet.health import Canary
from autofuse.graph.types import Graph
from autofuse.tuning.options import TuneOptions

if TYPE_CHECKING:
    from autofuse.backends.registry import Build


class EngineError(AutofuseError):
    """An engine that cannot be started, or has no unit left."""


@dataclass(frozen=True, slots=True)
class TuneSlice:
    """Some seconds of tuning for a graph on a unit of the engine: a session, which resumes what
    earlier ones did. It travels to other processes, so its options hold no functions."""

    graph: Graph
    options: TuneOptions
    unit: str = ""

    @property
    def name(self) -> str:
        """What the graph is called."""
        return self.options.name

    @property
    def budget_s(self) -> float:
        """Seconds of the slice."""
        return self.options.budget_s


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What came of a slice of `seconds`: the best plan's microseconds (None: none works), how far
    it may be above the best plan of its search (None: unknown), how many candidates were measured;
    or why there is no result. `lost`: the unit is to blame, not the graph, so it may be tried
    again. `canary`: how the unit was when the slice began; with a fault nothing was tuned."""

    name: str
    seconds: float
    best_us: float | None = None
    search_gap: float | None = None
    measured: int = 0
    error: str = ""
    lost: bool = False
    canary: Canary | None = None


# A function of some module: what a unit does with a slice. Raises AutofuseError for a graph that
# cannot be tuned.
SliceWork = Callable[[TuneSlice], SliceResult]


class Engine(Protocol):
    """To be closed (`contextlib.closing`), which ends what is under way."""

    @property
    def units(self) -> tuple[str, ...]:
        """Names of the device units that there are now."""
        ...

    def start(self, unit: str, task: TuneSlice) -> None:
        """Give a slice to a unit that is idle."""
        ...

    def wait(self, timeout_s: float) -> Mapping[str, SliceResult]:
        """What became of slices since, by unit, as soon as there is something; nothing after
        `timeout_s` seconds. A unit that was lost with its slice is ready again, or gone from
        `units`."""
        ...

    def close(self) -> None:
        """End all slices; what they measured is in the database."""
        ...


def tune_slice(task: TuneSlice, build: Build | None = None) -> SliceResult:
    """Tune here, unless the unit is disturbed; `build`: see `tune`."""
    # Units that do something else are spared these imports.
    from autofuse.fleet.canary import canary_of
    from autofuse.tuning.job.tuner import tune

    begun = time.perf_counter()
    asked = task.options
    canary = canary_of(asked.device, asked.db)
    looked_s = time.perf_counter() - begun
    if canary.fault:
        return SliceResult(task.name, looked_s, canary=canary)
    left_s = max(asked.budget_s - looked_s, 1.0)
    result = tune(task.graph, replace(asked, budget_s=left_s, build=build))
    gap = None if result.proof.certificate is None else result.search_gap
    seconds = looked_s + result.total_s
    if not result.is_timed:
        failure = result.best_record.failure
        error = "" if failure is None else failure.message
        return SliceResult(task.name, seconds, error=error, canary=canary)
    return SliceResult(task.name, seconds, result.best_us, gap, result.measured, canary=canary)


def done_slice(work: SliceWork, task: TuneSlice) -> SliceResult:
    """What `work` gives, or says in a sentence."""
    begun = time.perf_counter()
    try:
        return work(task)
    except AutofuseError as error:
        seconds = time.perf_counter() - begun
        return SliceResult(task.name, seconds, error=" ".join(str(error).split()))
