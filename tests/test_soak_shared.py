"""Short versions of what scripts/soak_db does for hours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.soak import planners, shared
from benchmarks.soak.simulated import SimulatedRun
from tests.support.seeds import seeds
from tests.support.tuning_records import ENV, kernel
from tuning_db import Store

(SEED,) = seeds(1)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_writers_lose_nothing(tmp_path: Path, kind: str) -> None:
    found = shared.kills(tmp_path, SEED, kind, crowd=3, count=6)
    assert found.problems == () and found.done == 6


@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_writers_go_on_through_crashes_of_the_server(tmp_path: Path, count: int) -> None:
    found = shared.crashes(tmp_path, SEED, "postgresql", crowd=2, count=count)
    assert found.problems == () and found.done == count


def test_what_planners_repeat_is_seen(sqlite_store: Store) -> None:
    for group in ("g", "h", "g"):
        sqlite_store.add_kernel(None, ENV, kernel(group))
    # To be timed as a whole and by kernels are two questions.
    ran = [SimulatedRun(*one) for one in (
        ("a", "measured", 2.0), ("b", "measured", 1.0), ("b", "profiled", 1.0),
        ("a", "compared", 5.0), ("a", "measured", 2.0),
    )]  # fmt: skip
    found = planners.shared_work(ran, sqlite_store.url.render_as_string())
    assert found == planners.Shared(2, 1, kernels=2, again=1, search_s=6.0, finals_s=5.0)
    assert found.kernel_s == 3.0 and found.candidate_s == 5.5


ONE = planners.Shared(candidates=150, twice=0, kernels=300, again=0, search_s=3.0, finals_s=1.0)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(ONE, twice=1, search_s=3.2, finals_s=1.2), []),
        (replace(ONE, candidates=99, finals_s=0.0, search_s=2.0), ["only 99 candidates"]),
        (replace(ONE, twice=2), ["2 of 150 candidates"]),
        (replace(ONE, search_s=3.4), ["searches took 1.13 of the device's time a kernel"]),
        (replace(ONE, kernels=270), ["searches took 1.11 of the device's time a kernel"]),
        (replace(ONE, finals_s=8.0), ["a candidate took 2.75 of the device's time"]),
    ],
)
def test_planners_are_judged_where_there_is_enough_to_see(
    found: planners.Shared, words: list[str]
) -> None:
    said = list(planners.judged(found, ONE))
    assert len(said) == len(words) and all(w in s for w, s in zip(words, said, strict=True))


@pytest.mark.slow
def test_planners_share_a_simulated_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among so few candidates nothing is told of shares."""
    monkeypatch.setattr(planners, "ENOUGH", 3)
    found = planners.planners(tmp_path, SEED, "sqlite", crowd=2, count=1)
    assert found.done >= 3 and len(found.notes) == 3
    assert not [said for said in found.problems if "ended with" in said or "lost" in said]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("all", "candidates were measured twice"),
        pytest.param("finals", "a candidate took", marks=pytest.mark.slow),
    ],
)
def test_planners_that_do_not_share_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, words: str
) -> None:
    monkeypatch.setattr(planners, "ENOUGH", 10)
    found = planners.planners(tmp_path, SEED, "sqlite", crowd=4, count=1, fault=fault)
    assert any(words in said for said in found.problems), found.notes


@pytest.mark.soak
@pytest.mark.parametrize("play", sorted(shared.PLAYS))
def test_every_play(tmp_path: Path, play: str) -> None:
    found = shared.PLAYS[play](tmp_path, SEED, "postgresql", 4, 20)
    assert found.problems == () and found.done >= 20
