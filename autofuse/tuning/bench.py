"""What a strategy gets and what it gives back; it sees no database, no worker and no backend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autofuse.backends.base import Facts
from autofuse.cost.bounds import Calibration
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import UNPROVED, Cost, Failure, KernelMeasurement, Measurement, Proof, Timing
from search_spaces.launch import LaunchSpace


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a search stands: `trials` so far, and what is proved by now."""

    phase: str = ""
    trials: int = 0
    proof: Proof = UNPROVED


@dataclass(frozen=True, slots=True)
class Findings:
    """What a strategy found out, besides the measurements that the bench kept.

    `planned` is the digest of the candidate that `proof` is about. `counts` are of candidate
    kernels."""

    trials: int = 0
    planned: str = ""
    proof: Proof = UNPROVED
    notes: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Profiled:
    """One plan built, checked and timed kernel by kernel: a timing per group, or a failure.

    `cost` is what building it from nothing and measuring it takes, `spent_s` the seconds spent now;
    `facts` are the compiler's numbers and `codes` the code digests, per group; `recalled`: another
    job measured it, and has kept it."""

    groups: tuple[Timing, ...]
    failure: Failure | None
    max_rel_error: float | None
    cost: Cost
    spent_s: float
    facts: tuple[Facts, ...] = ()
    codes: tuple[str, ...] = ()
    recalled: bool = False


@dataclass(frozen=True, slots=True)
class KnownKernel:
    """A kernel measured earlier under one launch configuration; `us` is None where it failed.
    `dropped`: a faster one was known then, so there are few samples."""

    key: str
    launch: LaunchConfig
    us: float | None
    dropped: bool = False


class Bench(Protocol):
    """What can be measured, within a budget; every measurement is kept before it is returned."""

    @property
    def graph(self) -> Graph:
        """The canonical graph."""
        ...

    @property
    def space(self) -> LaunchSpace: ...

    @property
    def cache(self) -> str:
        """The state that all is timed in, "cold" or "warm"."""
        ...

    @property
    def seed(self) -> int: ...

    @property
    def plans(self) -> Mapping[str, FusionPlan]:
        """The plans of the baselines, those that were measured first, fastest first."""
        ...

    def calibration(self) -> Calibration:
        """The device's peaks, measured now where the database does not have them."""
        ...

    def is_over(self) -> bool:
        """Whether the search must end."""
        ...

    def left_s(self) -> float:
        """Seconds until the search must end, counting on below zero."""
        ...

    def fits(self, plan: FusionPlan) -> bool:
        """Whether the intermediates of a plan fit the memory that was asked for."""
        ...

    def known(self, candidate: Candidate) -> Measurement | None:
        """What is known of a candidate, as it would be compiled now."""
        ...

    def measure(self, candidate: Candidate) -> Measurement:
        """What is known of a candidate, measured now if nothing is."""
        ...

    def prepare(self, candidates: Sequence[Candidate]) -> float:
        """Build candidates side by side, for who profiles them next; the seconds that it took. What
        cannot be built says so when it is profiled."""
        ...

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """Compile these in the background, the likely next first, until something is built or
        timed."""
        ...

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        """Build, check and time one candidate kernel by kernel; it becomes known as a whole too.
        `rivals_us`: the best time known of each kernel under other configurations, infinite where
        none is, 0 where this one's time is known; sampling ends when all are farther behind."""
        ...

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Iterable[KnownKernel]:
        """What earlier jobs measured of these kernels (a group by its key), in this cache state and
        as they would be compiled now; the best configuration of every kernel first."""
        ...

    def news(self, groups: Mapping[str, FusionGroup]) -> Iterable[KnownKernel]:
        """What other jobs on this graph have measured of these kernels since `kernels` or this was
        asked last."""
        ...

    def keep_kernels(self, records: Sequence[KernelMeasurement]) -> None:
        """Store times or failures of kernels, all of them at once."""
        ...

    def tell(self, standing: Standing) -> None:
        """Say where the search stands; improvements found from now on are kept with it."""
        ...


class Strategy(Protocol):
    """Spends the bench's budget to find a better candidate."""

    def __call__(self, bench: Bench) -> Findings: ...
