"""Tuning processes that are killed, stopped by signals, or share one database."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.toy_device import HOLD_AT, workload
from tests.support.toy_tuning import check_complete, measured_once, stored, toy, tune_toy

__all__ = ["toy"]  # a fixture
HERE = Path(__file__).parent


def start(db: Path, strategy: str = "random", seed: int = 0) -> subprocess.Popen[str]:
    """A tuning process in a group of its own; it waits for its input before it is too far."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, str(HERE / "support" / "toy_device.py"), str(db), strategy, str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,
    )


def wait_for(process: subprocess.Popen[str], measured: int) -> None:
    """Return once the process has said that so many candidates are measured."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("measured") and int(line.split()[1]) >= measured:
            return
    raise AssertionError(f"the process ended early: {process.communicate()}")


def result_of(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    (line,) = (line for line in out.splitlines() if line.startswith("result "))
    found: dict[str, Any] = json.loads(line.removeprefix("result "))
    return found


def worker_of(pid: int) -> int:
    """A descriptor of the measuring child of process `pid`: readable once that child is gone."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            words = (path.parent / "cmdline").read_bytes()
        except OSError:  # it ended meanwhile
            continue
        if parent == pid and b"autofuse.measure.worker.process" in words:
            return os.pidfd_open(int(path.parent.name))
    raise AssertionError(f"process {pid} has no worker")


@pytest.mark.parametrize("strategy", ["random", "optuna"])
def test_a_killed_tune_resumes_and_measures_nothing_twice(
    toy: None, tmp_path: Path, strategy: str
) -> None:
    db = tmp_path / "t.db"
    process = start(db, strategy)
    try:
        wait_for(process, 5)
        worker = worker_of(process.pid)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert select.select([worker], [], [], 60)[0], "the worker outlives the job that started it"
    os.close(worker)
    before, (killed,) = stored(db, workload())
    assert 5 <= measured_once(before) == len(before) <= HOLD_AT
    assert killed.ended is None and killed.result is None
    result = tune_toy(db, strategy)
    check_complete(result, db, workload())
    rows, sessions = stored(db, workload())
    assert rows[: len(before)] == before and len(sessions) == 2
    assert measured_once(rows) == len(before) + result.measured >= 15
    assert not result.interrupted


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_tune_and_keeps_what_was_found(
    toy: None, tmp_path: Path, number: signal.Signals
) -> None:
    db = tmp_path / "t.db"
    process = start(db)
    wait_for(process, 3)
    process.send_signal(number)
    data = result_of(process)
    assert data["interrupted"] and data["verified"] and 3 <= data["measured"] <= HOLD_AT
    rows, (ended,) = stored(db, workload())
    assert measured_once(rows) == data["measured"] and rows[-1].stage == "final"
    assert ended.result is not None and not ended.result.finished


def test_two_processes_share_one_database(toy: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    processes = [start(db, seed=seed) for seed in (1, 2)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n" * 50)  # none waits: both are at it at once
        process.stdin.flush()
    for process in processes:
        data = result_of(process)
        assert data["verified"] and not data["interrupted"] and data["failed"] == {}
    rows, sessions = stored(db, workload())
    assert len(sessions) == 2 and all(s.result and s.result.finished for s in sessions)
    # What one measures the other takes over.
    searched = Counter(row.candidate_digest for row in rows if row.stage != "final")
    assert set(searched.values()) == {1}
    told = sum(s.result.measured for s in sessions if s.result)
    # A job that lost its place to the other one compares, and keeps, its final once more.
    assert sum(row.stage != "final" for row in rows) == told
    assert tune_toy(db).measured == 0
