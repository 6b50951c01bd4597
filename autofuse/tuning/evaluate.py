"""One candidate to one Measurement: text, build, check, time. Every failure is a record."""

from __future__ import annotations

import time
from dataclasses import dataclass

from autofuse.backends.base import AnyArtifact, CompileError, CompilerMissing, Facts
from autofuse.backends.registry import Backend
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph
from autofuse.measure.protocol import Reply
from autofuse.measure.session import Worker
from autofuse.measure.timing import Sampling
from autofuse.ops.types import AutofuseError
from autofuse.plan.groups import reissued
from autofuse.plan.schedule import launches_per_call, schedule
from autofuse.plan.types import Candidate, FusionPlan
from autofuse.records import Blame, Cost, Failure, FailureKind, Measurement


@dataclass(frozen=True, slots=True)
class BuildResult:
    """An artifact or why there is none, the seconds it took, and the compiler's numbers for each
    group of the plan where it gives any."""

    artifact: AnyArtifact | None
    failure: Failure | None
    cost: Cost
    compile_s: float
    facts: tuple[Facts, ...] = ()


def build(backend: Backend, graph: Graph, candidate: Candidate) -> BuildResult:
    """Text and library of a candidate; `compile_s` is what compiling it from nothing costs."""
    begun = time.perf_counter()
    try:
        program = backend.program(graph, candidate)
    except AutofuseError as error:
        failure = Failure(FailureKind.UNSUPPORTED, str(error))
        return BuildResult(None, failure, Cost(codegen=time.perf_counter() - begun), 0.0)
    except MemoryError:
        text = "rendering the plan ran out of host memory"
        failure = Failure(FailureKind.UNSUPPORTED, text, Blame.MACHINE)
        return BuildResult(None, failure, Cost(codegen=time.perf_counter() - begun), 0.0)
    made = time.perf_counter()
    try:
        built = backend.build(program)
    except (CompileError, CompilerMissing) as error:
        failure = Failure(FailureKind.COMPILE, str(error), error.blame)
        cost = Cost(codegen=made - begun, compile=time.perf_counter() - made)
        return BuildResult(None, failure, cost, cost.compile)
    cost = Cost(codegen=made - begun, compile=built.spent_s)
    return BuildResult(built.artifact, None, cost, built.compile_s, built.facts)


class Evaluator:
    """Measures candidates of one workload on one backend."""

    def __init__(
        self, backend: Backend, graph: Graph, digest: str, worker: Worker, sampling: Sampling
    ) -> None:
        self.backend, self.graph, self.digest = backend, graph, digest
        self.worker, self.sampling = worker, sampling
        self.spent = Cost()

    def __call__(self, candidate: Candidate, limit_s: float, stage: str = "search") -> Measurement:
        """The candidate's record; `limit_s` bounds the wall seconds of checking and timing."""
        built = build(self.backend, self.graph, candidate)
        reply = Reply(None, None, built.failure)
        if built.artifact is not None:
            reply = self.worker.measure(built.artifact, self.sampling, limit_s)
        self.spent += Cost(built.cost.codegen, built.cost.compile, reply.seconds)
        return self.record(candidate, built, reply, stage)

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
        )


def kernels_of(graph: Graph, candidate: Candidate) -> int:
    """Kernel launches per call; 0 for a plan that cannot be scheduled."""
    try:
        return launches_per_call(schedule(graph, candidate).steps)
    except (AutofuseError, KeyError, IndexError):  # a plan that does not fit has no schedule
        return 0


def group_digests(graph: Graph, plan: FusionPlan) -> tuple[str, ...]:
    """The digests of a plan's groups, in order; a re-issued loop counts by its body's groups."""
    found: list[str] = []
    for group in plan.groups:
        if group.body is not None:
            found.extend(group_digests(reissued(graph, group)[0], group.body))
        else:
            found.append(group_digest(graph, group.nodes, group.outputs))
    return tuple(found)
