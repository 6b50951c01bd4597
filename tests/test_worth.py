"""When more tuning pays: expected gains, and total costs on recorded spaces."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from autofuse.tuning.worth import Promises, expected_gain_us, pace_of, pays, round_gain_us
from benchmarks.budgets import bench_budgets

SPACES = Path(__file__).parent / "data" / "spaces"


def test_the_pace_is_the_mean_ratio_and_narrows_with_what_is_known() -> None:
    few = pace_of([("", 20.0, 10.0)])
    many = pace_of([("", 20.0, 10.0)] * 50)
    assert few.time_us("", 10.0) == pytest.approx(20.0) == many.time_us("", 10.0)
    assert many.spread < few.spread
    assert few.time_us("", 10.0, -1.0) < few.time_us("", 10.0) < few.time_us("", 10.0, 1.0)
    assert pace_of([]).time_us("", 7.0) == pytest.approx(7.0)


def test_kinds_have_paces_of_their_own_where_they_were_seen() -> None:
    seen = [("map", 10.0, 10.0)] * 20 + [("fold", 40.0, 10.0)] * 20
    pace, mixed = pace_of(seen), pace_of([("", us, bound) for _, us, bound in seen])
    assert pace.time_us("map", 10.0) == pytest.approx(10.0, rel=0.1)
    assert pace.time_us("fold", 10.0) == pytest.approx(40.0, rel=0.1)
    assert pace.time_us("never seen", 10.0) == pytest.approx(20.0) == mixed.time_us("", 10.0)
    assert pace.spread < mixed.spread / 2
    once = pace_of([*seen[:20], ("fold", 40.0, 10.0)])
    assert pace.time_us("map", 10.0) < once.time_us("fold", 10.0) < 40.0


def test_promises_are_believed_as_far_as_they_were_kept() -> None:
    fresh = Promises()
    assert fresh.trust == 1.0
    assert fresh.kept(2.0, 0.0).trust == pytest.approx(1 / 2)
    assert fresh.kept(2.0, 0.0).kept(2.0, 0.0).trust == pytest.approx(1 / 3)
    assert fresh.kept(2.0, 2.0).trust == 1.0 < fresh.kept(2.0, 6.0).trust


def test_the_expected_gain_grows_with_promise_and_is_never_negative() -> None:
    pace = pace_of([("", 20.0, 10.0)] * 4)
    worse, equal, better = (
        expected_gain_us(40.0, 10.0, [("", bound)], pace) for bound in (60.0, 15.0, 5.0)
    )
    assert 0 <= worse < equal < better
    assert better == pytest.approx(40.0 - 20.0, rel=0.05)
    assert expected_gain_us(40.0, 10.0, [], pace) == 0.0


def test_rounds_in_vain_promise_less() -> None:
    gains = [round_gain_us(100.0, vain) for vain in range(4)]
    assert gains == sorted(gains, reverse=True) and gains[0] < 100.0 and gains[3] > 0


def test_many_runs_pay_for_what_few_do_not() -> None:
    assert not pays(1.0, 100, 0.5) and pays(1.0, 1_000_000, 0.5)
    assert pays(0.0, None, 1.0) and pays(math.inf, 1, 1.0)


def test_few_runs_end_the_search_early_and_cost_little_more_than_hindsight() -> None:
    paths = [SPACES / f"{name}.jsonl.gz" for name in ("batch_norm", "layer_norm_gelu-small")]
    rows = bench_budgets(paths, (100, 1_000_000))
    for few, many in zip(rows[::2], rows[1::2], strict=True):
        assert few.tuned_s < many.tuned_s
        assert few.ratio <= 1.1 and many.ratio <= 1.1
