"""Short versions of what scripts/soak does for hours, and that it sees what is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from autofuse.errors import AutofuseError
from benchmarks.soak import compilers, disks, kills, run, writers
from benchmarks.soak.ledger import acknowledged, damage, lost, measured_twice, rows
from benchmarks.soak.types import Kind, Round
from tests.support.seeds import seeds
from tests.support.tuning_records import WORKLOAD, filled
from tuning_db import Store

(SEED,) = seeds(1)


@pytest.mark.parametrize("many", [3, pytest.param(10, marks=pytest.mark.slow)])
def test_kill_9_loses_nothing_acknowledged_and_measures_nothing_twice(
    tmp_path: Path, many: int
) -> None:
    found = kills.play(tmp_path, SEED, kills=many)
    assert found.problems == ()
    assert found.done >= many // 2, "it was killed before it had ended by itself"


@pytest.mark.slow
@pytest.mark.parametrize(("crowd", "count"), [(2, 5), (4, 15)])
def test_writers_and_an_import_during_a_tune(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crowd: int, count: int
) -> None:
    """At most half as many as in a soak."""
    monkeypatch.setattr(writers, "WRITERS", crowd)
    found = writers.play(tmp_path, SEED, count=count)
    assert found.problems == () and found.done >= 2 * count * (crowd + 1)


def test_a_compiler_killed_in_the_middle_of_a_build(tmp_path: Path) -> None:
    found = compilers.play(tmp_path, SEED, builds=2)
    assert found.problems == ()


@pytest.mark.slow
@pytest.mark.parametrize("may_mount", [True, False])
def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_mount: bool) -> None:
    """Where no disk can be mounted, both are the same test."""
    if not may_mount:
        monkeypatch.setattr(disks, "_worked", lambda _: False)
    found = disks.play(tmp_path, SEED, disks=1, largest=2 * disks.SMALLEST)
    assert found.problems == () and found.done == 1
    assert "Traceback" not in (tmp_path / "said.txt").read_text()


# --- what is lost is seen -------------------------------------------------------------------------


def written(folder: Path, change: str = "") -> Path:
    """A database of rows of every kind, after a statement that was not the store's."""
    with Store.open(folder / "t.db") as store:
        filled(store)
    with closing(sqlite3.connect(folder / "t.db")) as raw, raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        if change:
            raw.execute(change)
    return folder / "t.db"


def log_of(folder: Path, db: Path) -> Path:
    """A log that acknowledges all rows of a database."""
    log = folder / "log.jsonl"
    log.write_text("".join(json.dumps(key) + "\n" for key in rows(db).elements()))
    return log


def test_a_lost_row_is_seen(tmp_path: Path) -> None:
    db = written(tmp_path)
    log = log_of(tmp_path, db)
    assert list(lost(db, log)) == list(damage(db)) == []
    with closing(sqlite3.connect(db)) as raw, raw:
        raw.execute("DELETE FROM measurement WHERE id = (SELECT max(id) FROM measurement)")
    (problem,) = lost(db, log)
    assert problem.startswith("1 acknowledged rows are lost")
    assert list(lost(tmp_path / "never-made.db", log)) != []


def test_a_half_written_line_was_not_acknowledged(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text('["kernel", "g", "{}", "cold"]\n["kern["kernel", "h", "{}", "warm"]\n["mea')
    assert acknowledged(log) == {
        ("kernel", "g", "{}", "cold"): 1,
        ("kernel", "h", "{}", "warm"): 1,
    }


def test_damage_is_seen(tmp_path: Path) -> None:
    db = written(tmp_path, "DELETE FROM candidate")
    (problem,) = damage(db)
    assert "foreign_key_check" in problem
    db.write_bytes(b"no database")
    (problem,) = damage(db)
    assert problem.startswith("the database does not open")


def test_what_was_measured_twice_is_seen(tmp_path: Path) -> None:
    columns = "created, session_id, environment_id, candidate_id, origin, stage, n, median_us"
    more = "codegen_s, compile_s, measure_s, sampler_s"
    db = written(
        tmp_path,
        f"INSERT INTO measurement (uid, {columns}, {more}) SELECT 'again', {columns}, {more} "
        "FROM measurement WHERE stage = 'search' AND median_us IS NOT NULL LIMIT 1",
    )
    (problem,) = measured_twice(db)
    assert problem.startswith("measured 2 times: ('measurement'") and WORKLOAD in problem


# --- the runner -----------------------------------------------------------------------------------


def kinds(monkeypatch: pytest.MonkeyPatch, **plays: Callable[[Path, int], Round]) -> None:
    made = {name: Kind(name, "things", "toy", play) for name, play in plays.items()}
    monkeypatch.setattr(run, "KINDS", made)


def test_every_kind_has_its_turn_and_failures_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def good(folder: Path, seed: int) -> Round:
        (folder / "seen").write_text(str(seed))
        return Round(3)

    kinds(monkeypatch, good=good, bad=lambda _, seed: Round(1, (f"lost by {seed}",)))
    said: list[str] = []
    one, two = run.soak(0, 40, tmp_path, (), said.append)
    assert str(one) == "good      3 things in 1 rounds, 0 failures (toy)"
    assert (two.rounds, two.done, two.failures) == (1, 1, 1)
    assert [p.name for p in tmp_path.iterdir()] == ["bad-41"]
    assert (tmp_path / "bad-41" / "problems.txt").read_text() == "lost by 41\n"
    assert said[0].startswith("bad, seed 41: 1 failures, kept in ")


def test_unknown_kinds_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutofuseError, match="unknown kind 'floods'"):
        run.soak(0, 1, tmp_path, ["kills", "floods"], print)


@pytest.mark.soak
def test_the_whole_soak(tmp_path: Path) -> None:
    for tally in run.soak(20, SEED, tmp_path, (), print):
        assert tally.failures == 0, tally
