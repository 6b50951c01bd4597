"""Units that are not well, and jobs that are ended from elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.errors import AutofuseError
from autofuse.fleet import canary
from autofuse.fleet.canary import canary_of
from autofuse.fleet.engine import tune_slice
from autofuse.fleet.health import MOST_BAD, REST_S, SLOW, Canary, UnitHealth
from autofuse.fleet.jobs import LOOK_S, JobLease, cancel_jobs, running_jobs
from autofuse.fleet.run import fleet_tune
from autofuse.measure.hardware import HOST
from autofuse.tuning import TuneOptions
from tests.support.fleet_work import CURVES, SimulatedEngine, falling, graph, task
from tuning_db import Store, Unreachable


def disturbed(us: float) -> Canary:
    return Canary("GPU-1", us, 100.0)


def test_a_canary_is_compared_with_its_own_unit() -> None:
    assert disturbed(100.0 * SLOW).fault == ""
    assert disturbed(150.0).fault == "its canary takes 1.50 times as long as usual"
    assert Canary("GPU-1", 150.0).fault == "", "nothing is known yet"
    assert "processes 7, 9" in Canary("GPU-1", 100.0, 100.0, others=(7, 9)).fault
    assert Canary("GPU-1", None, note="no driver").fault == "its canary failed: no driver"


def test_what_is_usual_follows_good_canaries_alone() -> None:
    assert Canary("GPU-1", 80.0).next_usual_us == 80.0
    assert disturbed(108.0).next_usual_us == pytest.approx(102.0)
    assert disturbed(150.0).next_usual_us == 100.0
    assert disturbed(50.0).next_usual_us == 50.0, "what was usual had been disturbed"


def test_a_unit_rests_after_a_bad_canary_and_is_given_up_after_several() -> None:
    health = UnitHealth().after(disturbed(150.0), 10.0)
    assert (health.bad, health.rests_until, health.is_quarantined) == (1, 10.0 + REST_S, False)
    assert health.after(disturbed(100.0), 40.0).bad == 0
    for now in range(MOST_BAD - 1):
        health = health.after(disturbed(150.0), float(now))
    assert health.is_quarantined and len(health.canaries) == MOST_BAD


def test_the_others_do_the_work_of_a_unit_that_is_disturbed() -> None:
    engine = SimulatedEngine(2, CURVES, slow={"u1": 99})
    told: list[str] = []
    graphs = {name: graph() for name in CURVES}
    found = fleet_tune(
        graphs, engine, TuneOptions(budget_s=3600.0), clock=engine.clock, say=told.append
    )
    assert [unit for unit, _ in engine.given].count("u1") == MOST_BAD
    assert found.health["u1"].is_quarantined and not found.health["u0"].bad
    assert all(share.best_us is not None and not share.failures for share in found.shares)
    assert sum("u1 is disturbed" in text for text in told) == MOST_BAD
    assert told[-1].startswith(("flat", "steep")) and any("given up" in text for text in told)


def test_a_disturbance_that_passes_ends_no_job() -> None:
    engine = SimulatedEngine(1, {"a": falling(9, 1, 9)}, slow={"u0": MOST_BAD - 1})
    found = fleet_tune({"a": graph()}, engine, TuneOptions(budget_s=600.0), clock=engine.clock)
    assert found.shares[0].slices > 0 and not found.health["u0"].is_quarantined
    assert engine.rested >= (MOST_BAD - 1) * REST_S


def test_a_job_whose_units_are_all_disturbed_says_so() -> None:
    engine = SimulatedEngine(2, {"a": falling(9, 1, 9)}, slow={"u0": 99, "u1": 99})
    with pytest.raises(AutofuseError, match="every unit is disturbed: u0: its canary takes 3"):
        fleet_tune({"a": graph()}, engine, TuneOptions(budget_s=600.0), clock=engine.clock)


def test_what_is_usual_of_a_unit_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.4, 30.0, 10.1])
    monkeypatch.setattr(canary, "_timed", lambda _, told: replace(told, us=next(times)))
    found = [canary_of("cpu", str(tmp_path / "tuning.db")) for _ in range(4)]
    assert [one.usual_us for one in found] == [None, 10.0, pytest.approx(10.1), found[2].usual_us]
    assert [bool(one.fault) for one in found] == [False, False, True, False]
    assert found[0].unit == HOST.unit and "processor is always shared" in found[0].note


def test_a_disturbed_unit_tunes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canary, "canary_of", lambda *_: disturbed(300.0))
    found = tune_slice(task("a"))
    assert (found.best_us, found.error, found.canary) == (None, "", disturbed(300.0))


def test_the_canary_of_this_machine(tmp_path: Path) -> None:
    found = canary_of("cpu", str(tmp_path / "tuning.db"))
    assert found.us is not None and found.us > 0 and not found.fault


# --- jobs -----------------------------------------------------------------------------------------


def test_a_job_is_seen_and_ended_from_elsewhere(store: Store) -> None:
    now = [0.0]
    with JobLease(store, "graphs.txt", lambda: now[0]) as job, JobLease(store, "other") as other:
        seen = {one.id: one for one in running_jobs(store)}
        assert seen.keys() == {job.id, other.id}
        assert seen[job.id].what == "graphs.txt" and seen[job.id].owner.endswith(f" {os.getpid()}")
        now[0] += LOOK_S
        assert not job.is_cancelled()
        with pytest.raises(AutofuseError, match="no fleet job x is running"):
            cancel_jobs(store, "x")
        assert [one.id for one in cancel_jobs(store, job.id)] == [job.id]
        assert not job.is_cancelled(), "it was asked a moment ago"
        now[0] += LOOK_S
        assert job.is_cancelled() and job.is_cancelled()
        assert [one.id for one in cancel_jobs(store, None)] == [other.id]
    assert running_jobs(store) == ()


def test_a_job_goes_on_while_the_server_is_away(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("away")

    now = [0.0]
    with JobLease(sqlite_store, "a", lambda: now[0]) as job, monkeypatch.context() as patch:
        now[0] += LOOK_S
        patch.setattr(sqlite_store, "prolong", away)
        assert not job.is_cancelled()
        patch.setattr(sqlite_store, "release", away)


def test_work_that_was_taken_away_is_lost(store: Store) -> None:
    lease = store.claim("fleet:100%", "host 1", 60.0)
    store.claim("other", "host 1", 60.0)
    store.claim("fleet:old", "host 1", -1.0)
    assert lease is not None and store.held("fleet:") == (("fleet:100%", "host 1"),)
    assert store.held("fleet:100%") and not store.held("f%")
    assert store.revoke("fleet:100%") and not store.revoke("fleet:100%")
    assert not store.prolong(lease, 60.0)
