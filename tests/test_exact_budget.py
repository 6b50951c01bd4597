"""When measuring still pays: a pure rule over the certified gain."""

from __future__ import annotations

import math

import pytest

from autofuse.cover import certified_gain_s, worth_measuring


def test_the_gain_is_what_all_runs_could_save():
    assert certified_gain_s(150.0, 100.0, 1e6) == pytest.approx(50.0)
    assert certified_gain_s(None, 100.0, 1.0) == math.inf


def test_a_bound_above_the_incumbent_is_no_loss():
    assert certified_gain_s(100.0, 101.0, 1e6) == 0.0


def test_without_a_number_of_runs_everything_is_measured():
    assert worth_measuring(100.0, 99.9, None, [10.0, 20.0]) == 2


def test_without_an_incumbent_measuring_goes_on():
    assert worth_measuring(None, 0.0, 1.0, [100.0]) == 1


def test_the_whole_batch_must_pay():
    # 10 us a run over a million runs: 10 seconds.
    assert worth_measuring(110.0, 100.0, 1e6, [4.0, 6.0]) == 2
    assert worth_measuring(110.0, 100.0, 1e6, [4.0, 6.1]) == 0
    assert worth_measuring(110.0, 100.0, 1e3, [4.0]) == 0


@pytest.mark.parametrize("incumbent", [101.0, 120.0, 200.0])
def test_more_runs_never_stop_earlier(incumbent):
    batches = [worth_measuring(incumbent, 100.0, 10.0**e, [0.5, 0.5, 0.5]) for e in range(9)]
    assert batches == sorted(batches)
    assert batches[0] == 0 and batches[-1] == 3
