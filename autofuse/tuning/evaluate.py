"""One candidate to one Measurement: text, build, check, time. Every failure is a record."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from autofuse import faults
from autofuse.backends.base import AnyArtifact, CompileError, CompilerMissing, Facts
from autofuse.backends.registry import Backend
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.measure.timing.racing import NO_RACE, Race
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.protocol import Profile, Reply
from autofuse.measure.worker.session import Worker
from autofuse.ops.types import AutofuseError
from autofuse.patience import within
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.program.schedule import launches_per_call, schedule
from autofuse.plan.types import Candidate, FusionPlan, candidate_from_json
from autofuse.records import Blame, Cost, Failure, FailureKind, Measurement
from autofuse.tuning.ahead import Background
from autofuse.tuning.budget import Budget
from autofuse.tuning.problem import count_groups
from autofuse.tuning.quarantine import Quarantine

# A failure that is the machine's fault is tried again where at least so much of its limit is left.
WORTH_RETRYING = 0.5
R = TypeVar("R", Reply, Profile)


@dataclass(frozen=True, slots=True)
class BuildResult:
    """An artifact or why there is none, the seconds it took, and the compiler's numbers for each
    group of the plan where it gives any."""

    artifact: AnyArtifact | None
    failure: Failure | None
    cost: Cost
    compile_s: float
    facts: tuple[Facts, ...] = ()


@dataclass(frozen=True)
class Written:
    """The program of a candidate, or why there is none, and the seconds that it took."""

    program: Any
    failure: Failure | None
    seconds: float


def write(
    backend: Backend, graph: Graph, candidate: Candidate, left_s: float = math.inf
) -> Written:
    """Text of a candidate. If it is not written after `left_s` seconds, that is the machine's
    fault."""
    begun = time.perf_counter()
    program, failure = None, None
    try:
        program = within(
            lambda: time.perf_counter() - begun > left_s, lambda: backend.program(graph, candidate)
        )
    except AutofuseError as error:
        failure = Failure(FailureKind.UNSUPPORTED, str(error))
    except MemoryError:
        text = "rendering the plan ran out of host memory"
        failure = Failure(FailureKind.UNSUPPORTED, text, Blame.MACHINE)
    except Exception as error:  # a fault of ours: the candidate is refused, the job goes on
        failure = Failure(FailureKind.UNSUPPORTED, faults.tell("lowering", error))
    if program is None and failure is None:
        late = f"it was not written in {left_s:.1f} s"
        failure = Failure(FailureKind.COMPILE, late, Blame.MACHINE)
    return Written(program, failure, time.perf_counter() - begun)


def finish(backend: Backend, written: Written, left_s: float = math.inf) -> BuildResult:
    """Library of what was written; `compile_s` is what compiling it from nothing costs. If it is
    not compiled when `left_s` seconds are over, writing included, that is the machine's fault."""
    if written.failure is not None:
        return BuildResult(None, written.failure, Cost(codegen=written.seconds), 0.0)
    begun = time.perf_counter()
    try:
        built = backend.build(written.program, timeout_s=max(left_s - written.seconds, 0.0))
    except (CompileError, CompilerMissing) as error:
        failure = Failure(FailureKind.COMPILE, str(error), error.blame)
        cost = Cost(codegen=written.seconds, compile=time.perf_counter() - begun)
        return BuildResult(None, failure, cost, cost.compile)
    cost = Cost(codegen=written.seconds, compile=built.spent_s)
    return BuildResult(built.artifact, None, cost, built.compile_s, built.facts)


def build(
    backend: Backend, graph: Graph, candidate: Candidate, left_s: float = math.inf
) -> BuildResult:
    """Text and library of a candidate (`write`, `finish`)."""
    return finish(backend, write(backend, graph, candidate, left_s), left_s)


class Evaluator:
    """Measures candidates of one workload on one backend, within a budget."""

    def __init__(
        self,
        backend: Backend,
        graph: Graph,
        digest: str,
        worker: Worker,
        sampling: Sampling,
        budget: Budget,
        hangs_are_final: bool = False,
    ) -> None:
        """`hangs_are_final`: of a device that a hang takes with it, a candidate that does not end
        is not run again, nor is what is of its class."""
        self.quarantine = Quarantine(hangs_are_final)
        self.backend, self.graph, self.digest = backend, graph, digest
        self.worker, self.sampling, self.budget = worker, sampling, budget
        self.spent = Cost()
        # Codes of kernels that passed on all draws: a plan of them needs one checked run.
        self.verified: set[str] = set()
        self._codes: dict[str, tuple[str, ...]] = {}
        self._ahead: Background[Candidate | Written] = Background(self._compile)
        self._confirmed_now: set[str] = set()

    def __call__(
        self,
        candidate: Candidate,
        limit_s: float,
        stage: str = "search",
        until_s: float = math.inf,
        race: Race = NO_RACE,
    ) -> Measurement:
        """The candidate's record; `limit_s` bounds the wall seconds of checking and timing, and the
        candidate counts as hung after them. `until_s`: when, in seconds of the budget, it must end
        in any case, which says nothing about it; by default when the search must end. `race`: with
        what it competes."""
        if why := self.quarantine.refusal(candidate):
            failure = Failure(FailureKind.UNSUPPORTED, why, Blame.MACHINE)
            return self.unmeasured(candidate, failure, stage)
        self.settle()
        built = build(self.backend, self.graph, candidate, self._room_s(until_s))
        reply = Reply(None, None, built.failure)
        if (artifact := built.artifact) is not None:
            codes, sampling = self.codes(candidate), replace(self.sampling, race=race)
            draws = self._needs_draws(codes)
            reply = self._confirmed(
                lambda seconds: self.worker.measure(artifact, sampling, seconds, draws),
                candidate,
                limit_s,
                until_s,
            )
            if reply.failure is None:
                self.verified.update(codes)
        self.spent += Cost(built.cost.codegen, built.cost.compile, reply.seconds)
        return self.record(candidate, built, reply, stage)

    def unmeasured(self, candidate: Candidate, failure: Failure, stage: str) -> Measurement:
        """The record of a candidate that was not even built, nor written: whose code is not
        known."""
        return Measurement(
            workload=self.digest, candidate=candidate.to_json(), candidate_digest=candidate.digest,
            origin=candidate.origin, kernels=count_groups(candidate.plan), groups=(), timing=None,
            failure=failure, max_rel_error=None, cost=Cost(), stage=stage,
        )  # fmt: skip

    def confirm(self, record: Measurement, limit_s: float) -> Measurement | None:
        """Check what is to be served on all draws, unless that was done in this session; its record
        with a failure of its own, or None."""
        digest = record.candidate_digest
        if digest in self._confirmed_now:
            return None
        candidate = candidate_from_json(record.candidate, record.origin)
        self.settle()
        built = build(self.backend, self.graph, candidate, self.budget.final_room_s)
        self.spent += Cost(built.cost.codegen, built.cost.compile)
        if built.artifact is None:  # for want of time: it was compared, so it was there
            return None
        reply = self.worker.measure(built.artifact, None, limit_s)
        self.spent += Cost(measure=reply.seconds)
        if reply.failure is None:
            self._confirmed_now.add(digest)
        elif reply.failure.blame is Blame.CANDIDATE:
            return replace(record, timing=None, failure=reply.failure, max_rel_error=None)
        return None

    def start(self, first: Candidate | None = None, until_s: float = math.inf) -> Failure | None:
        """Work out the reference, unless that is done: no candidate is charged for it. `first` is
        built before, until `until_s` of the budget: it is what serves if the reference is late; and
        why it was not. Raises LateReferenceError."""
        if self.worker.starts:
            return None
        self.settle()
        failure = None
        if first is not None:
            built = build(self.backend, self.graph, first, self._room_s(until_s))
            self.spent += built.cost
            failure = built.failure
        begun = time.perf_counter()
        try:
            self.worker.start()
        finally:
            self.spent += Cost(measure=time.perf_counter() - begun)
        return failure

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        """Compile candidates in the background until something is built or timed here. The first
        is written before: to write is to plan, and of two threads that plan each takes twice as
        long."""
        if self.backend.ahead is not None and candidates:
            first = write(self.backend, self.graph, candidates[0], self.budget.room_s)
            self.spent += Cost(codegen=first.seconds)
            self._ahead.begin([first, *candidates[1:]])

    @property
    def is_ahead(self) -> bool:
        """Whether something is compiled in the background."""
        return self._ahead.is_busy

    def settle(self) -> None:
        """From now on nothing is compiled in the background."""
        self.spent += Cost(compile=self._ahead.settle())

    def _compile(self, one: Candidate | Written) -> None:
        room_s = self.budget.room_s
        graph, backend = self.graph, self.backend
        written = one if isinstance(one, Written) else write(backend, graph, one, room_s)
        if written.failure is None and backend.ahead is not None:
            with suppress(CompileError, CompilerMissing):
                backend.ahead([written.program], timeout_s=room_s)

    def prepare(self, candidates: Sequence[Candidate]) -> float:
        """Build candidates side by side, while nothing is timed: a kernel alone would keep one
        processor busy. The seconds that it took; what went wrong is said by who builds it again."""
        self.settle()
        begun, room_s = time.perf_counter(), self.budget.room_s

        def written(candidate: Candidate) -> Written:
            return write(self.backend, self.graph, candidate, room_s)

        with ThreadPoolExecutor(usable_cores()) as pool:
            made = list(pool.map(written, candidates))
            if self.backend.ahead is not None:
                programs = [one.program for one in made if one.failure is None]
                with suppress(CompileError, CompilerMissing):
                    self.backend.ahead(programs, timeout_s=room_s)
            for _ in pool.map(lambda one: finish(self.backend, one, room_s), made):
                pass
        seconds = time.perf_counter() - begun
        codegen = sum(one.seconds for one in made) / usable_cores()
        self.spent += Cost(codegen=min(codegen, seconds), compile=max(seconds - codegen, 0.0))
        return seconds

    def profile(
        self, candidate: Candidate, limit_s: float, race: Race = NO_RACE
    ) -> tuple[BuildResult, Profile]:
        """Build a candidate, check it and time each of its groups inside the plan; `race`: with
        what they compete."""
        if why := self.quarantine.refusal(candidate):
            failure = Failure(FailureKind.UNSUPPORTED, why, Blame.MACHINE)
            return BuildResult(None, failure, Cost(), 0.0), Profile((), None, None, failure)
        self.settle()
        built = build(self.backend, self.graph, candidate, self.budget.room_s)
        profile = Profile((), None, None, built.failure)
        if (artifact := built.artifact) is not None:
            groups, sampling = len(candidate.plan.groups), replace(self.sampling, race=race)
            codes = self.codes(candidate)
            draws = self._needs_draws(codes)
            profile = self._confirmed(
                lambda seconds: self.worker.profile(artifact, groups, sampling, seconds, draws),
                candidate,
                limit_s,
            )
            if profile.failure is None:
                self.verified.update(codes)
        self.spent += Cost(built.cost.codegen, built.cost.compile, profile.seconds)
        return built, profile

    def _confirmed(
        self, run: Callable[[float], R], candidate: Candidate, limit_s: float,
        until_s: float = math.inf,
    ) -> R:  # fmt: skip
        """The answer of one run, or of a second one where the first may be the machine's fault.

        A time-out counts against a candidate when a second run alone, given all its limit, times
        out too; one whose limit the end of the budget cut short proves nothing."""
        self.start()
        room_s = self._room_s(until_s)
        found = run(min(limit_s, room_s))
        if found.failure is None:
            return found
        if found.failure.kind is FailureKind.TIMEOUT and room_s < limit_s:
            text = f"cut short after {room_s:.1f} s: no more of the budget was left for it"
            return replace(found, failure=Failure(FailureKind.TIMEOUT, text, Blame.MACHINE))
        if self.quarantine.final and found.failure.kind is FailureKind.TIMEOUT:
            self.quarantine.note(candidate)
            return replace(found, failure=replace(found.failure, blame=Blame.CANDIDATE))
        room_s = self._room_s(until_s)
        blamed = found.failure.blame is Blame.CANDIDATE
        if blamed or room_s < WORTH_RETRYING * limit_s or self.budget.stop():
            return found
        again = run(min(limit_s, room_s))
        spent = found.seconds + again.seconds
        failure = again.failure
        timed_out = failure is not None and failure.kind is FailureKind.TIMEOUT
        if failure is not None and timed_out and room_s >= limit_s:
            failure = replace(failure, blame=Blame.CANDIDATE)
        return replace(again, failure=failure, seconds=spent)

    def _room_s(self, until_s: float) -> float:
        if math.isinf(until_s):
            return self.budget.room_s
        return max(until_s - self.budget.elapsed_s, 0.0)

    def record(
        self, candidate: Candidate, built: BuildResult, reply: Reply, stage: str = "search"
    ) -> Measurement:
        """What building and measuring a candidate gave."""
        return Measurement(
            workload=self.digest,
            candidate=candidate.to_json(),
            candidate_digest=candidate.digest,
            origin=candidate.origin,
            kernels=kernels_of(self.graph, candidate),
            groups=group_digests(self.graph, candidate.plan),
            timing=reply.timing,
            failure=reply.failure,
            max_rel_error=reply.max_rel_error,
            cost=Cost(built.cost.codegen, built.compile_s, reply.seconds),
            stage=stage,
            code=self.code(candidate),
        )

    def code(self, candidate: Candidate) -> str:
        """The digest of the code that a candidate is compiled to now; "" where it can be none."""
        codes = self.codes(candidate)
        return self.backend.plan_code(codes) if codes else ""

    def codes(self, candidate: Candidate) -> tuple[str, ...]:
        """As `code`, of each of its groups; none where it cannot be built."""
        if candidate.digest not in self._codes:
            try:
                self._codes[candidate.digest] = self.backend.codes(self.graph, candidate)
            except AutofuseError:
                self._codes[candidate.digest] = ()
        return self._codes[candidate.digest]

    def _needs_draws(self, codes: Sequence[str]) -> bool:
        return not codes or not self.verified.issuperset(codes)


def code_of(backend: Backend, graph: Graph, candidate: Candidate) -> str:
    """The digest of the code that a candidate is compiled to now; "" where it can be none."""
    try:
        return backend.plan_code(backend.codes(graph, candidate))
    except AutofuseError:
        return ""


def kernels_of(graph: Graph, candidate: Candidate) -> int:
    """Kernel launches per call; 0 for a plan that cannot be scheduled."""
    try:
        return launches_per_call(schedule(graph, candidate).steps)
    except (AutofuseError, KeyError, IndexError):  # a plan that does not fit has no schedule
        return 0


def group_digests(graph: Graph, plan: FusionPlan) -> tuple[str, ...]:
    """The digests of a plan's groups, in order; a host loop counts by its body's groups."""
    found: list[str] = []
    for group in plan.groups:
        if group.body is not None:
            found.extend(group_digests(host_loop(graph, group)[0], group.body))
        else:
            found.append(group_digest(graph, group.nodes, group.outputs))
    return tuple(found)
