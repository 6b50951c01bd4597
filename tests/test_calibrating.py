"""A machine is calibrated once, before any job's budget begins, and by one process at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from sqlalchemy import event

from autofuse.cost.bounds import Calibration
from autofuse.devices import DEVICES, DeviceKind
from autofuse.measure.hardware import HOST
from autofuse.tuning import Progress, tune
from autofuse.tuning.budget import Budget
from autofuse.tuning.job import tuner
from autofuse.tuning.job.calibrating import CALIBRATING, calibrated
from tests.support.databases import Databases
from tests.support.toy_device import QUICK, TOY, toy_kind, workload
from tests.support.tuning_records import ENV
from tuning_db import Store
from tuning_db.rows import fingerprint

PEAKS = Calibration(0.01, 400.0, 5000.0, 1000.0, 10000.0, 4000.0, latency=(("add.f32.0", 1.0),))
pytestmark = pytest.mark.usefixtures("two_baselines")


def measuring(calibrate: Callable[[], Calibration]) -> DeviceKind:
    return toy_kind(TOY, replace(HOST, calibrate=calibrate))


def never() -> bool:
    return False


def test_the_budget_begins_when_the_machine_is_calibrated_and_only_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    order: list[str] = []
    told: list[Progress] = []

    def calibrate() -> Calibration:
        order.append("calibrated")
        return PEAKS

    def budget(*given: object) -> Budget:
        order.append("budget")
        return Budget(*given)

    monkeypatch.setitem(DEVICES, "toy", measuring(calibrate))
    monkeypatch.setattr(tuner, "Budget", budget)
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))

    def job() -> tuple[str, ...]:
        return tune(
            workload(), device="toy", db=str(tmp_path / "t.db"), budget_s=60.0, strategy="random",
            runs=1.0, progress=told.append,
        ).notes  # fmt: skip

    first, second = job(), job()
    assert order == ["calibrated", "budget", "budget"]
    said = [state for state in told if state.phase == CALIBRATING]
    assert said and all(state.left_s == 60.0 for state in said)
    assert "calibrated first, once" in first[0]
    assert not any("calibrated" in note for note in second)


def test_who_comes_second_waits_for_who_calibrates(databases: Databases) -> None:
    calls: list[int] = []
    second_came = Event()

    def calibrate() -> Calibration:
        calls.append(1)
        second_came.wait()
        return PEAKS

    kind, url = measuring(calibrate), databases("shared")
    begun = Event()

    def first() -> Calibration | None:
        with Store.open(url) as store:
            return calibrated(kind, store, lambda _: begun.set(), never).found

    def second() -> Calibration | None:
        begun.wait()
        with Store.open(url) as store:
            return calibrated(kind, store, lambda _: second_came.set(), never).found

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(job) for job in (first, second)]
        assert [one.result() for one in found] == [PEAKS, PEAKS]
    assert calls == [1]


def test_who_wants_to_stop_does_not_wait_for_who_calibrates(store: Store) -> None:
    kind = measuring(lambda: PEAKS)
    work = f"calibration:{fingerprint(kind.backend.environment())}"
    assert store.claim(work, "somebody elsewhere", 600.0, lambda _: False) is not None
    said: list[str] = []
    peaks = calibrated(kind, store, said.append, lambda: True)
    assert peaks.found is None and said == [CALIBRATING] and peaks.notes == ()


def test_a_calibration_is_kept_by_one_transaction_and_two_statements(store: Store) -> None:
    seen: list[str] = []
    commits: list[int] = []
    store.set_calibration(ENV, {"launch_us": 1.0})
    event.listen(store.engine, "before_cursor_execute", lambda *given: seen.append(given[2]))
    event.listen(store.engine, "commit", lambda _: commits.append(1))
    many = {f"scalar.f{k}.256": float(k) for k in range(370)}
    store.set_calibration(ENV, many)
    assert sum("calibration" in text for text in seen) <= 2 and len(commits) == 1
    assert store.calibration(ENV) == many | {"launch_us": 1.0}
