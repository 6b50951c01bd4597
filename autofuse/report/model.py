"""What the report says of a workload."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autofuse.records import (
    Account,
    Cost,
    Environment,
    Event,
    Timing,
    Verdict,
)
from autofuse.report.errors import ReportError as ReportError
from autofuse.report.failures import FailureCount
from autofuse.report.front import pareto as pareto
from autofuse.report.gains import Implemented
from autofuse.report.peers import Peer


@dataclass(frozen=True, slots=True)
class Contender:
    """A measured candidate under a name: a baseline's, or the origin of a best plan.

    `compile_s` is codegen plus compile seconds of this candidate alone, without any search."""

    name: str
    digest: str
    timing: Timing
    kernels: int
    compile_s: float
    max_rel_error: float | None


@dataclass(frozen=True, slots=True)
class BreakEven:
    """After how many runs a session has paid against one baseline; None means never.

    `extra_s`: seconds spent by the session, and carried by it, beyond compiling the baseline.
    `interval` is what the interval of the interleaved comparison makes of `runs`; None where none
    was made."""

    baseline: str
    extra_s: float
    saved_us: float
    runs: float | None
    interval: tuple[float | None, float | None] | None


@dataclass(frozen=True, slots=True)
class Point:
    """Seconds before the first run against microseconds per run; `role` is "search", "baseline",
    "peer" or "best"; `front`: nothing else is at least as good in both."""

    label: str
    role: str
    seconds: float
    run_us: float
    kernels: int | None = None
    front: bool = False


@dataclass(frozen=True, slots=True)
class SessionReport:
    """One tuning session. `state` is "finished", "stopped" (before its end, result kept) or
    "open" (still running, or killed). `best` is None if nothing works as far as is known.
    `carried_s`: seconds of the sessions before it, if it began from what they had measured."""

    id: int
    strategy: str
    seed: int
    state: str
    started: str
    budget_s: float
    spent: Cost
    carried_s: float
    trials: int | None
    measured: int | None
    baselines: tuple[Contender, ...]
    best: Contender | None
    verdicts: tuple[Verdict, ...]
    break_even: tuple[BreakEven, ...]
    events: tuple[Event, ...]
    failed: tuple[tuple[str, int], ...]

    @property
    def label(self) -> str:
        return f"{self.strategy} (seed {self.seed}, session {self.id})"

    @property
    def is_sample(self) -> bool:
        """Whether its best was never compared with others interleaved: a sample of a search."""
        return self.state == "open"

    def against(self, other: Contender) -> Verdict | None:
        """The interleaved comparison of the best plan with a baseline."""
        return next((v for v in self.verdicts if v.other == other.name), None)

    def pays(self, other: Contender) -> BreakEven | None:
        """When the session has paid against a baseline."""
        return next((b for b in self.break_even if b.baseline == other.name), None)

    @property
    def rival(self) -> Contender | None:
        """The fastest baseline by the interleaved comparison, the one whose plan is the best among
        them; where nothing was compared, by the samples."""
        again = {v.other: v.other_us for v in self.verdicts}
        own = self.best.digest if self.best and again else ""
        compared = [b for b in self.baselines if b.name in again or b.digest == own]
        return min(
            compared or self.baselines,
            key=lambda b: (again.get(b.name, b.timing.median_us), b.name),
            default=None,
        )


@dataclass(frozen=True, slots=True)
class WorkloadReport:
    """A workload on one device.

    `points`: every candidate with a time, at its own compile seconds. `offers`: what could be had
    after so many seconds of compiling and searching: baselines, comparable peers, and the search's
    progress (what was measured again counts as measured last). `accounts` are by candidate digest.
    `plan_svg` is text that `plan_picture.plan_svg` made, or "". `served` is the incumbent: what the
    database serves; None where that is not known.
    """

    name: str
    digest: str
    nodes: int
    device: str
    environment: Environment | None
    sessions: tuple[SessionReport, ...]
    points: tuple[Point, ...]
    offers: tuple[Point, ...]
    plan_svg: str = ""
    peers: tuple[Peer, ...] = ()
    accounts: tuple[tuple[str, Account], ...] = ()
    failures: tuple[FailureCount, ...] = ()
    implemented: tuple[Implemented, ...] = ()
    served: Contender | None = None

    @property
    def baselines(self) -> tuple[Contender, ...]:
        """Baselines of all sessions by name, slowest first; the latest session's of each name."""
        found = {one.name: one for session in self.sessions for one in session.baselines}
        return tuple(sorted(found.values(), key=lambda b: (-b.timing.median_us, b.name)))

    @property
    def current(self) -> tuple[SessionReport, ...]:
        """The latest session of each strategy and seed that has a best plan, oldest first."""
        good = [s for s in self.sessions if s.best is not None]
        latest = {(s.strategy, s.seed): s.id for s in good}
        return tuple(s for s in good if latest[s.strategy, s.seed] == s.id)

    @property
    def leading(self) -> SessionReport | None:
        """The session whose verdicts are those of the incumbent: the latest that ended with the
        plan that is served. Where that is not known, the one that ended with the fastest plan, of
        equal ones the first. What has not ended knows nothing but samples."""
        ended = [(s, s.best) for s in self.current if not s.is_sample and s.best is not None]
        if self.served is not None:
            same = [s for s, best in ended if best.digest == self.served.digest]
            return max(same, key=lambda s: s.id, default=None)
        timed = [(best.timing.median_us, i) for i, (_, best) in enumerate(ended)]
        return ended[min(timed)[1]][0] if timed else None

    @property
    def rival(self) -> Contender | None:
        return self.leading.rival if self.leading else None

    @property
    def incumbent(self) -> Contender | None:
        """The plan that headlines are about."""
        leading = self.leading
        return self.served if self.served is not None or leading is None else leading.best


def break_even_runs(extra_s: float, saved_us: float) -> float | None:
    """Runs after which `extra_s` seconds are won back; None if a run saves nothing."""
    if not saved_us > 0:
        return None
    return max(0.0, extra_s) / (saved_us * 1e-6)


def median_ratio(other: Timing, best: Timing) -> float:
    """How many times as fast `best` is as `other`; infinite or NaN if its median is no time."""
    if best.median_us > 0:
        return other.median_us / best.median_us
    return math.inf if other.median_us > 0 else math.nan
