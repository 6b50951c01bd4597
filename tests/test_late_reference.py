"""No program is left without a plan: the reference may be late, the result is not."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.base import Artifact, Built, CompileError, Program
from autofuse.devices import DEVICES
from autofuse.fleet.engine import TuneSlice, tune_slice
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.measure.first_check import first_check
from autofuse.measure.truth import references
from autofuse.measure.worker import child
from autofuse.measure.worker.session import LateReferenceError, Worker
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.records import UNVERIFIED, WRONG, Blame, Trust
from autofuse.tuning import Progress, TuneOptions, TuneResult, tune
from autofuse.tuning.budget import Budget
from autofuse.tuning.job import tuner
from autofuse.tuning.plans import ONE_OP_EACH, PLAINEST
from autofuse.tuning.serve import served
from tests.support.toy_device import workload
from tuning_db import Store

pytestmark = pytest.mark.usefixtures("two_baselines")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Verdicts that other tests keep are not known here."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """No reference is ever there in time, though it may be there when it is asked for."""
    monkeypatch.setattr(Budget, "setup_s", lambda _: 0.0)
    answers = child.Child._answers

    def in_time(self: child.Child, end: float, stop: Any) -> bool:
        return end > time.monotonic() and answers(self, end, stop)

    monkeypatch.setattr(child.Child, "_answers", in_time)


def tuned(db: Path, **more: Any) -> TuneResult:
    return tune(workload(), device="cpu", db=str(db), budget_s=60.0, **more)


@pytest.mark.usefixtures("late")
def test_what_is_expected_to_be_fast_serves_checked_at_drawn_places(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    found = tuned(db)
    assert (found.checked, found.verified, found.is_timed) == ("sampled", False, False)
    assert found.best.plan.groups and found.trials == found.measured == 0
    assert any("reference" in note and "tune again to go on" in note for note in found.notes)
    said = found.to_json()
    assert said["checked"] == "sampled" and said["best"]["time_us"] is None
    assert said["best"]["expected_us"] > 0
    plan = autofuse.compile(workload(), device="cpu", db=str(db))
    x = random_inputs(workload(), 0)
    np.testing.assert_allclose(plan(*x)[0], evaluate(workload(), x)[0], rtol=1e-4)


def test_nothing_that_was_not_measured_is_kept_and_the_next_session_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db = tmp_path / "t.db"
    with monkeypatch.context() as patch:
        patch.setattr(Budget, "setup_s", lambda _: 0.0)
        digest = tuned(db).digest
    kind = DEVICES["cpu"]
    with Store.open(db) as store:
        assert not store.measured(kind.backend.environment(), digest)
    phases: list[str] = []

    def told(state: Progress) -> None:
        phases.append(state.phase)

    def stop() -> bool:
        return f"baseline {PLAINEST}" in phases

    found = tuned(db, baselines=(PLAINEST,), progress=told, stop=stop)
    assert found.verified and found.is_timed
    with monkeypatch.context() as patch:  # what is known is the result of a late one
        patch.setattr(Budget, "setup_s", lambda _: 0.0)
        patch.setattr(tuner, "_measure_untuned", lambda job, _: job.evaluator.worker.start())
        again = tuned(db)
    assert again.verified and again.is_timed and again.best.digest == found.best.digest


@pytest.mark.usefixtures("late")
def test_the_plainest_plan_serves_where_the_first_is_wrong(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checked: list[int] = []

    def wrong_once(*given: Any) -> Trust:
        checked.append(1)
        return Trust(WRONG, "planted") if len(checked) == 1 else first_check(*given)

    monkeypatch.setattr(served, "first_check", wrong_once)
    found = tuned(tmp_path / "t.db")
    assert found.best.origin == ONE_OP_EACH and found.checked == "sampled"
    assert any("wrong and not served: planted" in note for note in found.notes)


@pytest.mark.usefixtures("late")
def test_what_could_not_be_checked_or_built_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(served, "first_check", lambda *_: Trust(UNVERIFIED, "planted"))
    found = tuned(tmp_path / "t.db")
    assert found.checked == "no" and "not verified: planted" in found.notes

    def never(program: Program, *, timeout_s: float = 0.0) -> Built[Artifact]:
        raise CompileError("no time was left to compile it", Blame.MACHINE)

    cpu = DEVICES["cpu"]
    slow = replace(cpu, backend=replace(cpu.backend, build=never))
    monkeypatch.setitem(DEVICES, "cpu", slow)
    found = tuned(tmp_path / "u.db")
    assert found.checked == "no" and any("was not built" in note for note in found.notes)


@pytest.mark.usefixtures("late")
def test_a_slice_of_a_fleet_says_what_was_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task = TuneSlice(
        workload(), TuneOptions(device="cpu", db=str(tmp_path / "t.db"), budget_s=60.0)
    )
    result = tune_slice(task)
    assert result.best_us is None and "reference" in result.error


def test_who_stops_does_not_wait_for_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_PATIENT_S", 0.0)
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return True

    with (
        Worker(Workload(workload()), setup_s=lambda: 600.0, stop=stop) as worker,
        pytest.raises(LateReferenceError, match="before it was stopped"),
    ):
        worker.start()
    assert asked


def test_what_took_long_to_compute_is_kept_for_the_next_session(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(references, "KEPT_S", 0.0)
    task = Workload(workload())
    references.load_or_make(task, draw_inputs(task), tmp_path / "first.npz")
    monkeypatch.setattr(references, "reference_of", None)  # nothing is computed any more
    again = references.load_or_make(task, draw_inputs(task), tmp_path / "second.npz")
    assert len(again.outputs) == 1
