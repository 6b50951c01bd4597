"""Work that nobody waits for is called off, wherever it is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from autofuse import faults
from autofuse.baselines import BASELINES
from autofuse.cost.bounds import NOMINAL, plan_bound_us
from autofuse.devices import device_named
from autofuse.patience import CalledOffError, look, within
from autofuse.records import Blame
from autofuse.tuning import budget
from autofuse.tuning.budget import Budget
from autofuse.tuning.evaluate import build
from autofuse.tuning.plans import baseline_candidate, plainest_candidate, untuned_candidate
from tests.support.planning_times import MIXED, after

CPU = device_named("cpu")


def test_work_ends_where_it_looks_and_only_inside() -> None:
    def work() -> int:
        look()
        return 1

    assert within(lambda: False, work) == 1
    assert within(lambda: True, work) is None
    look()  # nobody has set an end


def test_patience_of_a_part_never_outlasts_that_of_the_whole() -> None:
    def whole() -> str:
        assert within(lambda: False, look) is None
        look()
        return "never"

    assert within(lambda: True, whole) is None
    assert within(lambda: False, lambda: within(lambda: True, look) or "went on") == "went on"


def test_what_guards_against_faults_does_not_stop_it() -> None:
    def guarded() -> None:
        with faults.guarded("planning"):
            look()

    assert within(lambda: True, guarded) is None
    assert not issubclass(CalledOffError, Exception)


@pytest.mark.parametrize("name", BASELINES)
def test_every_rule_can_be_called_off_and_asked_again(name: str) -> None:
    assert within(after(0), lambda: baseline_candidate(MIXED, name, CPU.space)) is None
    found, _ = baseline_candidate(MIXED, name, CPU.space)
    assert within(after(0), lambda: plan_bound_us(MIXED, found.plan, NOMINAL)) is None


def test_what_serves_untuned_programs_can_be_called_off() -> None:
    assert within(after(3), lambda: untuned_candidate(MIXED, CPU)) is None


def test_a_plan_that_is_not_written_in_time_is_the_machines_fault() -> None:
    found = build(CPU.backend, MIXED, plainest_candidate(MIXED), 0.0)
    assert found.failure is not None and found.failure.blame is Blame.MACHINE
    assert "was not written" in found.failure.message


def test_who_wants_to_end_is_heard_after_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, asked = [0.0], list[int]()
    monkeypatch.setattr(budget, "time", SimpleNamespace(perf_counter=lambda: passed[0]))

    def stop() -> bool:
        asked.append(1)
        return True

    is_over = Budget(20.0, stop=stop).impatience(5.0)
    assert not is_over() and not asked
    passed[0] = 1.1
    assert is_over() and asked
    calm = Budget(20.0, 0.0).impatience(5.0)
    assert not calm()
    passed[0] = 5.1
    assert calm()
