"""Short versions of what scripts/soak_db does for hours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from seeds import seeds
from tuning_records import ENV, WORKLOAD, measurement

from autofuse.records import Cost
from benchmarks.soak import planners, shared
from tuning_db import Store

(SEED,) = seeds(1)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_writers_lose_nothing(tmp_path: Path, kind: str) -> None:
    found = shared.kills(tmp_path, SEED, kind, crowd=3, count=6)
    assert found.problems == () and found.done == 6


def test_writers_go_on_through_crashes_of_the_server(tmp_path: Path) -> None:
    found = shared.crashes(tmp_path, SEED, "postgresql", crowd=2, count=2)
    assert found.problems == () and found.done == 2


def test_what_planners_repeat_is_seen(sqlite_store: Store) -> None:
    store, seconds = sqlite_store, Cost(measure=2.0)
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    for name, stage in (("a", "search"), ("b", "baseline"), ("a", "final"), ("a", "search")):
        one = replace(measurement(name, stage=stage), cost=seconds)
        store.add_measurement(None, ENV, one)
    found = planners.shared_work(store.url.render_as_string())
    assert found == planners.Shared(candidates=2, twice=1, device_s=6.0, once_s=4.0)
    assert found.ratio == 1.5


@pytest.mark.soak
@pytest.mark.parametrize("play", sorted(shared.PLAYS))
def test_every_play(tmp_path: Path, play: str) -> None:
    found = shared.PLAYS[play](tmp_path, SEED, "postgresql", 4, 20)
    assert found.problems == () and found.done >= 20
