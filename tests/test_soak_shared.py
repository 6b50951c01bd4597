"""Short versions of what scripts/soak_db does for hours."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeds import seeds

from benchmarks.soak import shared

(SEED,) = seeds(1)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_killed_writers_lose_nothing(tmp_path: Path, kind: str) -> None:
    found = shared.kills(tmp_path, SEED, kind, crowd=3, count=6)
    assert found.problems == () and found.done == 6


def test_writers_go_on_through_crashes_of_the_server(tmp_path: Path) -> None:
    found = shared.crashes(tmp_path, SEED, "postgresql", crowd=2, count=2)
    assert found.problems == () and found.done == 2


@pytest.mark.soak
@pytest.mark.parametrize("play", sorted(shared.PLAYS))
def test_every_play(tmp_path: Path, play: str) -> None:
    found = shared.PLAYS[play](tmp_path, SEED, "postgresql", 4, 20)
    assert found.problems == () and found.done >= 20
