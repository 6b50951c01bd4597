"""Searchers against a recorded space: no device, a simulated clock, and the record's seconds.

The clock charges what the record says: compiling each kernel (a group under one configuration) the
first time it is used, and `measure_s` for each run of a plan. The rule is the same for all. What a
searcher thinks is not charged, because it would make replays depend on the machine they run on; it
is reported apart. A plan with a group that nobody recorded fails as unsupported, charges nothing,
and is counted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from autofuse.backends.base import Artifact, Built, Program
from autofuse.backends.registry import Backend
from autofuse.cost.bounds import Calibration
from autofuse.enumerate.enumeration import Enumeration
from autofuse.graph.types import Graph
from autofuse.measure.protocol import Profile, Reply
from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, Environment, Failure, FailureKind, Timing
from autofuse.search import make_searcher
from autofuse.search.driver import run
from autofuse.search.protocol import Option, Outcome, Proposal
from autofuse.tuning.exact import ExactSearch
from autofuse.tuning.learned import Lesson
from autofuse.tuning.model import ModelSearch
from autofuse.tuning.problem import FusionProblem
from autofuse.tuning.session import Session
from benchmarks.spaces import RecordedLaunches, RecordedSpace
from search_spaces import FusionSpace

SEARCHERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "random": ("random", {}),
    "tpe": ("optuna", {"sampler": "tpe"}),
    "nsga2": ("optuna", {"sampler": "nsga2"}),
    "exact": ("exact", {}),
    "model": ("model", {}),
}
PLANNERS = ("exact", "model")


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best plan: charged seconds so far, its microseconds, and the real seconds that the
    replay took to get there (nearly all of them the searcher's own)."""

    seconds: float
    us: float
    planner_s: float


@dataclass(frozen=True, slots=True)
class Trace:
    """One replayed search. `seconds` were charged in all; `runs` plans were run, `compiled` kernels
    compiled; `unrecorded` proposals could not be answered."""

    searcher: str
    seed: int
    improvements: tuple[Improvement, ...]
    seconds: float
    runs: int
    compiled: int
    unrecorded: int
    planner_s: float

    def best_at(self, seconds: float) -> float | None:
        """The best plan's microseconds after so many charged seconds."""
        found = [i.us for i in self.improvements if i.seconds <= seconds]
        return found[-1] if found else None

    def reached(self, us: float) -> Improvement | None:
        """The first improvement to `us` microseconds or better."""
        return next((i for i in self.improvements if i.us <= us), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """What running a plan gives: the time of each group, or why there is none."""

    groups: tuple[float, ...]
    failure: Failure | None


class ReplayDevice:
    """A device that answers from a record; everything it is asked costs simulated seconds."""

    def __init__(self, space: RecordedSpace) -> None:
        self.space = space
        self.begun = time.perf_counter()
        self.seconds = 0.0
        self.runs = self.unrecorded = 0
        self.compiled: set[tuple[str, object]] = set()
        self.improvements: list[Improvement] = []

    def compile(self, candidate: Candidate) -> float:
        """Compile what is new in a candidate; the seconds charged for it. A plan with a kernel that
        is not recorded charges nothing."""
        pairs = self._pairs(candidate)
        if any(self.space.kernel(*pair) is None for pair in pairs):
            return 0.0
        before = self.seconds
        for group, launch in pairs:
            name, kernel = (self.space.keys[group], launch), self.space.kernel(group, launch)
            if name not in self.compiled and kernel is not None:
                self.compiled.add(name)
                self.seconds += kernel.compile_s
        return self.seconds - before

    def run(self, candidate: Candidate) -> Answer:
        """Compile what is new in a candidate and run it."""
        kernels = [self.space.kernel(*pair) for pair in self._pairs(candidate)]
        known = [kernel for kernel in kernels if kernel is not None]
        if len(known) < len(kernels):
            self.unrecorded += 1
            failure = Failure(FailureKind.UNSUPPORTED, "a kernel of this plan is not recorded")
            return Answer((), failure)
        self.compile(candidate)
        self.runs += 1
        self.seconds += self.space.measure_s
        failed = next((kernel.failure for kernel in known if kernel.us is None), None)
        if failed is not None:
            return Answer((), Failure(FailureKind(failed), "recorded"))
        times = tuple(kernel.us for kernel in known if kernel.us is not None)
        self._note(sum(times))
        return Answer(times, None)

    def _pairs(self, candidate: Candidate) -> list[tuple[FusionGroup, LaunchConfig]]:
        return list(zip(candidate.plan.groups, candidate.launches, strict=True))

    def _note(self, us: float) -> None:
        if not self.improvements or us < self.improvements[-1].us:
            spent = time.perf_counter() - self.begun
            self.improvements.append(Improvement(self.seconds, us, spent))


class ReplaySession:
    """What a strategy uses of a tuning session, answered from a record."""

    id = 0
    limit_s = 1.0

    def __init__(self, device: ReplayDevice, seed: int, is_over: Callable[[], bool]) -> None:
        self.device, self.seed, self.is_over = device, seed, is_over
        self.graph = device.space.graph
        self.environment = Environment("replay", ())
        self.plans: dict[str, FusionPlan] = {}
        self.counts: dict[str, int] = {}
        self.notes: list[str] = []
        self.failed: dict[str, int] = {}
        self.trials = self.measured = 0
        self.sampler_s = 0.0
        self.bound_us: float | None = None
        self.gap: float | None = None
        self.residual_us: float | None = None
        self.planned_us: float | None = None
        self.certificate: str | None = None
        self.planned = ""
        self.model: Mapping[str, object] | None = None
        self.known: dict[str, SimpleNamespace] = {}
        self._asked: Candidate | None = None
        # The name chooses a launch space, which ReplayExact then replaces by the record's.
        self.backend = Backend(
            "cpu", self._program, self._built, lambda: self.environment, lambda: None
        )
        self.evaluator = SimpleNamespace(
            sampling=SimpleNamespace(cache=device.space.cache),
            worker=SimpleNamespace(profile=self._profile),
            record=_record,
            spent=Cost(),
        )
        self.store = SimpleNamespace(kernels=lambda *_: {}, add_kernel=lambda *_: None)

    def fits(self, plan: FusionPlan) -> bool:
        """Memory is not bounded."""
        return bool(plan.groups)

    def tell(self, phase: str) -> None:
        """Nobody watches a replay."""

    def count_failure(self, failure: Failure) -> None:
        self.failed[failure.kind.value] = self.failed.get(failure.kind.value, 0) + 1

    def measure_once(self, candidate: Candidate) -> SimpleNamespace:
        """The whole plan's time; asked again, the same answer at no charge."""
        if candidate.digest not in self.known:
            answer = self.device.run(candidate)
            timing = None if answer.failure else _timing(sum(answer.groups), self.device)
            self.known[candidate.digest] = SimpleNamespace(timing=timing)
        return self.known[candidate.digest]

    def note(self, record: SimpleNamespace) -> None:
        """A plan that was run is known."""
        self.known.setdefault(record.candidate_digest, record)

    def _program(self, graph: Graph, candidate: Candidate) -> Program:
        self._asked = candidate
        return Program((), "replay", (), ())

    def _built(self, program: Program) -> Built[Artifact]:
        assert self._asked is not None
        seconds = self.device.compile(self._asked)
        return Built(Artifact(Path(), program.entry, (), (), (), 0), seconds, seconds, 0, "")

    def _profile(self, artifact: Artifact, *_: object) -> Profile:
        assert self._asked is not None
        answer = self.device.run(self._asked)
        groups = tuple(_timing(us, self.device) for us in answer.groups)
        total = None if answer.failure else _timing(sum(answer.groups), self.device)
        return Profile(groups, total, None, answer.failure, self.device.space.measure_s)


def _record(candidate: Candidate, built: object, reply: Reply) -> SimpleNamespace:
    return SimpleNamespace(candidate_digest=candidate.digest, timing=reply.timing)


def _timing(us: float, device: ReplayDevice) -> Timing:
    return Timing(1, us, us, us, us, us, 0.0, device.space.cache, "samples")


class _Recorded(ExactSearch):
    """The planner itself, with the record's candidates and launch configurations."""

    record: RecordedSpace
    seeded: bool

    def _enumerate(self, calibration: Calibration) -> Enumeration:
        # The empty plan fits nowhere, so that the search starts from nothing.
        self.fused = FusionPlan(())
        if self.seeded:
            self.fused = FusionSpace(self.graph).choose(lambda _, options: options[0])
        return self.record.enumeration


class ReplayExact(_Recorded):
    """The exact strategy."""

    def __init__(self, session: ReplaySession, seeded: bool, runs: float | None) -> None:
        self.record, self.seeded = session.device.space, seeded
        super().__init__(cast(Session, session), _calibration(self.record), 0.0, runs)
        self.kernels.space = RecordedLaunches(self.record)


class ReplayModel(_Recorded, ModelSearch):
    """The model strategy, taught kernels of other records."""

    def __init__(self, session: ReplaySession, seeded: bool, lessons: Sequence[Lesson]) -> None:
        self.record, self.seeded = session.device.space, seeded
        calibration = _calibration(self.record)
        ModelSearch.__init__(self, cast(Session, session), calibration, 0.0, None, lessons)
        self.kernels.space = RecordedLaunches(self.record)


def _calibration(space: RecordedSpace) -> Calibration:
    return Calibration.from_mapping(space.calibration)


def replay(
    space: RecordedSpace, searcher: str, seed: int, limit_s: float, max_runs: int = 1000,
    enough: float = -math.inf, seeded: bool = False, lessons: Sequence[Lesson] = (),
    runs: float | None = None,
) -> Trace:  # fmt: skip
    """One search of `space`, until it ends by itself, `limit_s` seconds are charged, `max_runs`
    plans were asked for or a plan takes at most `enough` microseconds. `seeded` searches try
    "everything fused" first, as tuning sessions do; the others start from nothing. `lessons`:
    measured kernels of other spaces, for the model; `runs`: how often the plan is going to run, for
    exact.

    Equal arguments give equal traces, `planner_s` apart. Raises BenchError for an unknown
    searcher."""
    if searcher not in SEARCHERS:
        raise BenchError(f"unknown searcher '{searcher}' (known: {', '.join(SEARCHERS)})")
    device = ReplayDevice(space)

    def is_over() -> bool:
        if device.improvements and device.improvements[-1].us <= enough:
            return True
        return device.seconds >= limit_s or device.runs + device.unrecorded >= max_runs

    if searcher == "exact":
        ReplayExact(ReplaySession(device, seed, is_over), seeded, runs).run()
    elif searcher == "model":
        ReplayModel(ReplaySession(device, seed, is_over), seeded, lessons).run()
    else:
        _sample(device, searcher, seed, is_over, seeded)
    return Trace(
        searcher,
        seed,
        tuple(i for i in device.improvements if i.seconds <= limit_s),
        device.seconds,
        device.runs,
        len(device.compiled),
        device.unrecorded,
        time.perf_counter() - device.begun,
    )


class _Unseeded(FusionProblem):
    """The problem without a first proposal."""

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        return ()


def problem_of(space: RecordedSpace, seeded: bool = False) -> FusionProblem:
    """The samplers' space: fusion decisions and the recorded launch configurations."""
    kind = FusionProblem if seeded else _Unseeded
    return kind(space.graph, RecordedLaunches(space), {})


def _sample(
    device: ReplayDevice, name: str, seed: int, is_over: Callable[[], bool], seeded: bool
) -> None:
    kind, options = SEARCHERS[name]

    def evaluate(proposal: Proposal) -> Outcome:
        assert isinstance(proposal.payload, Candidate)
        answer = device.run(proposal.payload)
        return Outcome(None, 1.0) if answer.failure else Outcome(sum(answer.groups))

    searcher = make_searcher(kind, seed, options)
    run(searcher, problem_of(device.space, seeded), evaluate, time.perf_counter, is_over)
