"""Planning that is told to stop ends with a problem that has a plan, and says what it left."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from autofuse.backends.base import Artifact, Built, CompileError, Program
from autofuse.backends.ccompiler import compile_program
from autofuse.cost.bounds import NOMINAL
from autofuse.cover import k_best, plan
from autofuse.cover.order import cheap_plan
from autofuse.devices import DEVICES
from autofuse.enumerate.enumeration import CUT_SHORT, UNNAMED, enumerate_groups
from autofuse.enumerate.windows import windows
from autofuse.plan.fusion.legality import check_plan
from autofuse.records import Blame
from autofuse.tuning import Progress, budget, tune
from autofuse.tuning.budget import LEAST_SOLVING_S, Budget, Share, solving
from autofuse.tuning.job import tuner
from autofuse.tuning.search.candidates import candidate_kernels
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.exact import ExactSearch, Goal
from autofuse.tuning.search.regions import plan_by_bounds
from search_spaces import FusionSpace
from tests.support.exact_problems import least_cost, random_sample, runnable
from tests.support.planning_times import MIXED, after
from tests.support.slow_bench import SlowBench
from tests.support.toy_device import QUICK, TOY, toy_kind, workload
from tests.support.unrolled_plans import GRAPH as LOOP

STOPS = (0, 1, 2, 5, 10, 40, 100, 10_000)


def first(_: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
    return options[0]


@pytest.mark.parametrize("calls", STOPS)
def test_an_enumeration_cut_short_still_makes_a_plan(calls: int) -> None:
    given = FusionSpace(MIXED).choose(first)
    full = enumerate_groups(MIXED, include=[given])
    found = enumerate_groups(MIXED, include=[given], should_stop=after(calls))
    assert found.base == full.base <= set(found.groups)
    assert len(found.groups) < len(full.groups) or calls == 10_000
    assert set(given.groups) <= found.base
    assert found.cut_short == (CUT_SHORT in found.counts) == (calls < 10_000)
    cover = cover_problem(found)
    check_plan(MIXED, cover.plan(k_best(cover.problem)[0].plan))


@pytest.mark.parametrize("calls", STOPS)
def test_candidates_without_time_to_name_them_are_left_out_and_counted(calls: int) -> None:
    full = enumerate_groups(MIXED, include=[FusionSpace(MIXED).choose(first)])
    found = full.named(after(calls))
    assert full.base <= set(found.groups)
    left_out = len(full.groups) - len(found.groups)
    assert found.counts.get(UNNAMED, 0) == left_out and found.cut_short == (left_out > 0)
    assert [found.bounds_us[k] for k in range(len(found.groups))] == [
        bound for group, bound in zip(full.groups, full.bounds_us, strict=True)
        if group in set(found.groups)
    ]  # fmt: skip
    cover = cover_problem(found, digests=True)
    check_plan(MIXED, cover.plan(k_best(cover.problem)[0].plan))


@pytest.mark.parametrize("calls", STOPS)
def test_loops_keep_single_trips_and_the_ways_of_given_plans(calls: int) -> None:
    given = FusionSpace(LOOP).choose(lambda _, options: options[-1])
    found = candidate_kernels(LOOP, [given], NOMINAL, rules=("xla-2022",), should_stop=after(calls))
    full = candidate_kernels(LOOP, [given], NOMINAL, rules=("xla-2022",))
    assert set(given.groups) <= set(found.groups) <= set(full.groups)
    cover = cover_problem(found)
    check_plan(LOOP, cover.plan(k_best(cover.problem)[0].plan))


@pytest.mark.parametrize("calls", STOPS)
def test_fusing_everything_can_be_cut_short(calls: int) -> None:
    check_plan(MIXED, FusionSpace(MIXED).choose(first, after(calls)))
    check_plan(LOOP, FusionSpace(LOOP).choose(lambda _, options: options[-1], after(calls)))


@pytest.mark.parametrize("seed", range(12))
def test_a_solver_without_time_gives_a_plan_all_the_same(seed: int) -> None:
    case = random_sample(seed, failures=0.0)
    (best,) = k_best(case.problem, case.costs, 1)
    (found, *_) = k_best(case.problem, case.costs, 3, left_s=lambda: 0.0)
    assert runnable(case.problem, found.plan)
    assert found.cost_us >= best.cost_us * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_planning_without_time_to_solve_ends_with_a_true_bound(seed: int) -> None:
    case = random_sample(seed, failures=0.0)
    least = least_cost(case.problem, case.costs)
    found = plan(case.problem, case.measure, left_s=lambda: 0.0)
    assert least is not None and found.plan is not None and found.incumbent_us is not None
    assert runnable(case.problem, found.plan)
    assert found.bound_us <= least * (1 + 1e-6) and found.incumbent_us >= least * (1 - 1e-6)


def test_a_plan_without_a_solver_takes_the_cheap_way() -> None:
    # Value 2 by piece 2 from 0 and 1, or by piece 3 at once; 0 is free for neither.
    reads, writes = [(), (), (0, 1), ()], [(0,), (1,), (2,), (2,)]
    assert cheap_plan(reads, writes, [1.0, 1.0, 1.0, 9.0], range(4), [2]) == (0, 1, 2)
    assert cheap_plan(reads, writes, [1.0, 1.0, 9.0, 9.0], range(4), [2]) == (3,)
    assert cheap_plan(reads, writes, [1.0] * 4, [1, 2], [2]) is None


def test_tiles_share_the_time_there_is() -> None:
    found = enumerate_groups(MIXED)
    parts = windows(MIXED, 20, 4, found.supernodes)
    least = plan_by_bounds(found, parts, left_s=lambda: 0.0)
    assert sum(w.kind == "tile" for w in parts) > 1 and least is not None
    check_plan(MIXED, least)


# --- time by a clock that is told ---------------------------------------------------------------


def test_a_share_is_of_what_is_left_and_can_begin_anew() -> None:
    left = [100.0]
    share = Share(lambda: left[0], 0.25)
    left[0] = 80.0
    assert share.left_s() == pytest.approx(5.0) and not share.is_over()
    left[0] = 74.0
    assert share.is_over()
    share.renew()
    assert share.left_s() == pytest.approx(74.0 / 4)
    assert Share(lambda: math.inf, 0.5).left_s() == math.inf


def test_solving_has_a_moment_even_when_the_search_is_late() -> None:
    left = [-3.0]
    share = solving(lambda: left[0])
    assert share.left_s() == pytest.approx(LEAST_SOLVING_S)
    left[0] -= LEAST_SOLVING_S
    assert share.is_over()


def test_the_search_ends_at_once_when_the_user_says_so() -> None:
    said = [False]
    cap = Budget(50.0, stop=lambda: said[0])
    share = Share(lambda: cap.search_s, 0.2)
    assert cap.search_s > 0 and not share.is_over()
    said[0] = True
    assert cap.search_s < 0 and share.is_over()


@pytest.mark.parametrize("look_s", [1e-4, 0.02, 0.3])
def test_a_search_whose_plans_take_long_ends_in_time_and_measures(look_s: float) -> None:
    bench = SlowBench(MIXED, 20.0, look_s)
    found = ExactSearch(bench, Goal()).run()
    # One plan may be under way when time is up, and its whole is timed once more.
    assert bench.clock.now <= 20.0 + 2 * bench.PLAN_S + 100 * look_s
    assert bench.profiled and bench.profiled[0] <= 20.0 / 3 + bench.PLAN_S + 12 * look_s
    assert found.proof.planned_us is not None and found.proof.search_floor_us is not None
    assert found.proof.search_gap is not None
    said = any("enumeration stopped after" in note for note in found.notes)
    assert said == (CUT_SHORT in found.counts or UNNAMED in found.counts) == (look_s > 1e-3)


def test_a_budget_that_the_baselines_take_ends_without_a_search(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    passed = [0.0]
    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: passed[0]))
    monkeypatch.setattr(tuner, "time", SimpleNamespace(perf_counter=lambda: passed[0]))
    monkeypatch.setitem(DEVICES, "toy", toy_kind())
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))

    def told(progress: Progress) -> None:  # the first baseline to be measured takes all there is
        passed[0] += 19.0 if progress.phase == "baseline unfused" else 0.0

    found = tune(
        workload(), name="w", device="toy", db=str(tmp_path / "w.db"), budget_s=20.0,
        baselines=["unfused"], progress=told,
    )  # fmt: skip
    assert found.trials == 0 and found.verified and found.total_s <= 20.0
    assert "the baselines took all of the budget: nothing was searched" in found.notes


def test_after_a_plan_that_took_too_long_to_compile_the_least_fused_is_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused: list[Program] = []

    def hurried(program: Program, *, timeout_s: float = math.inf) -> Built[Artifact]:
        if not refused or program == refused[0]:
            refused.append(program)
            raise CompileError("no time was left to compile it", Blame.MACHINE)
        return compile_program(program, timeout_s=timeout_s)

    monkeypatch.setitem(DEVICES, "toy", toy_kind(replace(TOY, build=hurried)))
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))
    phases: list[str] = []
    names = ["xla-2022", "greedy-chains", "unfused"]
    tune(
        workload(), name="w", device="toy", db=str(tmp_path / "w.db"), budget_s=60.0,
        strategy="random", baselines=names, progress=lambda p: phases.append(p.phase),
        stop=lambda: "baseline unfused" in phases,
    )  # fmt: skip
    measured = [phase for phase in phases if phase.startswith("baseline ")]
    assert refused and measured[0] == "baseline unfused"


def test_equal_plans_that_were_cut_short_are_not_tried_in_ever_less_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits: list[float] = []

    def slow(program: Program, *, timeout_s: float = math.inf) -> Built[Artifact]:
        limits.append(timeout_s)
        raise CompileError("no time was left to compile it", Blame.MACHINE)

    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setattr(tuner, "time", SimpleNamespace(perf_counter=lambda: 0.0))
    monkeypatch.setitem(DEVICES, "toy", toy_kind(replace(TOY, build=slow)))
    found = tune(
        workload(), device="toy", db=str(tmp_path / "w.db"), budget_s=40.0,
        strategy="random", baselines=["tvm", "unfused", "nnc"], stop=lambda: bool(limits[3:]),
    )  # fmt: skip
    assert not found.is_timed and any("no time was left" in note for note in found.notes)
    # 40 s and a tenth less the reserve of 6 s, and what writing the text took: all of it for what
    # serves untuned, twice, and half for tvm; nnc plans this graph alike.
    half, whole = pytest.approx(19.0, abs=9.0), pytest.approx(38.0, abs=9.0)
    assert limits[:4] == [whole, whole, half, whole]
