"""Where the next second of tuning goes, and when none pays any more."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autofuse.tuning.search.allocation import (
    Allocation,
    Expectations,
    Next,
    Outlook,
    bias_of,
    expected_improvement_us,
    repays,
    round_gain_us,
)
from benchmarks.budgets import bench_budgets

SPACES = Path(__file__).parent / "data" / "spaces"


def test_the_bias_is_the_mean_ratio_and_narrows_with_what_is_known() -> None:
    few = bias_of([("", 20.0, 10.0)])
    many = bias_of([("", 20.0, 10.0)] * 50)
    assert few.time_us("", 10.0) == pytest.approx(20.0) == many.time_us("", 10.0)
    assert many.spread < few.spread
    assert few.time_us("", 10.0, -1.0) < few.time_us("", 10.0) < few.time_us("", 10.0, 1.0)
    assert bias_of([]).time_us("", 7.0) == pytest.approx(7.0)


def test_kinds_have_a_bias_of_their_own_where_they_were_seen() -> None:
    seen = [("map", 10.0, 10.0)] * 20 + [("fold", 40.0, 10.0)] * 20
    bias, mixed = bias_of(seen), bias_of([("", us, bound) for _, us, bound in seen])
    assert bias.time_us("map", 10.0) == pytest.approx(10.0, rel=0.1)
    assert bias.time_us("fold", 10.0) == pytest.approx(40.0, rel=0.1)
    assert bias.time_us("never seen", 10.0) == pytest.approx(20.0) == mixed.time_us("", 10.0)
    assert bias.spread < mixed.spread / 2
    once = bias_of([*seen[:20], ("fold", 40.0, 10.0)])
    assert bias.time_us("map", 10.0) < once.time_us("fold", 10.0) < 40.0


def test_expectations_are_believed_as_far_as_they_were_met() -> None:
    fresh = Expectations()
    assert fresh.trust == 1.0
    assert fresh.met(2.0, 0.0).trust == pytest.approx(1 / 2)
    assert fresh.met(2.0, 0.0).met(2.0, 0.0).trust == pytest.approx(1 / 3)
    assert fresh.met(2.0, 2.0).trust == 1.0 < fresh.met(2.0, 6.0).trust


def test_the_expected_improvement_falls_with_the_bound_and_is_never_negative() -> None:
    bias = bias_of([("", 20.0, 10.0)] * 4)
    worse, equal, better = (
        expected_improvement_us(40.0, 10.0, [("", bound)], bias) for bound in (60.0, 15.0, 5.0)
    )
    assert 0 <= worse < equal < better
    assert better == pytest.approx(40.0 - 20.0, rel=0.05)
    assert expected_improvement_us(40.0, 10.0, [], bias) == 0.0


def test_less_is_expected_of_rounds_after_rounds_in_vain() -> None:
    gains = [round_gain_us(100.0, vain) for vain in range(4)]
    assert gains == sorted(gains, reverse=True) and gains[0] < 100.0 and gains[3] > 0


def test_many_runs_repay_what_few_do_not() -> None:
    assert not repays(1.0, 100, 0.5) and repays(1.0, 1_000_000, 0.5)
    assert repays(0.0, None, 1.0) and repays(math.inf, 1, 1.0)


def test_few_runs_end_the_search_early_and_cost_little_more_than_hindsight() -> None:
    paths = [SPACES / f"{name}.jsonl.gz" for name in ("batch_norm", "layer_norm_gelu-small")]
    rows = bench_budgets(paths, (100, 1_000_000))
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        assert few.tuned_s < many.tuned_s
        assert few.ratio <= 1.1 and many.ratio <= 1.1


# --- planning against launch configurations -------------------------------------------------------


def never() -> Outlook:
    raise AssertionError("asked again with nothing new")


def judged(allocation: Allocation, known: int, outlook: Outlook, may_yield: bool = True) -> Next:
    return allocation.judge(known, lambda: outlook, 1.0, may_yield=may_yield)


def test_planning_goes_on_while_more_is_expected_of_it_than_of_a_round() -> None:
    allocation = Allocation(None)
    assert judged(allocation, 0, Outlook()) is Next.PLANNING
    assert judged(allocation, 1, Outlook(100.0, 50.0)) is Next.PLANNING
    assert allocation.judge(1, never, 1.0, may_yield=True) is Next.PLANNING


def test_planning_yields_to_rounds_and_only_after_a_round_again() -> None:
    allocation = Allocation(None)
    assert judged(allocation, 1, Outlook(100.0, 0.1)) is Next.LAUNCHES
    assert allocation.is_planning_due(Outlook(100.0, 50.0), 100.0)
    assert not allocation.is_planning_due(Outlook(100.0, 0.1), 100.0)
    allocation.begin_planning()
    assert judged(allocation, 1, Outlook(100.0, 0.1), may_yield=False) is Next.PLANNING
    allocation.round_done(gained=False)
    allocation.begin_planning()
    assert judged(allocation, 2, Outlook(100.0, 0.1)) is Next.LAUNCHES


def test_runs_end_what_they_do_not_repay() -> None:
    for runs, comes in ((100, Next.NOTHING), (100_000_000, Next.PLANNING)):
        allocation = Allocation(runs)
        assert judged(allocation, 1, Outlook(100.0, 50.0), may_yield=False) is comes
        assert allocation.round_repays(2.0, 1.0) is (comes is Next.PLANNING)


def test_expectations_not_met_are_believed_less_and_a_better_plan_earns_new_rounds() -> None:
    allocation = Allocation(None, vain=5)
    judged(allocation, 1, Outlook(100.0, 10.0), may_yield=False)
    assert allocation.gain_us(Outlook(100.0, 10.0)) == 10.0
    judged(allocation, 2, Outlook(100.0, 10.0), may_yield=False)
    assert allocation.gain_us(Outlook(100.0, 10.0)) == pytest.approx(5.0) and allocation.vain == 5
    judged(allocation, 3, Outlook(80.0, 10.0), may_yield=False)
    assert allocation.gain_us(Outlook(80.0, 10.0)) == pytest.approx(10.0) and allocation.vain == 0
    # What launch configurations gained was not expected of a plan.
    allocation.begin_planning()
    judged(allocation, 4, Outlook(40.0, 10.0), may_yield=False)
    assert allocation.expectations.count == 2


def test_planning_is_owed_half_of_the_time_until_its_plan_is_proved() -> None:
    allocation = Allocation(None, planning_s=2.0, rounds_s=3.0)
    assert allocation.owes_proof(None) and allocation.owes_proof(0.3)
    assert not allocation.owes_proof(0.0)
    allocation.planning_s = 3.0
    assert not allocation.owes_proof(0.3)
