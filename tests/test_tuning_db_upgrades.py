"""Databases and exports of older schemas are brought along with all that they hold."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from autofuse.records import Blame, Failure, FailureKind, Proof, WorkloadRow
from tests.support.databases import Databases
from tests.support.tuning_records import (
    ENV,
    WORKLOAD,
    event,
    failed,
    filled,
    kernel,
    measurement,
    result,
)
from tuning_db import DatabaseError, Store
from tuning_db import schema as schema_module
from tuning_db.engine import database_url, upgrade
from tuning_db.expand import build_indices
from tuning_db.schema import HEAD, MAJOR, VERSION_TABLE, migration_config
from tuning_db.sqlite import WRITES
from tuning_db.transfer import export_lines, import_lines

DATA = Path(__file__).parent / "data"
# Each pair was written, from the same rows, by the program whose schema it has.
OLD = ["0001", "0002"]


def old_export(schema: str) -> list[str]:
    return (DATA / f"tuning_db_{schema}.jsonl").read_text(encoding="utf-8").splitlines()


def old_database(schema: str, path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Write the old database; returns its rows by table."""
    with closing(sqlite3.connect(path)) as raw:
        raw.executescript((DATA / f"tuning_db_{schema}.sql").read_text(encoding="utf-8"))
        tables = raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name: raw.execute(f"SELECT * FROM {name} ORDER BY rowid").fetchall()
            for (name,) in tables
            if name != VERSION_TABLE
        }


def upgraded(path: Path) -> Store:
    """An older database as it is after `autofuse db upgrade`."""
    upgrade(database_url(path))
    return Store.open(path)


@pytest.mark.parametrize("schema", OLD)
def test_opening_an_older_database_changes_nothing_and_names_the_way(
    schema: str, tmp_path: Path
) -> None:
    path = tmp_path / "old.db"
    old_database(schema, path)
    before = path.read_bytes()
    with pytest.raises(DatabaseError, match="`autofuse db upgrade` brings it there") as said:
        Store.open(path)
    assert f"has schema {schema} and this autofuse needs {HEAD}" in str(said.value)
    assert path.read_bytes() == before
    assert upgrade(database_url(path)) == (schema, HEAD)
    assert upgrade(database_url(path)) == (HEAD, HEAD)


@pytest.mark.parametrize("schema", [f"{MAJOR}.3", f"{MAJOR}.12"])
def test_a_newer_minor_schema_serves_older_programs(schema: str, store: Store) -> None:
    """It only adds: here a column with a default and a table."""
    with store.writing() as t:
        t.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '{schema}'"))
        t.execute(text("ALTER TABLE measurement ADD COLUMN mood TEXT DEFAULT 'good'"))
        t.execute(text("CREATE TABLE weather (id INTEGER PRIMARY KEY)"))
    url = store.url.render_as_string(hide_password=False)
    with Store.open(url) as again:
        filled(again)
        assert again.measured(ENV, WORKLOAD)["good"] == measurement("good", 10.5, "final")
        assert len(list(export_lines(again))) > 10
    assert upgrade(store.url) == (schema, schema)


def test_this_minor_schema_serves_programs_of_its_major_one(
    store: Store, databases: Databases, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program before it opens, writes, reads and exports what this one has made."""
    filled(store)
    exported = list(export_lines(store))
    monkeypatch.setattr(schema_module, "HEAD", MAJOR)
    with Store.open(store.url.render_as_string(hide_password=False)) as older:
        older.add_measurement(None, ENV, measurement("later"))
        assert older.measured(ENV, WORKLOAD)["good"] == measurement("good", 10.5, "final")
        assert next(iter(export_lines(older))) == exported[0]
    with Store.open(databases("copy")) as copy:
        assert import_lines(copy, exported)["measurement"] == 5


def at_major_schema(store: Store) -> None:
    """Take a database back to schema 0004, before indices were built apart."""
    config = migration_config()
    with store.engine.execution_options(**WRITES).begin() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, "0004")


def test_indices_are_built_before_the_tables_are_locked(store: Store) -> None:
    filled(store)
    at_major_schema(store)
    on_server = store.engine.dialect.name == "postgresql"
    if on_server:
        (name, other) = build_indices(store.engine)
        assert name == "ix_kernel_measurement_environment_id_created"
        assert other == "ix_measurement_failed"
        assert build_indices(store.engine) == ()
        with store.writing() as t:  # as an interrupted build leaves it
            t.execute(text("UPDATE pg_index SET indisvalid = false "
                           f"WHERE indexrelid = '{name}'::regclass"))  # fmt: skip
    assert upgrade(store.url) == ("0004", HEAD)
    assert not on_server or build_indices(store.engine) == ()
    store.add_kernel(None, ENV, kernel("after"))
    found = store.kernels(ENV, {"g-good", "after"})
    assert {key[0] for key in found} == {"g-good", "after"}


def test_a_database_of_the_first_schema_is_upgraded_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    old_database("0001", path)
    with upgraded(path) as store:
        ended, running = store.sessions()
        assert ended.result == replace(result("good", "base"), proof=Proof())
        assert store.events(ended.id) == (event("base", 30.0), event("good", 10.0, 3, 2.5))
        assert store.measured(ENV, WORKLOAD)["good"] == measurement("good", 10.5, "final")
        store.add_kernel(running.id, ENV, kernel("g-good", code="c"))
        store.add_measurement(running.id, ENV, measurement("good", 9.0))
        store.add_event(running.id, event("good", 9.0, 1, 8.0, 0.125))
        store.finish_session(running.id, result("good"))
    with Store.open(path) as store:
        known = {("g-good", '{"block":128}', "cold", "c"): kernel("g-good", code="c")}
        assert store.kernels(ENV, ["g-good"]) == known
        assert store.sessions()[1].result == result("good")
        assert store.events(running.id) == (event("good", 9.0, 1, 8.0, 0.125),)


@pytest.mark.parametrize("schema", OLD)
def test_every_row_of_an_older_database_is_kept(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    before = old_database(schema, path)
    with upgraded(path) as store:
        counts = {name: len(found) for name, found in before.items()}
        assert store.counts() == {"kernel_measurement": 0, **counts, "best_plan": 1, "lease": 0}
        assert store.workloads() == (WorkloadRow(WORKLOAD, "graph text", "toy", 3),)
        with store.reading() as t:
            for name, found in before.items():
                after = t.execute(text(f"SELECT * FROM {name} ORDER BY rowid")).all()
                width = len(found[0])
                assert all(value is None for row in after for value in row[width:])
                if name != "environment":
                    assert [tuple(row[:width]) for row in after] == found
        assert {row.environment.must for row in store.sessions()} == {ENV.must}


@pytest.mark.parametrize("schema", OLD)
def test_an_older_database_answers_and_its_best_plan_is_protected(
    schema: str, tmp_path: Path
) -> None:
    old_database(schema, tmp_path / "old.db")
    with upgraded(tmp_path / "old.db") as store:
        assert {"base", "broken", "good", "loose"} <= set(store.measured(ENV, WORKLOAD))
        found = store.best(ENV, WORKLOAD)
        assert found is not None and found.measurement.candidate_digest == "good"
        assert found.measurement.code == "" and found.measurement.timing is not None
        assert store.best(ENV, WORKLOAD, "warm") is None
        assert store.calibration(ENV) == {"copy_gb_s": 123.5}
        assert not store.promote(None, ENV, measurement("other", 1.0), None)
        assert store.promote(None, ENV, measurement("other", 1.0), "good")


def test_old_failures_are_blamed_by_what_they_say(tmp_path: Path) -> None:
    old_database("0002", tmp_path / "old.db")
    with upgraded(tmp_path / "old.db") as store:
        known = store.measured(ENV, WORKLOAD)
        assert "segv" in known and not {"slow", "killed"} & set(known)
        failures = [m.failure for m in store.measurements(WORKLOAD) if m.failure is not None]
        blamed = {f.message.split(":")[0] for f in failures if f.blame is Blame.MACHINE}
        assert blamed == {"did not finish within 5 s", "killed by SIGKILL"}
        groups = ["g-slow", "g-killed", "g-segv", "g-broken", "g-good"]
        assert {key[0] for key in store.kernels(ENV, groups)} == {"g-segv", "g-broken", "g-good"}


@pytest.mark.parametrize("schema", OLD)
def test_an_export_of_an_older_schema_is_imported(
    schema: str, store: Store, tmp_path: Path
) -> None:
    old_database(schema, tmp_path / "old.db")
    exported = old_export(schema)
    assert json.loads(exported[0])["schema"] == schema
    added = import_lines(store, exported)
    assert added["session"] == 2 and added["measurement"] >= 5
    with upgraded(tmp_path / "old.db") as there:
        assert list(export_lines(there)) == list(export_lines(store))
    assert set(import_lines(store, exported).values()) == {0}
    old_fingerprint = next(i for i, line in enumerate(exported) if '"kind":"environment"' in line)
    broken = exported[old_fingerprint].replace("avx2", "avx9")
    with pytest.raises(DatabaseError, match=f"^line {old_fingerprint + 1}: .* the digest it"):
        import_lines(store, [*exported[:old_fingerprint], broken])


def test_an_export_lacks_nothing_that_its_schema_has(store: Store) -> None:
    first, second = old_export("0001"), old_export("0002")
    header = '{"format":"autofuse-tuning-db","schema":"%s"}'
    with pytest.raises(DatabaseError, match="missing or unknown fields: residual_us, search_gap"):
        import_lines(store, [header % "0002", *first[1:]])
    with pytest.raises(DatabaseError, match=r"missing or unknown fields: (blame|code|bound_us)"):
        import_lines(store, [header % MAJOR, *second[1:]])
    with pytest.raises(DatabaseError, match=f"has schema 9999, this autofuse reads up to {MAJOR}"):
        import_lines(store, [header % "9999"])
    changes = [("session", change) for change in ({"result": 3}, {"events": 3}, {"result": {}})]
    changes += [("session", {"events": [3]}), ("kernel", {"kernel": 3})]
    changes += [("measurement", {"failure": 3}), ("measurement", {"failure": {"kind": "sloth"}})]
    for kind, change in changes:
        number = next(n for n, line in enumerate(second) if f'"kind":"{kind}"' in line)
        broken = json.dumps({**json.loads(second[number]), **change})
        with pytest.raises(DatabaseError, match=f"^line {number + 1}: {kind}"):
            import_lines(store, [*second[:number], broken])
    assert not any(store.counts().values())


def test_environments_that_become_equal_are_joined(tmp_path: Path) -> None:
    old_database("0002", tmp_path / "old.db")
    with closing(sqlite3.connect(tmp_path / "old.db")) as raw, raw:
        raw.execute(
            "INSERT INTO environment VALUES (9, 'x', 'y', 'cpu', "
            """'[["codegen","2"],["isa","avx2"]]', '[["driver","5"],["power","90"]]')"""
        )
        raw.execute("INSERT INTO calibration VALUES (9, 'copy_gb_s', 1.0), (9, 'launch_us', 2.0)")
        raw.execute("UPDATE measurement SET environment_id = 9 WHERE candidate_id = 4")
    with upgraded(tmp_path / "old.db") as store:
        assert store.counts()["environment"] == 2
        assert "loose" in store.measured(ENV, WORKLOAD)
        assert store.calibration(ENV) == {"copy_gb_s": 123.5, "launch_us": 2.0}


@pytest.mark.parametrize("back_to", OLD)
def test_migrations_can_be_undone(back_to: str, store: Store) -> None:
    filled(store)
    before = store.counts()
    config = migration_config()
    for revision, moved in ((HEAD, command.upgrade), (back_to, command.downgrade)):
        with store.engine.execution_options(**WRITES).begin() as connection:
            config.attributes["connection"] = connection
            moved(config, revision)
    upgrade(store.url)
    kept = before["kernel_measurement"] if back_to == "0002" else 0
    with Store.open(store.url.render_as_string(hide_password=False)) as again:
        assert again.counts() == {**before, "kernel_measurement": kept, "best_plan": 1}
        lost = {} if back_to == "0002" else {"proof": Proof()}
        assert again.sessions()[0].result == replace(result("good", "base"), **lost)
        assert again.measured(ENV, WORKLOAD)["good"] == measurement("good", 10.5, "final")


def test_what_is_not_known_is_not_made_up(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    failure = Failure(FailureKind.CRASH, "killed by SIGKILL", Blame.CANDIDATE)
    store.add_measurement(None, ENV, replace(failed("x"), failure=failure))
    assert store.measured(ENV, WORKLOAD)["x"].failure == failure


def test_what_was_called_gap_is_the_gap_of_the_search(tmp_path: Path) -> None:
    """No bound on any plan is known of old rows, in databases and in exports."""
    with Store.open(tmp_path / "new.db") as store:
        filled(store)
        lines = list(export_lines(store))
        at_major_schema(store)
        assert upgrade(store.url) == ("0004", HEAD)
        (ended,) = store.sessions()
        assert ended.result is not None and ended.result.proof.search_gap == 0.25
        assert ended.result.proof.bound_us is None
        assert [e.proof.search_floor_us for e in store.events(ended.id)] == [None, 2.5]
    old = [line.replace('"schema":"0005"', '"schema":"0004"') for line in lines]
    for new, name in (("search_gap", "gap"), ("search_floor_us", "bound_us")):
        old = [line.replace('"bound_us":null,', "") if name == "gap" and '"kind":"session"' in line
               else line for line in old]  # fmt: skip
        old = [line.replace(f'"{new}"', f'"{name}"') for line in old]
    with Store.open(tmp_path / "old.db") as store:
        import_lines(store, old)
        (ended,) = store.sessions()
        assert ended.result is not None and ended.result.proof.search_gap == 0.25
        assert [e.proof.search_floor_us for e in store.events(ended.id)] == [None, 2.5]
        assert all(e.proof.bound_us is None for e in store.events(ended.id))
