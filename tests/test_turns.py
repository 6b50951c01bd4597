"""Planning and launch configurations take turns, and both end when they no longer pay."""

from __future__ import annotations

import pytest

from autofuse.tuning.turns import Outlook, Turns


def never() -> Outlook:
    raise AssertionError("asked again with nothing new")


def test_planning_goes_on_while_it_promises_more_than_a_round() -> None:
    turns = Turns(None)
    assert not turns.is_enough(0, Outlook, 1.0)
    assert not turns.is_enough(1, lambda: Outlook(100.0, 50.0), 1.0)
    assert not turns.is_enough(1, never, 1.0)


def test_planning_pauses_once_and_ends_without_a_round_in_between() -> None:
    turns = Turns(None)
    assert turns.is_enough(1, lambda: Outlook(100.0, 0.1), 1.0) and turns.is_paused
    assert turns.is_planning_due(Outlook(100.0, 50.0), 100.0)
    assert not turns.is_planning_due(Outlook(100.0, 0.1), 100.0)
    turns.may_pause = False
    turns.begin_planning()
    assert not turns.is_enough(1, lambda: Outlook(100.0, 0.1), 1.0)
    turns.round_done(gained=False)
    turns.begin_planning()
    assert turns.is_enough(2, lambda: Outlook(100.0, 0.1), 1.0) and turns.is_paused


def test_runs_end_what_they_do_not_repay() -> None:
    for runs, enough in ((100, True), (100_000_000, False)):
        turns = Turns(runs, may_pause=False)
        assert turns.is_enough(1, lambda: Outlook(100.0, 50.0), 1.0) is enough
        assert turns.round_pays(2.0, 1.0) is not enough


def test_promises_in_vain_are_believed_less_and_a_better_plan_earns_new_rounds() -> None:
    turns = Turns(None, vain=5, may_pause=False)
    turns.is_enough(1, lambda: Outlook(100.0, 10.0), 1.0)
    assert turns.gain_us(Outlook(100.0, 10.0)) == 10.0
    turns.is_enough(2, lambda: Outlook(100.0, 10.0), 1.0)
    assert turns.gain_us(Outlook(100.0, 10.0)) == pytest.approx(5.0) and turns.vain == 5
    turns.is_enough(3, lambda: Outlook(80.0, 10.0), 1.0)
    assert turns.gain_us(Outlook(80.0, 10.0)) == pytest.approx(10.0) and turns.vain == 0
    # What launch configurations gained was not promised by a plan.
    turns.begin_planning()
    turns.is_enough(4, lambda: Outlook(40.0, 10.0), 1.0)
    assert turns.promises.count == 2
