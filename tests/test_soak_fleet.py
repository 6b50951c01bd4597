"""Short versions of what scripts/soak_fleet does for minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.errors import AutofuseError
from benchmarks.soak import fleet
from benchmarks.soak.toy_units import Interval, toy_us, workload_of
from tests.support.seeds import seeds

(SEED,) = seeds(1)


def setting(folder: Path, seconds: float, measure_s: float, engine: str = "local") -> fleet.Setting:
    return fleet.Setting(folder, engine, "sqlite", SEED, seconds, (measure_s,))


def test_units_that_share_a_device_are_killed_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    found = fleet.kills(setting(tmp_path, 1.5, 0.05), units=2, graphs=2, every_s=0.5, most=2)
    assert found.problems == () and found.numbers["kills"] > 0
    assert found.numbers["rows"] == found.numbers["candidates"]


def test_what_overlaps_is_found() -> None:
    seen = [Interval("a", "x", 1, 0.0, 2.0), Interval("b", "x", 2, 1.0, 3.0)]
    assert fleet._overlaps(seen) == ["1 measurements overlap on a device"]
    assert fleet._double_leases(seen) == []
    assert fleet._double_leases([seen[0], Interval("a", "y", 2, 1.0, 3.0)]) != []


def test_what_is_missing_or_stored_twice_is_found(tmp_path: Path) -> None:
    db = str(tmp_path / "tuning.db")
    problems, numbers = fleet._kept(db, 1, 2)
    assert numbers["rows"] == 0
    assert problems == [
        "graph0: 2 candidates are missing",
        "graph0: another plan than the best is served",
    ]
    assert toy_us("a") == toy_us("a") != toy_us("b") and workload_of("a") != workload_of("b")


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutofuseError, match="unknown play 'x'"):
        fleet.soak_fleet(tmp_path, "local", "sqlite", 1.0, SEED, ["x"], 30.0, print)
    with pytest.raises(AutofuseError, match="unknown engine 'dask'"):
        fleet.made_engine("dask")


@pytest.mark.slow
@pytest.mark.parametrize("engine", fleet.ENGINES)
def test_every_play(tmp_path: Path, engine: str) -> None:
    if engine == "ray":
        pytest.importorskip("ray", reason="extra fleet")
    found = fleet.soak_fleet(
        tmp_path, engine, "postgresql", 1.5, SEED, list(fleet.PLAYS), 10.0, print
    )
    # How fast several are is for a quiet machine to say.
    wrong = [p for play in found["plays"] for p in play["problems"] if play["name"] != "throughput"]
    assert wrong == []
