"""Jobs that tune one workload on one database share the work."""

from __future__ import annotations

import os
import platform
import subprocess
import threading

import pytest

from autofuse.tuning.job import sharing
from autofuse.tuning.job.sharing import Turns, is_gone
from tests.support.tuning_records import ENV, WORKLOAD, measurement
from tuning_db import DatabaseError, Lease, Store, Unreachable


def test_what_another_found_out_meanwhile_is_taken(sqlite_store: Store) -> None:
    store = sqlite_store
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    lease = store.claim("work", "another", 60.0)
    looks = 0

    def known() -> object:
        nonlocal looks
        looks += 1
        if looks == 3:
            store.add_measurement(None, ENV, measurement("x"), lease)
        return store.latest(ENV, WORKLOAD, "x")

    own = Turns(store)
    assert own.turn("work", known, lambda: False) == measurement("x")
    assert looks == 3 and own.lease is None and store.counts()["lease"] == 0


def test_what_another_gave_up_is_ones_own(sqlite_store: Store) -> None:
    store, own = sqlite_store, Turns(sqlite_store)
    store.claim("work", "another", -1.0)
    assert own.turn("work", lambda: None, lambda: False) is None
    assert own.lease is not None and store.claim("work", "third", 60.0) is None
    assert own.turn("next", lambda: None, lambda: False) is None
    assert store.claim("work", "third", 60.0) is not None
    own.end()
    assert store.claim("next", "third", 60.0) is not None


def test_a_lease_that_went_with_its_result_is_released_once(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, released = sqlite_store, list[Lease]()
    monkeypatch.setattr(store, "release", released.append)
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    with Turns(store) as own:
        assert own.turn("work", lambda: None, lambda: False) is None
        assert store.add_measurement(None, ENV, measurement("x"), own.spend())
        assert store.counts()["lease"] == 0
        assert own.turn("next", lambda: None, lambda: False) is None and released == []
    assert [lease.key for lease in released] == ["next"]


def test_nobody_waits_longer_than_there_is_time(sqlite_store: Store) -> None:
    sqlite_store.claim("work", "another", 60.0)
    own = Turns(sqlite_store)
    assert own.turn("work", lambda: None, lambda: True) is None and own.lease is None


def test_while_the_server_is_away_everybody_measures(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("away")

    own = Turns(sqlite_store)
    monkeypatch.setattr(sqlite_store, "claim", away)
    assert own.turn("work", lambda: None, lambda: False) is None
    assert issubclass(Unreachable, DatabaseError)


def test_who_died_on_this_host_holds_nothing(sqlite_store: Store) -> None:
    died = subprocess.Popen(["true"])
    died.wait()
    gone, here = (f"{platform.node()} {pid}" for pid in (died.pid, os.getpid()))
    assert is_gone(gone) and not is_gone(here) and not is_gone(f"elsewhere {died.pid}")
    assert sqlite_store.claim("work", gone, 60.0) is not None
    assert sqlite_store.claim("work", here, 60.0) is None
    assert sqlite_store.claim("work", here, 60.0, is_gone) is not None
    assert sqlite_store.claim("work", gone, 60.0, is_gone) is None


def test_a_lease_is_prolonged(sqlite_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "LEASE_S", 0.04)
    prolonged = threading.Event()
    prolong = sqlite_store.prolong

    def noted(lease: Lease, _seconds: float) -> bool:
        prolonged.set()
        return prolong(lease, 60.0)

    monkeypatch.setattr(sqlite_store, "prolong", noted)
    with Turns(sqlite_store) as own:
        own.turn("work", lambda: None, lambda: False)
        assert prolonged.wait(60.0)
    assert sqlite_store.counts()["lease"] == 0
