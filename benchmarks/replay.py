"""Searchers against a recorded space: no device, a simulated clock, and the record's seconds.

The clock accounts for what the record says: compiling each kernel (a group under one configuration)
the first time it is used, and `measure_s` for each run of a plan. The rule is the same for all.
What a searcher thinks is not charged, because it would make replays depend on the machine they run
on; it is reported apart. A plan with a group that nobody recorded fails as unsupported, costs
nothing, and is counted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.cost.bounds import Calibration
from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import (
    Cost,
    Failure,
    FailureKind,
    KernelMeasurement,
    Measurement,
    Timing,
)
from autofuse.search import make_searcher
from autofuse.search.driver import run
from autofuse.search.protocol import Option, Outcome, Proposal
from autofuse.tuning.bench import Findings, KnownKernel, Profiled, Standing
from autofuse.tuning.problem import FusionProblem
from autofuse.tuning.search.exact import ExactSearch, Goal
from benchmarks.spaces import RecordedLaunches, RecordedSpace
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace

SEARCHERS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "random": ("random", {}),
    "tpe": ("optuna", {"sampler": "tpe"}),
    "nsga2": ("optuna", {"sampler": "nsga2"}),
    "exact": ("exact", {}),
}
# Seconds that a replay has left by the clock: it ends by what it was charged.
LONG_S = 1e6


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best plan: accounted seconds so far, its microseconds, and the real seconds that the
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
        """The best plan's microseconds after so many accounted seconds."""
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
        """Compile what is new in a candidate; the seconds accounted for it. A plan with a kernel
        that is not recorded costs nothing."""
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


class ReplayBench:
    """A bench that answers from a record; see `autofuse.tuning.bench.Bench`."""

    def __init__(self, device: ReplayDevice, seed: int, is_over: Callable[[], bool]) -> None:
        self.recorded, self.seed, self.is_over = device, seed, is_over
        self.graph, self.cache = device.space.graph, device.space.cache
        self.space: LaunchSpace = RecordedLaunches(device.space)
        self.plans: Mapping[str, FusionPlan] = {}
        self.answers: dict[str, Measurement] = {}

    def calibration(self) -> Calibration:
        """The peaks of the device that was recorded."""
        return Calibration.from_mapping(self.recorded.space.calibration)

    def left_s(self) -> float:
        """No planning is cut short."""
        return 0.0 if self.is_over() else LONG_S

    def fits(self, plan: FusionPlan) -> bool:
        """Memory is not bounded; the empty plan stands for none."""
        return bool(plan.groups)

    def known(self, candidate: Candidate) -> Measurement | None:
        """What was run is known."""
        return self.answers.get(candidate.digest)

    def measure(self, candidate: Candidate) -> Measurement:
        """The whole plan's time; asked again, the same answer at no cost."""
        if candidate.digest not in self.answers:
            self._keep(candidate, self.recorded.run(candidate))
        return self.answers[candidate.digest]

    def prepare(self, candidates: Sequence[Candidate]) -> float:
        """Compiling is charged when it is recorded, one candidate after another."""
        return 0.0

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """Nothing is compiled."""

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        """Every kernel's time, at the recorded cost."""
        seconds = self.recorded.compile(candidate)
        answer = self.recorded.run(candidate)
        measured_s = self.recorded.space.measure_s
        cost = Cost(compile=seconds, measure=measured_s)
        if answer.failure is not None:
            return Profiled((), answer.failure, None, cost, seconds + measured_s)
        if candidate.digest not in self.answers:
            self._keep(candidate, answer)
        times = tuple(_timing(us, self.recorded) for us in answer.groups)
        return Profiled(times, None, None, cost, seconds + measured_s)

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Sequence[KnownKernel]:
        """Every replay starts from nothing."""
        return ()

    def news(self, groups: Mapping[str, FusionGroup]) -> Sequence[KnownKernel]:
        """Nobody else is there."""
        return ()

    def keep_kernels(self, records: Sequence[KernelMeasurement]) -> None:
        """Nothing is kept."""

    def tell(self, standing: Standing) -> None:
        """Nobody watches a replay."""

    def _keep(self, candidate: Candidate, answer: Answer) -> None:
        timing = None if answer.failure else _timing(sum(answer.groups), self.recorded)
        self.answers[candidate.digest] = Measurement(
            self.recorded.space.name, candidate.to_json(), candidate.digest, candidate.origin,
            len(candidate.plan.groups), (), timing, answer.failure, None, Cost(),
        )  # fmt: skip


def _timing(us: float, device: ReplayDevice) -> Timing:
    return Timing(1, us, us, us, us, us, 0.0, device.space.cache, "samples")


def _fused(space: RecordedSpace, seeded: bool) -> FusionPlan:
    """Everything fused; the empty plan where the search is to start from nothing."""
    return FusionSpace(space.graph).choose(_first) if seeded else FusionPlan(())


def _first(_: str, options: tuple[Option, ...]) -> Option:
    return options[0]


def replay_exact(bench: ReplayBench, seeded: bool = False, runs: float | None = None) -> Findings:
    """The exact strategy, with the record's candidates and launch configurations."""
    space = bench.recorded.space
    fused = _fused(space, seeded)
    return ExactSearch(bench, Goal(0.0, runs), space.enumeration, fused).run()


def replay(
    space: RecordedSpace, searcher: str, seed: int, limit_s: float, max_runs: int = 1000,
    enough: float = -math.inf, seeded: bool = False, runs: float | None = None,
) -> Trace:  # fmt: skip
    """One search of `space`, until it ends by itself, `limit_s` seconds are accounted, `max_runs`
    plans were asked for or a plan takes at most `enough` microseconds. `seeded` searches try
    "everything fused" first, as tuning sessions do; the others start from nothing. `runs`: how
    often the plan is going to run, for exact.

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
        replay_exact(ReplayBench(device, seed, is_over), seeded, runs)
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
