"""The last comparison, without a device: who wins, who is dropped, what is recorded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from autofuse.backends.base import Artifact, Built, CompileError, Program
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.backends.registry import Backend
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling, summarise
from autofuse.measure.worker.protocol import Comparison, ComparisonFailure, Reply
from autofuse.measure.worker.session import Worker
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, Failure, FailureKind, Measurement
from autofuse.tuning.budget import Budget
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job import finals
from autofuse.tuning.job.finals import FinalDecision, Pace, decide, likely, samples_for

CRASH = Failure(FailureKind.CRASH, "killed by SIGSEGV")
TIMEOUT = Failure(FailureKind.TIMEOUT, "did not finish")
SPREAD = (0.995, 1.0, 1.005, 1.0)


def graph() -> Graph:
    b = GraphBuilder()
    return b.build([b.add("neg", b.input("x", (4,), DType.F32))])


def candidate(name: int, origin: str) -> Candidate:
    plan = FusionPlan((FusionGroup((1,), graph().outputs),))
    return Candidate(plan, (LaunchConfig.of(tile=name),), origin)


@dataclass
class FakeWorker:
    """Samples around the true median of the artifact called `tile`; some artifacts are bad."""

    medians: dict[int, float]
    wrong: tuple[int, ...] = ()  # named by the comparison
    crash: tuple[int, ...] = ()  # kill it
    together_only: bool = False  # nothing fails alone, no comparison ends
    spoiled: tuple[int, ...] = ()  # fail when they are checked on all draws
    disturbed: int = 0  # there are three samples of each, one of this artifact's is wrong
    factor: float = 4.0  # by so much
    asked: list[int] = field(default_factory=list)

    def compare(self, artifacts: Sequence[Artifact], *more: Any) -> Comparison | ComparisonFailure:
        names = [int(a.entry) for a in artifacts]
        self.asked.append(len(names))
        for k, name in enumerate(names):
            if name in self.wrong:
                return ComparisonFailure(k, Failure(FailureKind.WRONG_RESULT, "differs"), 1.0)
        if self.together_only or set(names) & set(self.crash):
            return ComparisonFailure(None, TIMEOUT if self.together_only else CRASH, 1.0)
        blocks = tuple(
            tuple(tuple(self.medians[n] * s for s in b) for b in self.blocks(n)) for n in names
        )
        times = tuple(summarise([s for b in one for s in b], "cold", "samples") for one in blocks)
        return Comparison(blocks, times, (1e-7,) * len(names), 1.0)

    def blocks(self, name: int) -> tuple[tuple[float, ...], ...]:
        return (
            ((1.0,), (1.0,), (self.factor if name == self.disturbed else 1.0,))
            if self.disturbed
            else (SPREAD,) * 5
        )

    def measure(self, artifact: Artifact, sampling: Sampling | None, limit_s: float) -> Reply:
        bad = int(artifact.entry) in (self.spoiled if sampling is None else self.crash)
        return Reply(None, None, CRASH if bad else None, 1.0)


def program(graph: Graph, candidate: Candidate) -> Program:
    return Program((), f"e{candidate.launches[0]['tile']}", graph.input_types, graph.output_types)


def built(program: Program, *, timeout_s: float = math.inf) -> Built:
    name = program.entry.removeprefix("e")
    if name == "13":
        raise CompileError("no")
    return Built(Artifact(Path(name), name, (), (), (), 0), 0.0, 0.5, 0, "")


def record(name: int, us: float, origin: str = "search") -> Measurement:
    one = candidate(name, origin)
    timing = summarise([us] * 4, "cold", "noise")
    return Measurement(
        "w", one.to_json(), one.digest, origin, 1, (), timing, None, 0.0, Cost(compile=2.0)
    )


def run(
    worker: FakeWorker,
    finalists: dict[int, float],
    baselines: dict[str, int],
    incumbent: int | None = None,
    budget_s: float = 60.0,
    baseline_us: float = 9.0,
) -> FinalDecision:
    backend = Backend("fake", program, built, cpu_environment, lambda: None)
    budget = Budget(budget_s)
    evaluator = Evaluator(backend, graph(), "w", cast(Worker, worker), Sampling(), budget)
    found = decide(
        evaluator,
        [record(n, us) for n, us in finalists.items()],
        {n: record(at, baseline_us, n) for n, at in baselines.items()},
        Pace(seconds=1.0, limit_s=5.0),
        incumbent=None if incumbent is None else record(incumbent, 1.0, "known"),
    )
    assert evaluator.spent.measure >= 1.0 or not worker.asked, "the time of finals counts as spent"
    return found


def winner(found: FinalDecision) -> str:
    assert found.final is not None and found.final.record.stage == "final"
    return found.final.record.origin


def test_the_fastest_wins_and_every_baseline_is_judged() -> None:
    found = run(FakeWorker({1: 5.0, 2: 4.0, 3: 8.0, 4: 6.0}), {1: 1.0, 2: 3.0}, {"a": 3, "b": 4})
    assert found.final is not None and found.final.best_us == 4.0
    assert found.final.baseline_us == {"a": 8.0, "b": 6.0} and found.failed == ()
    assert [v.outcome for v in found.final.verdicts] == ["faster", "faster"]
    assert found.final.record.timing is not None and found.final.record.timing.median_us == 4.0


def test_a_tie_goes_to_the_fastest_baseline() -> None:
    """The first baseline ties too, but it is slower than the second one."""
    found = run(FakeWorker({1: 4.0, 2: 4.03, 3: 4.01}), {1: 1.0}, {"a": 2, "b": 3})
    assert winner(found) == "b"
    assert found.final is not None
    assert {v.outcome for v in found.final.verdicts} == {"tie"}


def test_few_samples_of_which_one_is_disturbed_are_no_tie_where_both_were_apart_alone() -> None:
    worker = FakeWorker({1: 4.0, 2: 10.0}, disturbed=1)
    found = run(worker, {1: 4.0}, {"a": 2}, baseline_us=10.0)
    assert winner(found) == "search" and found.final is not None
    assert [v.outcome for v in found.final.verdicts] == ["tie"], "the interval is told as it is"
    alike = FakeWorker({1: 4.0, 2: 10.0}, disturbed=1)
    assert winner(run(alike, {1: 4.0}, {"a": 2}, baseline_us=4.1)) == "a"
    near = FakeWorker({1: 4.0, 2: 4.1}, disturbed=1)
    assert winner(run(near, {1: 4.0}, {"a": 2}, baseline_us=10.0)) == "a"


def test_a_winner_that_is_not_told_apart_is_compared_again_however_slow() -> None:
    worker = FakeWorker({1: 4.0, 2: 6.0, 3: 40.0}, disturbed=1)
    found = run(worker, {1: 4.0}, {"a": 2, "b": 3}, baseline_us=4.1)
    assert worker.asked == [3, 2] and winner(found) == "a"


def test_one_that_is_wrong_now_is_dropped_and_recorded() -> None:
    found = run(FakeWorker({1: 4.0, 2: 5.0, 3: 8.0}, wrong=(1,)), {1: 1.0, 2: 2.0}, {"a": 3})
    assert found.final is not None and found.final.best_us == 5.0
    (lost,) = found.failed
    assert lost.failure is not None and lost.failure.kind is FailureKind.WRONG_RESULT
    assert lost.stage == "final" and lost.timing is None and lost.max_rel_error is None


def test_the_one_that_kills_the_comparison_is_found_alone() -> None:
    worker = FakeWorker({1: 4.0, 2: 5.0, 3: 8.0}, crash=(1,))
    found = run(worker, {1: 1.0, 2: 2.0}, {"a": 3})
    assert found.final is not None and found.final.best_us == 5.0 and worker.asked == [3, 2]
    assert [m.failure for m in found.failed] == [CRASH]


def test_one_that_no_longer_compiles_is_dropped_and_recorded() -> None:
    found = run(FakeWorker({2: 5.0, 3: 8.0}), {13: 1.0, 2: 2.0}, {"a": 3})
    assert found.final is not None and found.final.best_us == 5.0
    assert [m.failure.kind for m in found.failed if m.failure] == [FailureKind.COMPILE]


def test_a_comparison_that_cannot_be_made_falls_back_on_what_was_recorded() -> None:
    found = run(FakeWorker({1: 4.0, 2: 5.0}, together_only=True), {1: 3.0}, {"a": 2})
    assert found.final is not None and found.failed == () and found.untimed == ("a",)
    assert found.final.best_us == 3.0 and found.final.baseline_us == {"a": 9.0}
    assert [(v.ratio, v.outcome) for v in found.final.verdicts] == [(3.0, "faster")]
    assert found.final.compared == frozenset()


def test_what_is_served_keeps_its_place_on_a_tie_and_loses_it_to_a_faster_plan() -> None:
    tied = run(FakeWorker({1: 4.0, 2: 4.01, 3: 4.02}), {1: 1.0}, {"a": 3}, incumbent=2)
    assert winner(tied) == "known"
    faster = run(FakeWorker({1: 4.0, 2: 5.0, 3: 8.0}), {1: 1.0}, {"a": 3}, incumbent=2)
    assert winner(faster) == "search" and faster.final is not None
    assert faster.final.compared == {candidate(n, "").digest for n in (1, 2, 3)}


def test_what_is_served_does_not_keep_its_place_before_a_faster_baseline() -> None:
    """It ties with the fastest, the baseline does not: ties are not transitive."""
    worker = FakeWorker({1: 4.0, 2: 5.0, 3: 4.5}, disturbed=2, factor=0.5)
    found = run(worker, {1: 4.0}, {"a": 3}, incumbent=2)
    assert winner(found) == "search" and found.final is not None
    assert found.final.best_us == 4.0 and found.final.baseline_us == {"a": 4.5}


def test_a_second_comparison_that_contradicts_the_first_is_not_believed() -> None:
    """There what is served takes longer than a baseline did that was left behind."""

    class Drifting(FakeWorker):
        def compare(self, artifacts: Sequence[Artifact], *more: Any) -> Any:
            if self.asked:
                self.medians, self.disturbed = {1: 4.0, 2: 7.0}, 1
            return super().compare(artifacts, *more)

    worker = Drifting({1: 4.0, 2: 4.2, 3: 6.0})
    found = run(worker, {1: 4.0}, {"a": 3}, incumbent=2)
    assert worker.asked == [3, 2] and found.final is not None
    assert (found.final.best_us, found.final.baseline_us) == (4.0, {"a": 6.0})


def test_what_the_budget_has_no_time_for_keeps_its_recorded_time() -> None:
    """Plans of 3 and 9 seconds: seven calls of the faster one fit into what is left."""
    worker = FakeWorker({1: 3e6, 3: 9e6})
    found = run(worker, {1: 3e6}, {"slow": 3}, budget_s=25, baseline_us=9e6)
    assert worker.asked == [1] and found.final is not None and found.untimed == ("slow",)
    assert [(v.other, v.ratio) for v in found.final.verdicts] == [("slow", 3.0)]
    worker = FakeWorker({1: 3e6, 3: 9e6})
    late = run(worker, {1: 3e6}, {"slow": 3}, budget_s=1, baseline_us=9e6)
    assert worker.asked == [] and late.final is not None and late.untimed == ("slow",)
    assert {v.other for v in late.final.verdicts} == {"slow"}


def test_the_second_comparison_is_left_out_when_it_would_end_too_late() -> None:
    """Each comparison takes a second of a budget that has half a one left."""
    worker = FakeWorker({1: 4.0, 2: 4.5, 3: 8.0})
    found = run(worker, {1: 1.0}, {"near": 2, "slow": 3}, budget_s=0.5)
    assert worker.asked == [3] and found.final is not None and found.final.best_us == 4.0


def test_slow_plans_get_few_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finals, "MAX_ROUNDS", 20)
    assert samples_for(8.0, 1e3) == (5, 20) and samples_for(1.0, 1e5) == (5, 2)
    assert samples_for(1.0, 1e6) == (3, 1)


def test_nothing_left_is_no_final() -> None:
    found = run(FakeWorker({}, crash=(1, 2)), {1: 3.0}, {"a": 2})
    assert found.final is None and len(found.failed) == 2


def test_a_baseline_that_is_also_a_finalist_is_compared_once() -> None:
    worker = FakeWorker({1: 4.0, 2: 9.0})
    found = run(worker, {1: 4.0}, {"a": 1, "b": 2, "c": 1})
    assert worker.asked == [2] and found.final is not None
    assert found.final.baseline_us == {"a": 4.0, "b": 9.0, "c": 4.0}
    assert [v.outcome for v in found.final.verdicts] == ["tie", "faster", "tie"]


def test_what_is_near_the_front_is_timed_once_more_without_the_slow() -> None:
    worker = FakeWorker({1: 4.0, 2: 4.5, 3: 8.0})
    found = run(worker, {1: 1.0}, {"near": 2, "slow": 3})
    assert worker.asked == [3, 2] and found.final is not None
    assert found.final.best_us == 4.0
    assert found.final.baseline_us == {"near": 4.5, "slow": 8.0}
    verdicts = {v.other: v for v in found.final.verdicts}
    assert verdicts["slow"].ratio == 2.0 and verdicts["near"].ratio == pytest.approx(1.125)
    assert {v.outcome for v in verdicts.values()} == {"faster"}


def test_finalists_that_were_clearly_slower_are_not_timed_again() -> None:
    worker = FakeWorker({1: 4.0, 2: 4.1, 3: 4.5, 4: 8.0})
    found = run(worker, {1: 1.0, 2: 1.0, 3: 1.0}, {"slow": 4})
    assert worker.asked == [4, 2] and found.final is not None
    assert found.final.record.candidate_digest == candidate(1, "search").digest


def test_all_that_may_be_the_fastest_are_finalists_within_limits() -> None:
    few = [record(n, us) for n, us in enumerate((1.0, 2.0, 3.0, 4.0, 5.0, 6.0))]
    assert likely(few) == few[:5] and likely(few[:2]) == few[:2] and likely([]) == []
    near = [record(n, 1.0 + n / 100) for n in range(30)]
    assert len(likely(near[:8])) == 8 and len(likely(near)) == 11
    assert len(likely([record(n, 1.0) for n in range(30)])) == 12


def test_a_winner_that_fails_on_other_draws_is_none() -> None:
    worker = FakeWorker({1: 5.0, 2: 9.0}, spoiled=(1,))
    found = run(worker, {1: 5.0}, {"rule": 2})
    assert found.final is None
    (lost,) = found.failed
    assert lost.origin == "search" and lost.failure == CRASH and lost.timing is None
    assert winner(run(FakeWorker(worker.medians, spoiled=(2,)), {1: 5.0}, {"rule": 2})) == "search"
