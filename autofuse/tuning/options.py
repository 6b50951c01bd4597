"""What a tuning session is asked for, as one value: what `tune`, the command line and a fleet's
slices share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from autofuse.ops.types import AutofuseError
from autofuse.plan.arithmetic import DEFAULT_MATH
from autofuse.tuning.budget import check_seconds

# What only asks for tuning is spared these imports.
if TYPE_CHECKING:
    from autofuse.backends.registry import Build
    from autofuse.tuning.advice import Advice
    from autofuse.tuning.result import Progress

# States of the cache that plans can be timed in; "auto" is one of the others.
COLD = "cold"
STATES = ("auto", COLD, "warm")
# What `baselines` may be besides names: all are run, or those that can still win.
ALL, FAST = "all", "fast"


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions:
    """Raises AutofuseError for a number that is out of its range and for an unknown cache state;
    `tune` raises it for names that nothing has."""

    name: str = ""
    """What people call the graph; it is kept with it."""
    device: str = "auto"
    """The kind of device, "auto" for the best one here. `tune` raises for one that is not here."""
    target: str = ""
    """The GPU that an emulated device stands for; "" for the backend's own."""
    db: str | None = None
    """The tuning database, a file or a SQLAlchemy URL; None for the user's own."""
    budget_s: float = 60.0
    """Seconds of wall time, a positive number, for everything but what is done once for a machine:
    where the device's peaks are not known they are measured first. It is a cap: the end comes
    within a tenth of it and one call of the slowest plan."""
    strategy: str = "exact"
    """Who searches: "exact", "launches" (of the rules' partitions alone) or a searcher. `tune`
    raises for an unknown one."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Of the strategy, by name. `tune` raises for one that it does not have."""
    search_gap: float = 0.0
    """The strategy "exact" ends early once no plan of its kernels, at the launches tried, can be
    better by more than this fraction; 0 or more."""
    runs: float | None = None
    """The strategy "exact" ends early once so many runs, above 0, could no longer gain what
    measuring would take; None where only the plan counts."""
    advice: Advice | None = None
    """What the budget was chosen by: the notes say what came of it."""
    max_memory: int | None = None
    """Bytes of intermediates alive at once, 0 or more: a plan over it is never the result, be it a
    baseline. None for no bound."""
    cache: str = "auto"
    """The state that plans are timed in, "cold" or "warm"; "auto" is warm where the arrays of every
    plan fit the last-level cache."""
    seed: int = 0
    """Of all random choices; 0 or more."""
    baselines: str | Sequence[str] = FAST
    """Rules whose plans are measured before the search, in at most a third of the budget; none
    beats the result. "fast" runs those that can still be the fastest by the kernels that they share
    with others and predicts the rest; "all", or names, run every one. `tune` raises for unknown
    names."""
    progress: Callable[[Progress], None] | None = None
    """Told where the search stands at least once a second, not always from the same thread."""
    stop: Callable[[], bool] | None = None
    """Asked now and then whether the user wants to end; what was found is kept."""
    simplify: bool = True
    """False keeps the program as it is written, which is then another workload."""
    math: str = DEFAULT_MATH
    """What kernels may do with arithmetic: with "relaxed" they may change it (see
    `autofuse.compile`), which is another workload too. `tune` raises for another word."""
    build: Build | None = None
    """Builds programs in place of the device's own way, be it on other hosts."""

    def __post_init__(self) -> None:
        check_seconds(self.budget_s)
        check_state(self.cache)
        if not self.search_gap >= 0 or (self.runs is not None and not self.runs > 0):
            raise AutofuseError(
                "the gap must not be negative, and the number of runs must be positive"
            )
        if self.max_memory is not None and self.max_memory < 0:
            raise AutofuseError(f"the memory cannot be bounded by {self.max_memory} bytes")
        if self.seed < 0:
            raise AutofuseError(f"the seed must not be negative, as {self.seed} is")


class TuneKeywords(TypedDict, total=False):
    """The fields of TuneOptions, for type checkers: keywords of `tune`."""

    name: str
    device: str
    target: str
    db: str | None
    budget_s: float
    strategy: str
    options: Mapping[str, str]
    search_gap: float
    runs: float | None
    advice: Advice | None
    max_memory: int | None
    cache: str
    seed: int
    baselines: str | Sequence[str]
    progress: Callable[[Progress], None] | None
    stop: Callable[[], bool] | None
    simplify: bool
    math: str
    build: Build | None


def check_state(wanted: str) -> None:
    """Raises AutofuseError for what is no state that can be asked for."""
    if wanted not in STATES:
        raise AutofuseError(f"unknown cache state '{wanted}' (known: {', '.join(STATES)})")
