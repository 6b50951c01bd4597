"""Jobs that tune one workload on one database share the work."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tuning_records import ENV, WORKLOAD, measurement

from autofuse.records import Environment
from autofuse.tuning import tune
from autofuse.tuning.sharing import Sharing
from autofuse.zoo import load_zoo
from tuning_db import DatabaseError, Store, Unreachable


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

    own = Sharing(store, "own")
    assert own.turn("work", 60.0, known, lambda: False) == measurement("x")
    assert looks == 4 and own.lease is None and store.counts()["lease"] == 0


def test_what_another_gave_up_is_ones_own(sqlite_store: Store) -> None:
    store, own = sqlite_store, Sharing(sqlite_store, "own")
    store.claim("work", "another", -1.0)
    assert own.turn("work", 60.0, lambda: None, lambda: False) is None
    assert own.lease is not None and store.claim("work", "third", 60.0) is None
    assert own.turn("next", 60.0, lambda: None, lambda: False) is None
    assert store.claim("work", "third", 60.0) is not None
    own.end()
    assert store.claim("next", "third", 60.0) is not None


def test_nobody_waits_longer_than_there_is_time(sqlite_store: Store) -> None:
    sqlite_store.claim("work", "another", 60.0)
    own = Sharing(sqlite_store, "own")
    assert own.turn("work", 60.0, lambda: None, lambda: True) is None and own.lease is None


def test_while_the_server_is_away_everybody_measures(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("away")

    own = Sharing(sqlite_store, "own")
    monkeypatch.setattr(sqlite_store, "claim", away)
    assert own.turn("work", 60.0, lambda: None, lambda: False) is None
    assert issubclass(Unreachable, DatabaseError)
