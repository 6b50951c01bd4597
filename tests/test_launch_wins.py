"""What launch parameters are worth, counted over stored kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.plan.types import LaunchConfig
from autofuse.tuning.search.launches import launch_text
from benchmarks.launch_wins import KernelTime, Wins, kernel_times, page, wins
from tests.support.tuning_records import ENV, failed_kernel, kernel
from tuning_db import Store


def timed(kernel: str, us: float, **settings: int | str | bool) -> KernelTime:
    return KernelTime(("device", kernel), LaunchConfig.of(**settings), us)


def test_settings_are_held_against_the_default_of_the_same_kernel() -> None:
    times = [
        timed("a", 10.0),
        timed("a", 5.0, threads=2),
        timed("a", 4.0, threads=2, stream=True),
        timed("b", 8.0),
        timed("b", 9.0, threads=2),
        timed("b", 7.9, threads=2, stream=True),
        timed("c", 1.0, threads=2),  # nothing to hold it against
    ]
    found = {row.parameter: row for row in wins(times)}
    assert found["threads"] == Wins("threads", 2, 1, 2.5, 2.5)
    assert found["stream"].tried == 2 and found["stream"].won == 1
    assert found["stream"].most == pytest.approx(1.25)
    assert "| threads | 2 | 1 (50%) | 2.50 | 2.50 |" in page(wins(times))


def test_kernels_come_from_a_tuning_database(tmp_path: Path) -> None:
    db = str(tmp_path / "t.db")
    with Store.open(db) as store:
        for us, launch in ((9.0, {}), (6.0, {"threads": 2})):
            one = replace(kernel("g" * 32, us), launch=launch_text(LaunchConfig.of(**launch)))
            store.add_kernel(None, ENV, one)
        store.add_kernel(None, ENV, failed_kernel("h" * 32))
    (row,) = wins(kernel_times(db))
    assert row == Wins("threads", 1, 1, pytest.approx(1.5), pytest.approx(1.5))
