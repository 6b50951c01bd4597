"""Races: when sampling ends because nothing is left to decide, and what a run is then worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import spec, trace, xp
from autofuse.backends.base import Artifact
from autofuse.graph.reference import evaluate
from autofuse.measure.device import Arrays, CheckedRun
from autofuse.measure.timing.racing import RACE, STEPS, Race, has_lost
from autofuse.measure.timing.sampling import (
    ProfileSamples,
    Sampling,
    Stopwatch,
    collect,
    collect_profile,
)
from autofuse.measure.worker.process import WorkloadRunner
from autofuse.measure.worker.protocol import MeasureJob, ProfileJob
from autofuse.measure.workload import Workload
from autofuse.ops.types import TensorType
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.bench import KnownKernel, Profiled
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.profiling import LEAST_SHARE, Kernels
from tests.support.slow_bench import SlowBench

FEW, NEAR = STEPS[0][0], STEPS[-1][1]


class Times:
    """Calls that take these microseconds by a clock of their own, in turn."""

    def __init__(self, us: Sequence[float]) -> None:
        self.us, self.calls, self.now = us, 0, 0.0

    def __call__(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += self.us[self.calls % len(self.us)] * 1e-6
        self.calls += 1


def sampled(us: Sequence[float], rival_us: float, **settings: Any) -> Any:
    clock = Times(us)
    sampling = Sampling("cold", race=Race(plan_us=rival_us), **settings)
    return collect(Stopwatch(clock.call, lambda: None, "cold", 1, clock), sampling)


def test_who_is_far_behind_is_dropped_at_once_and_who_is_behind_a_little_later() -> None:
    assert [sampled([us], 100.0).n for us in (400.0, 151.0, 149.0, 111.0)] == [4, 4, 8, 8]
    assert {sampled([us], 100.0).stopped for us in (400.0, 111.0)} == {RACE}
    even = sampled([109.0], 100.0)
    assert (even.n, even.stopped) == (12, "noise"), "close behind is for the finals to decide"


def test_a_new_best_and_what_has_no_rival_get_all_their_samples() -> None:
    for rival in (100.0, math.inf):
        fast = sampled([50.0, 80.0, 65.0], rival, noise=0.0, maximum=40)
        assert (fast.n, fast.stopped) == (40, "samples")


def test_one_quick_sample_keeps_a_candidate_in_the_race() -> None:
    assert not has_lost([500.0] * 7 + [105.0], 100.0) and has_lost([500.0] * 8, 100.0)
    assert not has_lost([500.0] * (FEW - 1), 100.0)


def test_a_long_call_is_sampled_for_about_twenty_times_its_own_time() -> None:
    noisy = [20e3, 40e3, 30e3]
    found = sampled(noisy, math.inf, noise=0.0)
    assert (found.n, found.stopped) == (20, "enough")
    assert sampled(noisy, math.inf, noise=0.0, minimum=60, maximum=60, wall_s=9.0).n == 60
    short = sampled([20.0, 40.0, 30.0], math.inf, noise=0.0)
    assert (short.n, short.stopped) == (300, "samples"), "there is time for more of a short one"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.floats(1.0, 1e6), min_size=1, max_size=50),
    st.one_of(st.just(math.inf), st.floats(1.0, 1e6)),
)
def test_what_was_dropped_is_never_the_best_and_the_best_has_enough_samples(
    us: list[float], rival_us: float
) -> None:
    found = sampled(us, rival_us, wall_s=1e9)
    if found.stopped == RACE:
        assert found.median_us > NEAR * rival_us
    else:
        assert found.n >= Sampling().minimum


def test_an_equal_is_seldom_dropped_and_a_slower_one_mostly() -> None:
    draw, dropped = np.random.default_rng(0), {1.0: 0, 1.3: 0}
    for slower in dropped:
        for _ in range(1000):
            noise = np.exp(np.abs(draw.normal(0, 0.1, 40)) + draw.normal(0, 0.02, 40))
            rival = 100.0 * float(np.median(noise))
            shuffled = draw.permutation(noise)
            dropped[slower] += sampled(100.0 * slower * shuffled, rival).stopped == RACE
    assert dropped[1.0] == 0 and dropped[1.3] > 700


def profiled(groups: Sequence[Sequence[float]], race: Race) -> ProfileSamples:
    """Of groups that take these microseconds, call by call."""
    clock, calls = Times([1000.0]), iter(range(10**6))

    def call() -> np.ndarray:
        clock.call()
        at = next(calls)
        return np.array([us[at % len(us)] for us in groups])

    return collect_profile(call, lambda: None, Sampling(warmup_s=0.0, race=race), clock)


def test_a_profile_ends_when_every_group_has_lost() -> None:
    groups = ([300.0], [50.0], [7.0])
    lost = profiled(groups, Race((100.0, 10.0, 0.0), 100.0))
    assert lost.stopped == RACE and lost.us.shape == (4, 3)
    for open_ in (Race((100.0, 10.0, 0.0)), Race((100.0, 49.0, 0.0), 1.0), Race(plan_us=1.0)):
        found = profiled(groups, open_)
        assert found.stopped == "noise" and len(found.us) == 12


# --- what a worker does for it -----------------------------------------------------------------


@dataclass
class Honest:
    """A device on which every program does what it should, and that counts what it was asked."""

    graph: Any
    broken: bool = False
    asked: list[str] = field(default_factory=list)
    inputs: Arrays = ()

    def open(self, inputs: Arrays, outputs: Sequence[TensorType]) -> None:
        self.inputs = inputs

    @contextmanager
    def load(self, artifact: Any) -> Iterator[Any]:
        self.asked.append("load")
        yield artifact

    def run(self, loaded: Any, *, elsewhere: bool = False) -> CheckedRun:
        self.asked.append("run elsewhere" if elsewhere else "run")
        return self._made()

    def left(self) -> CheckedRun:
        return self._made()

    def _made(self) -> CheckedRun:
        with np.errstate(all="ignore"):
            found = evaluate(self.graph, self.inputs)
            stored = tuple(
                a.astype(t.dtype.numpy) for a, t in zip(found, self.graph.output_types, strict=True)
            )
        return CheckedRun(self.inputs, stored, True)

    def watch(self, loaded: Any, sampling: Sampling) -> Stopwatch:
        clock = Times([100.0])
        return Stopwatch(clock.call, lambda: None, "cold", 1, clock)

    def profile(self, loaded: Any, groups: int, sampling: Sampling) -> ProfileSamples:
        us = np.array([[300.0, 50.0]] * 8)
        return ProfileSamples(us, "call", "noise")


@pytest.fixture
def runner(tmp_path: Path) -> WorkloadRunner:
    graph = trace(lambda x: xp.maximum(x * 2.0, 0.5), spec((64, 32)))
    return WorkloadRunner(Workload(graph), tmp_path / "reference.npz", Honest(graph))


def program(runner: WorkloadRunner, name: str) -> Artifact:
    graph = runner.workload.graph
    return Artifact(Path(name), "run", graph.input_types, graph.output_types, (), 0)


def test_known_kernels_need_one_checked_run_and_new_ones_all_draws(runner: WorkloadRunner) -> None:
    asked, draws = runner.device.asked, len(runner.draws)
    assert draws == 6
    known = runner.measure(MeasureJob(program(runner, "a"), Sampling(), draws=False))
    assert known.timing is not None and asked == ["load", "run"]
    asked.clear()
    assert runner.measure(MeasureJob(program(runner, "a"), Sampling())).timing is not None
    assert asked.count("run") == 1 and asked.count("run elsewhere") == draws + 1
    asked.clear()
    assert runner.measure(MeasureJob(program(runner, "a"), None)).failure is None
    assert asked == ["load", "run", "run elsewhere"], "it passed on all draws in this process"


def test_a_profile_says_of_each_group_which_rule_ended_it(runner: WorkloadRunner) -> None:
    sampling = Sampling(race=Race((100.0, math.inf), 100.0))
    found = runner.profile(ProfileJob(program(runner, "b"), 2, sampling, draws=False))
    assert [(t.stopped, t.n, t.median_us) for t in found.groups] == [
        (RACE, 8, 300.0),
        ("noise", 8, 50.0),
    ]
    assert found.total is not None and found.total.stopped == RACE


# --- what a search races with ------------------------------------------------------------------


class RacingBench(SlowBench):
    """Notes with what the kernels of a plan compete; `told` is known of earlier jobs."""

    told: Sequence[KnownKernel] = ()

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        self.rivals_us = tuple(rivals_us)
        return super().profile(candidate, rivals_us)

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        return iter(self.told)


def searching(told: Sequence[KnownKernel] = ()) -> tuple[RacingBench, Kernels, FusionPlan]:
    graph = normal_form(trace(lambda x: xp.softmax(xp.exp(x), axis=-1), spec((64, 512))))
    plan = baseline_plan(graph, "unfused")[0]
    keys = {group: str(k) for k, group in enumerate(plan.groups)}
    bench = RacingBench(graph, 60.0, 0.0)
    bench.told = told
    return bench, Kernels(bench, keys, dict.fromkeys(keys.values(), 1.0)), plan


def test_a_kernel_races_with_its_own_best_and_one_that_is_known_with_nobody() -> None:
    bench, kernels, plan = searching()
    assert kernels.profile(plan, {})
    assert set(bench.rivals_us) == {math.inf}
    (asked,) = kernels.draw_rounds(plan, 1)
    kernels.tune_launches(plan, asked)
    best = [kernels.by_key[key].first_us for key in kernels.keys(plan)]
    heavy = [us >= LEAST_SHARE * sum(best) for us in best]
    assert any(heavy)
    assert bench.rivals_us == tuple(
        us if trial else 0.0 for us, trial in zip(best, heavy, strict=True)
    )


def test_what_was_dropped_in_an_earlier_job_is_no_best_without_its_rival() -> None:
    fast, slow = LaunchConfig.of(vector=8), LaunchConfig.of(vector=4)
    _, kernels, _ = searching([KnownKernel("0", slow, 9.0, dropped=True)])
    assert not kernels.by_key["0"].us, "few samples: it is measured again if it is of interest"
    both = [KnownKernel("0", fast, 3.0), KnownKernel("0", slow, 9.0, dropped=True)]
    _, kernels, _ = searching(both)
    assert kernels.by_key["0"].us == {fast: 3.0, slow: 9.0}
