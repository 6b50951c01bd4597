"""Single kernels in the tuning database: measured once, ever; older databases are brought along."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import event as sql_event
from sqlalchemy import text
from tuning_records import (
    ENV,
    WORKLOAD,
    event,
    failed_kernel,
    filled,
    kernel,
    measurement,
    result,
    timing,
)

from autofuse.records import FailureKind, KernelMeasurement, WorkloadRow
from tuning_db import DatabaseError, Store, kernels
from tuning_db.engine import WRITES
from tuning_db.schema import HEAD, VERSION_TABLE, migration_config
from tuning_db.transfer import export_lines, import_lines

NEWER_DRIVER = replace(ENV, stale=(("driver", "6"), ("power", "90")))
OTHER_DEVICE = replace(ENV, must=(("isa", "avx512"),))
# Both were written, from the same rows, by the program whose schema was 0001.
OLD_DATABASE = Path(__file__).parent / "data" / "tuning_db_0001.sql"
OLD_EXPORT = Path(__file__).parent / "data" / "tuning_db_0001.jsonl"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "tuning.db") as opened:
        yield opened


def by_key(*all_: KernelMeasurement) -> dict[tuple[str, str, str, str], KernelMeasurement]:
    return {(one.group, one.launch, one.cache, one.code): one for one in all_}


def test_a_kernel_comes_back_equal_on_a_database_without_workloads(store: Store) -> None:
    bare = replace(kernel("bare"), max_rel_error=None, bound_us=None, facts=())
    store.add_kernel(None, ENV, kernel("g"))
    store.add_kernel(None, ENV, bare)
    assert store.kernels(ENV, ["g", "bare", "never"]) == by_key(kernel("g"), bare)
    assert store.kernels(ENV, []) == {}


def test_every_failure_kind_of_a_kernel_is_a_row(store: Store) -> None:
    session = filled(store)
    for kind in FailureKind:
        failure = replace(failed_kernel(kind.value).failure, kind=kind)
        store.add_kernel(session, ENV, replace(failed_kernel(kind.value), failure=failure))
    found = store.kernels(ENV, [kind.value for kind in FailureKind])
    assert {group: one.failure.kind for (group, *_), one in found.items()} == {
        kind.value: kind for kind in FailureKind
    }
    assert all(
        one.failure.message == "ptxas: too many registers\n\\x00\\udcff" and one.timing is None
        for one in found.values()
    )


def test_launches_and_cache_states_are_kept_apart_and_the_latest_wins(store: Store) -> None:
    other, warm = kernel("g", 4.0, '{"block":256}'), kernel("g", 3.0, cache="warm")
    for one in (kernel("g", 9.0), other, warm, kernel("g", 7.0)):
        store.add_kernel(None, ENV, one)
    assert store.kernels(ENV, ["g"]) == by_key(kernel("g", 7.0), other, warm)
    store.add_kernel(None, ENV, failed_kernel("g"))
    assert store.kernels(ENV, ["g"])[("g", '{"block":128}', "cold", "")].timing is None
    assert store.counts()["kernel_measurement"] == 5 and store.counts()["group_"] == 1


def test_kernel_times_are_shared_by_equal_must_pairs_only(store: Store) -> None:
    store.add_kernel(None, ENV, kernel("g", 5.0))
    store.add_kernel(None, OTHER_DEVICE, kernel("g", 1.0))
    assert store.kernels(ENV, ["g"]) == by_key(kernel("g", 5.0))
    assert store.kernels(NEWER_DRIVER, ["g"]) == by_key(kernel("g", 5.0))
    assert store.kernels(OTHER_DEVICE, ["g"]) == by_key(kernel("g", 1.0))
    store.add_kernel(None, NEWER_DRIVER, kernel("g", 6.0))
    assert store.kernels(ENV, ["g"]) == by_key(kernel("g", 6.0))


def test_kernels_that_contradict_themselves_are_refused(store: Store) -> None:
    good = kernel("g")
    for session, one, reason in (
        (None, replace(good, failure=failed_kernel("g").failure), "either a timing or a failure"),
        (None, replace(good, timing=None), "either a timing or a failure"),
        (None, replace(good, cache="lukewarm"), "unknown cache state 'lukewarm'"),
        (None, replace(good, cache="warm"), "is for a warm cache but was timed otherwise"),
        (None, replace(good, timing=replace(timing(), q1_us=math.nan)), "not a finite number"),
        (None, replace(good, bound_us=math.nan), "a bound that is not a finite number"),
        (None, replace(good, facts=(("x", math.inf),)), "a fact 'x' that is not a finite number"),
        (99, good, "session 99 is not in the database"),
    ):
        with pytest.raises(DatabaseError, match=reason):
            store.add_kernel(session, ENV, one)
    assert not any(store.counts().values())


def test_thousands_of_groups_take_few_statements_that_use_the_index(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "_CHUNK", 20)
    names = [f"g{number}" for number in range(41)]
    for name in names:
        store.add_kernel(None, ENV, kernel(name))
    said: list[tuple[str, object]] = []
    sql_event.listen(
        store.engine, "before_cursor_execute", lambda c, k, sql, args, *_: said.append((sql, args))
    )
    found = store.kernels(ENV, iter(names * 2))
    assert {group for group, *_ in found} == set(names)
    said = [one for one in said if one[0].startswith("SELECT")]
    assert len(said) == 3
    with closing(sqlite3.connect(store.name)) as raw:
        plan = raw.execute(f"EXPLAIN QUERY PLAN {said[0][0]}", said[0][1]).fetchall()
    steps = [str(row[-1]) for row in plan]
    assert any("ix_kernel_measurement_group_id_environment_id" in step for step in steps)
    assert not any(step.startswith("SCAN") for step in steps)


def old_database(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Write the old database; returns its rows by table."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript(OLD_DATABASE.read_text(encoding="utf-8"))
        tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: raw.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
            for (name,) in tables
            if name != VERSION_TABLE
        }


def test_a_database_of_the_first_schema_is_upgraded_with_all_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    before = old_database(path)
    with Store.open(path) as store:
        counts = {name: len(found) for name, found in before.items()}
        assert store.counts() == {**counts, "kernel_measurement": 0}
        with store.reading() as t:
            for name, found in before.items():
                after = t.execute(text(f"SELECT * FROM {name} ORDER BY rowid")).all()
                width = len(found[0])
                assert [tuple(row[:width]) for row in after] == found
                assert all(value is None for row in after for value in row[width:])
        assert store.workloads() == (WorkloadRow(WORKLOAD, "graph text", "toy", 3),)
        ended, running = store.sessions()
        assert ended.result == replace(result("good", "base"), gap=None, residual_us=None)
        assert store.events(ended.id) == (event("base", 30.0), event("good", 10.0, 3, 2.5))
        assert store.measured(ENV, WORKLOAD)["good"] == measurement("good", 10.5, "final")
        store.add_kernel(running.id, ENV, kernel("g-good"))
        store.add_measurement(running.id, ENV, measurement("good", 9.0))
        store.add_event(running.id, event("good", 9.0, 1, 8.0, 0.125))
        store.finish_session(running.id, result("good"))
    with Store.open(path) as store:
        assert store.kernels(ENV, ["g-good"]) == by_key(kernel("g-good"))
        assert store.sessions()[1].result == result("good")
        assert store.events(running.id) == (event("good", 9.0, 1, 8.0, 0.125),)


def test_an_export_of_the_first_schema_is_imported(store: Store, tmp_path: Path) -> None:
    old_database(tmp_path / "old.db")
    exported = OLD_EXPORT.read_text(encoding="utf-8").splitlines()
    assert json.loads(exported[0])["schema"] == "0001"
    added = import_lines(store, exported)
    assert added["session"] == 2 and added["measurement"] == 5 and added["kernel"] == 0
    with Store.open(tmp_path / "old.db") as upgraded:
        assert list(export_lines(upgraded)) == list(export_lines(store))
    assert set(import_lines(store, exported).values()) == {0}


def test_an_export_lacks_nothing_that_its_schema_has(store: Store) -> None:
    exported = OLD_EXPORT.read_text(encoding="utf-8").splitlines()
    with pytest.raises(DatabaseError, match="missing or unknown fields: gap, residual_us"):
        import_lines(store, ['{"format":"autofuse-tuning-db","schema":"0002"}', *exported[1:]])
    newer = '{"format":"autofuse-tuning-db","schema":"0003"}'
    with pytest.raises(DatabaseError, match=f"has schema 0003, this autofuse reads up to {HEAD}"):
        import_lines(store, [newer])
    number = next(n for n, line in enumerate(exported) if '"kind":"session"' in line)
    for change in ({"result": 3}, {"events": 3}, {"events": [3]}, {"result": {}}):
        broken = json.dumps({**json.loads(exported[number]), **change})
        with pytest.raises(DatabaseError, match=f"^line {number + 1}: session"):
            import_lines(store, [*exported[:number], broken])
    assert not any(store.counts().values())


def test_the_second_migration_can_be_undone(store: Store) -> None:
    filled(store)
    before = store.counts()
    config = migration_config()
    for revision, moved in ((HEAD, command.upgrade), ("0001", command.downgrade)):
        with store.engine.execution_options(**WRITES).begin() as connection:
            config.attributes["connection"] = connection
            moved(config, revision)
    with Store.open(store.name) as again:
        assert again.counts() == {**before, "kernel_measurement": 0}
        assert again.sessions()[0].result == replace(
            result("good", "base"), gap=None, residual_us=None
        )
