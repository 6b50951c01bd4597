"""Database files that somebody else made: what they say is refused, and nothing of them is run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.records import Timing
from autofuse.tuning.serve.imported import vetted
from tests.support.tuning_records import ENV, WORKLOAD, filled, measurement, timing
from tuning_db import DatabaseError, Store
from tuning_db.engine import open_engine
from tuning_db.transfer import export_lines, import_lines

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "t.db") as store:
        filled(store)
    return tmp_path / "t.db"


def run(path: Path, script: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)


@pytest.mark.parametrize(
    "script",
    [f"ALTER TABLE workload RENAME TO w; CREATE VIEW workload AS {ENDLESS}",
     "CREATE TRIGGER t AFTER INSERT ON lease BEGIN DELETE FROM measurement; END",
     "CREATE VIRTUAL TABLE v USING fts5(x)",
     "CREATE TABLE g (x INT, y INT GENERATED ALWAYS AS (x + 1))",
     "CREATE TABLE g (x INT, y INT AS (x + 1) STORED)"],
)  # fmt: skip
def test_what_would_run_is_refused(path: Path, script: str) -> None:
    run(path, script)
    with pytest.raises(DatabaseError, match="which is not ours"):
        Store.open(path)


def test_a_statement_ends(path: Path) -> None:
    ends = pytest.raises(DatabaseError, match="more work than")
    with Store.open(path) as store, ends, store.reading() as t:
        t.connection().exec_driver_sql(ENDLESS).fetchall()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: replace(t, median_us=-1.0),
        lambda t: replace(t, min_us=1e300),
        lambda t: replace(t, n=0),
        lambda t: replace(t, stdev_us=-0.5),
        lambda t: replace(t, q1_us=t.q3_us + 1),
        lambda t: replace(t, cache="tepid"),
    ],
)
def test_times_that_cannot_be_are_refused(path: Path, change: Callable[[Timing], Timing]) -> None:
    wrong = replace(measurement("absurd"), timing=change(timing()))
    with Store.open(path) as store, pytest.raises(DatabaseError):
        store.add_measurement(None, ENV, wrong)


def test_times_that_cannot_be_are_not_served(path: Path) -> None:
    with Store.open(path) as store:
        assert store.best(ENV, WORKLOAD) is not None
    run(path, "UPDATE measurement SET median_us = -5 WHERE median_us IS NOT NULL")
    with Store.open(path) as store, pytest.raises(DatabaseError, match="damaged"):
        store.best(ENV, WORKLOAD)


def test_what_a_schema_says_is_not_trusted(path: Path) -> None:
    from tuning_db.engine import database_url

    engine = open_engine(database_url(path))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
    engine.dispose()


def exported(path: Path, tmp_path: Path) -> tuple[list[str], Path]:
    """An export of one tuned plan, as lines."""
    from autofuse.graph.canonical import digest, text
    from autofuse.plan.types import Candidate, FusionPlan
    from autofuse.zoo import zoo_graph

    graph, candidate = zoo_graph("softmax", "small"), Candidate(FusionPlan(()), ())
    one = replace(measurement("x"), workload=digest(graph), candidate=candidate.to_json(),
                  candidate_digest=candidate.digest)  # fmt: skip
    with Store.open(tmp_path / "own.db") as store:
        store.add_workload(digest(graph), text(graph), "softmax", len(graph.nodes))
        store.add_measurement(None, ENV, one)
        return list(export_lines(store)), tmp_path / "new.db"


def test_what_is_imported_is_what_it_says_and_says_so(path: Path, tmp_path: Path) -> None:
    texts, new = exported(path, tmp_path)
    with Store.open(new) as store:
        import_lines(store, texts, vetted)
        import_lines(store, texts, vetted)
        (found,) = store.measurements(store.workloads()[0].digest)
        assert found.origin == "imported: random"


@pytest.mark.parametrize(
    ("kind", "old", "new", "match"),
    [
        ("candidate", '"digest":"', '"digest":"0', "does not have the digest"),
        ("candidate", "plan", "plans", "does not have the digest"),
        ("workload", "softmax", "softmax", ""),
        ("candidate", '"g-x"', r'"\u0000"', "holds a NUL"),
        ("workload", "f32", "f64", "does not have the digest"),
        ("measurement", '"median_us":10.0', '"median_us":-10.0', "cannot be"),
        ("measurement", '"n":30', '"n":0', "cannot be"),
        ("measurement", '"min_us":9.0', '"min_us":1e300', "cannot be"),
        ("measurement", '"compile":1.5', '"compile":-1.5', "cannot be"),
        ("measurement", '"timing":{', '"timing":' + "[" * 5000 + "{", "nested|JSON|Expecting"),
    ],
)
def test_lines_that_are_not_what_they_say_are_not_added(
    path: Path, tmp_path: Path, kind: str, old: str, new: str, match: str
) -> None:
    texts, target = exported(path, tmp_path)
    (at,) = (k for k, text in enumerate(texts) if f'"kind":"{kind}"' in text)
    assert old in texts[at]
    texts[at] = texts[at].replace(old, new)
    with Store.open(target) as store:
        if not match:
            import_lines(store, texts, vetted)
            return
        with pytest.raises(DatabaseError, match=match):
            import_lines(store, texts, vetted)
        assert not store.workloads()
