"""Baselines cost what they are worth: kernels are timed once, and what cannot win is predicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autofuse.baselines import BASELINES
from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Blame, Failure, FailureKind, Measurement
from autofuse.tuning.job import rule_plans
from autofuse.tuning.job.calibrating import Peaks
from autofuse.tuning.job.job import Job
from autofuse.tuning.job.rule_plans import RulePlans
from autofuse.tuning.job.rules import Ruled, RulesAsked, measure_rules
from autofuse.tuning.options import ALL, FAST
from autofuse.tuning.plans import DEFAULT_PLAN, baseline_candidate
from autofuse.tuning.search.prices import Prices
from benchmarks.planning import mixed
from tests.support.slow_bench import SlowBench, twice_the_bound

GRAPH = canonical(mixed(24))
TimeOf = Callable[[Graph, FusionGroup, LaunchConfig], float]


class RulesJob(SlowBench):
    """What measuring baselines asks of a job, by a clock."""

    max_memory = None

    def __init__(self, seconds: float, time_us: TimeOf = twice_the_bound) -> None:
        super().__init__(GRAPH, seconds, 1e-6, time_us)
        self.peaks = Peaks(NOMINAL, NOMINAL)
        self.at_hand: list[Candidate] = []
        self.baselines: dict[str, Measurement] = {}
        self.plans: dict[str, FusionPlan] = {}
        self.measured: list[str] = []
        self.evaluator = SimpleNamespace(start=lambda first, until_s: None)
        self.stored: dict[str, Measurement] = {}
        self.budget = cast(Any, self)

    @property
    def elapsed_s(self) -> float:
        return self.clock()

    reserve_s = 0.0

    def stop(self) -> bool:
        return False

    @property
    def room_s(self) -> float:
        return max(self.left_s(), 0.0)

    def impatience(self, until_s: float) -> Callable[[], bool]:
        return lambda: self.clock() > until_s

    def show(self, phase: str) -> None:
        pass

    def record_fits(self, record: Measurement) -> bool:
        return True

    def measure_now(self, candidate: Candidate, stage: str, until_s: float) -> Measurement:
        self.measured.append(candidate.origin)
        return self.measure(candidate)


def ruled(job: RulesJob, wish: str | tuple[str, ...] = FAST) -> Ruled:
    return measure_rules(cast(Job, job), RulesAsked.of(wish))


def distinct() -> set[str]:
    return {baseline_candidate(GRAPH, n, RulesJob.space)[0].digest for n in BASELINES}


def test_all_are_run_where_all_or_names_are_asked_for() -> None:
    job = RulesJob(1e4)
    found = ruled(job, ALL)
    assert set(job.baselines) == set(BASELINES) and not found.predicted and not found.left_out
    named = RulesJob(1e4)
    assert ruled(named, ("unfused", "tvm")).predicted == {} and set(named.baselines) == {
        "unfused", "tvm",
    }  # fmt: skip
    with pytest.raises(AutofuseError, match="unknown baseline 'nothing'"):
        RulesAsked.of("nothing")
    assert RulesAsked.of(()) == RulesAsked.of(FAST) != RulesAsked.of(ALL)


def test_what_cannot_win_is_predicted_and_the_winner_is_run() -> None:
    full = RulesJob(1e4)
    ruled(full, ALL)
    times = {n: m.timing.median_us for n, m in full.baselines.items() if m.timing is not None}
    job = RulesJob(1e4)
    found = ruled(job)
    assert len(job.measured) < len(distinct())
    assert set(job.baselines) | set(found.predicted) == set(BASELINES) and not found.left_out
    least = min(times, key=lambda n: times[n])
    run = {m.candidate_digest for m in job.baselines.values()}
    assert baseline_candidate(GRAPH, least, job.space)[0].digest in run
    for name, told in found.predicted.items():
        assert told.us == pytest.approx(times[name], rel=0.5) and told.us > times[least]
        assert name in job.plans  # their kernels are candidates


def test_a_plan_of_kernels_that_were_timed_is_their_sum() -> None:
    def by_size(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
        return len(group.nodes) * group_bound_us(graph, group, NOMINAL)

    job = RulesJob(1e4, by_size)
    one, _ = baseline_candidate(GRAPH, "unfused", job.space)
    two, _ = baseline_candidate(GRAPH, "xla-2022", job.space)
    prices = Prices(job, [one.plan, two.plan], NOMINAL)
    before = prices.of(two)
    assert before.unknown == len(two.plan.groups) and before.least_us < before.us
    assert prices.learn(one) and prices.learn(two)
    wanted = sum(by_size(GRAPH, g, LaunchConfig()) for g in two.plan.groups)
    assert prices.of(two).unknown == 0 and prices.of(two).us == pytest.approx(wanted)


def test_without_time_to_run_them_others_are_predicted_not_left_out() -> None:
    job = RulesJob(4 * SlowBench.PLAN_S)
    found = ruled(job)
    assert job.baselines and not found.left_out
    assert any("no time was left to run" in note for note in found.notes)
    assert set(job.baselines) | set(found.predicted) == set(BASELINES)


def test_no_baseline_is_run_late_where_a_plan_works_already(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = RulesJob(1e4)
    untuned, _ = baseline_candidate(GRAPH, "xla-2022", RulesJob.space)
    job.stored[untuned.digest] = job.measure(untuned)

    def slow(graph: Graph, name: str, space: object) -> object:
        job.clock.now += 0.3 * job.seconds
        return baseline_candidate(graph, name, RulesJob.space)

    monkeypatch.setattr(rule_plans, "baseline_candidate", slow)
    found = ruled(job)
    assert job.measured == [] and set(found.left_out) == set(BASELINES)
    job.stored.clear()
    ruled(job)
    assert len(job.measured) == 1


def test_only_one_gets_seconds_beyond_a_budget_that_is_over() -> None:
    late = Failure(FailureKind.COMPILE, "no time", Blame.MACHINE)

    class Late(RulesJob):
        def measure_now(self, candidate: Candidate, stage: str, until_s: float) -> Measurement:
            self.measured.append(candidate.origin)
            return replace(self.measure(candidate), timing=None, failure=late)

    job = Late(10.0)
    planned = RulePlans(cast(Job, job), tuple(BASELINES))
    planned.plan(lambda: False)
    job.clock.now += 2 * job.seconds
    measure_rules(cast(Job, job), RulesAsked.of(FAST), planned)
    assert len(job.measured) == 1


def test_what_serves_alone_is_planned_first(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []

    def noted(graph: Graph, name: str, space: object) -> object:
        planned.append(name)
        return baseline_candidate(graph, name, RulesJob.space)

    monkeypatch.setattr(rule_plans, "baseline_candidate", noted)
    ruled(RulesJob(1e4))
    assert planned[0] == DEFAULT_PLAN and sorted(planned) == sorted(BASELINES)


def test_what_was_measured_before_comes_first_and_prices_the_others() -> None:
    class Remembering(RulesJob):
        def known(self, candidate: Candidate) -> Measurement | None:
            return self.stored.get(candidate.digest)

        def show(self, phase: str) -> None:
            shown.append(phase)

    shown: list[str] = []
    job = Remembering(1e4)
    served, _ = baseline_candidate(GRAPH, DEFAULT_PLAN, RulesJob.space)
    job.stored[served.digest] = job.measure(served)
    ruled(job)
    run = [phase for phase in shown if not phase.startswith("planning")]
    assert run[0] == f"baseline {DEFAULT_PLAN}"
    assert DEFAULT_PLAN not in job.measured and len(job.profiled) == len(job.measured) + 1


def test_a_plan_is_no_faster_for_having_the_kernels_of_the_fastest() -> None:
    job = RulesJob(1e4)
    one, _ = baseline_candidate(GRAPH, "unfused", job.space)
    prices = Prices(job, [one.plan], NOMINAL)
    took_us = prices.of(one).us
    assert prices.learn(one, took_us) and len(job.profiled) == 1
    price = prices.of(one)  # noise of kernels that both have is no gain
    assert price.unknown == 0 and price.least_us == pytest.approx(min(took_us, price.us))
    assert prices.learn(one, took_us) and len(job.profiled) == 1  # all of it is known
