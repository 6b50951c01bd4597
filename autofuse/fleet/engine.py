"""The seam between who decides what is tuned and what runs it.

An engine has device units, each of which does one slice at a time. The database is the truth: an
engine may lose a slice at any moment and loses no measurement with it, and it never does a slice
again by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph


class EngineError(AutofuseError):
    """An engine that cannot be started, or has no unit left."""


@dataclass(frozen=True, slots=True)
class TuneSlice:
    """So many seconds of tuning for a graph: a session, which resumes what earlier ones did."""

    name: str
    graph: Graph
    device: str
    db: str | None
    budget_s: float
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SliceResult:
    """What came of a slice of `seconds`: the best plan's microseconds (None: none works), how far
    it may be above the best there is (None: unknown), how many candidates were measured; or why
    there is no result. `lost`: the unit is to blame, not the graph, so it may be tried again."""

    name: str
    seconds: float
    best_us: float | None = None
    gap: float | None = None
    measured: int = 0
    error: str = ""
    lost: bool = False


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


def tune_slice(task: TuneSlice) -> SliceResult:
    """Tune here."""
    from autofuse.tuning.tuner import tune

    found = tune(
        task.graph, name=task.name, device=task.device, db=task.db, budget_s=task.budget_s,
        seed=task.seed,
    )  # fmt: skip
    certain = found.certificate is not None and not found.certificate.startswith("learned")
    gap = found.gap if certain else None
    return SliceResult(task.name, found.total_s, found.best_us, gap, found.measured)
