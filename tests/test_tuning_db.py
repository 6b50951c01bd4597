"""The tuning database: what goes in comes out, and what does not fit is refused."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import platformdirs
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text
from sqlalchemy.exc import IntegrityError

from autofuse.errors import AutofuseError
from autofuse.records import FailureKind, Proof, WorkloadRow
from tests.support.tuning_records import (
    ENV,
    WORKLOAD,
    event,
    failed,
    filled,
    measurement,
    result,
    timing,
)
from tuning_db import DatabaseError, Store, default_url
from tuning_db.models import Base
from tuning_db.schema import HEAD, VERSION_TABLE, migrate, migration_config
from tuning_db.sqlite import WRITES
from tuning_db.transfer import export_lines

NEWER_DRIVER = replace(ENV, stale=(("driver", "6"), ("power", "90")))
OTHER_DEVICE = replace(ENV, must=(("isa", "avx512"),))


def test_every_record_comes_back_equal(store: Store) -> None:
    session = filled(store)
    stored = store.measurements(WORKLOAD)
    assert stored[0] == measurement("base", 30.0, "baseline")
    assert stored[2:] == (
        measurement("good", 10.0),
        measurement("good", 10.5, "final"),
        measurement("loose", 20.0),
    )
    assert stored[1].failure is not None and stored[1].failure.kind is FailureKind.COMPILE
    assert stored[1].failure.message == "ptxas: too many registers\n\\x00\\udcff"
    assert store.events(session) == (event("base", 30.0), event("good", 10.0, 3, 2.5, 3.0))
    assert store.verdicts(session) == result("good").verdicts
    assert store.workloads() == (WorkloadRow(WORKLOAD, "graph text", "toy", 3),)
    assert store.calibration(ENV) == {"copy_gb_s": 123.5}
    (row,) = store.sessions(WORKLOAD)
    assert row == store.sessions()[0]
    assert row.result == result("good", "base")
    assert (row.id, row.environment, row.workload) == (session, ENV, WORKLOAD)
    assert row.ended is not None and row.started < row.ended


def test_records_outlive_the_process_that_wrote_them(tmp_path: Path) -> None:
    with Store.open(tmp_path / "x.db") as first:
        filled(first)
        before = first.counts()
    with Store.open(f"sqlite:///{tmp_path}/x.db") as second:
        assert second.counts() == before
        assert before["measurement"] == 5 and before["candidate"] == 4 and before["event"] == 2
        assert before["kernel_measurement"] == 2


def test_every_failure_kind_is_a_row(store: Store) -> None:
    filled(store)
    for kind in FailureKind:
        store.add_measurement(None, ENV, failed(f"f-{kind.value}", kind))
    known = store.measured(ENV, WORKLOAD)
    assert {kind: known[f"f-{kind.value}"].failure.kind for kind in FailureKind} == {
        kind: kind for kind in FailureKind
    }


def test_resume_sees_the_latest_measurement_of_each_candidate(store: Store) -> None:
    filled(store)
    known = store.measured(ENV, WORKLOAD)
    assert set(known) == {"base", "broken", "good", "loose"}
    assert known["good"] == measurement("good", 10.5, "final")
    assert known["broken"].timing is None


def test_times_are_shared_by_equal_must_pairs_only(store: Store) -> None:
    filled(store)
    # What failed under another driver is tried again.
    assert set(store.measured(NEWER_DRIVER, WORKLOAD)) == {"base", "good", "loose"}
    assert store.measured(OTHER_DEVICE, WORKLOAD) == {}
    assert store.measurements(WORKLOAD, OTHER_DEVICE) == ()
    assert store.calibration(NEWER_DRIVER) == {}


def test_pairs_in_another_order_are_the_same_environment(store: Store) -> None:
    first = store.add_environment(ENV)
    assert store.add_environment(replace(ENV, must=ENV.must[::-1])) == first
    assert store.add_environment(NEWER_DRIVER) != first
    assert store.counts()["environment"] == 2


def test_an_unknown_environment_or_workload_is_a_miss(store: Store) -> None:
    filled(store)
    assert store.best(OTHER_DEVICE, WORKLOAD) is None
    assert store.best(ENV, "unknown") is None
    assert store.measured(ENV, "unknown") == {}
    assert store.sessions("unknown") == () and store.events(99) == () and store.verdicts(99) == ()


def test_best_is_the_final_time_of_the_latest_finished_winner(store: Store) -> None:
    filled(store)
    # A lucky sample of the search does not beat the plan that won the interleaved comparison.
    store.add_measurement(None, ENV, measurement("lucky", 1.0))
    found = store.best(ENV, WORKLOAD)
    assert found is not None and found.stale == ()
    assert found.measurement == measurement("good", 10.5, "final")
    session = store.start_session(ENV, WORKLOAD, "random", 8, 1.0)
    store.finish_session(session, result("lucky", finished=False))
    assert store.best(ENV, WORKLOAD) == found
    session = store.start_session(ENV, WORKLOAD, "random", 9, 1.0)
    store.finish_session(session, result("lucky"))
    best = store.best(ENV, WORKLOAD)
    assert best is not None and best.measurement.candidate_digest == "lucky"


def test_best_without_a_finished_session_is_the_least_median(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    assert store.best(ENV, WORKLOAD) is None
    for name, us in (("slow", 9.0), ("fast", 3.0), ("mid", 5.0)):
        store.add_measurement(None, ENV, measurement(name, us))
    store.add_measurement(None, ENV, failed("broken"))
    best = store.best(ENV, WORKLOAD)
    assert best is not None and best.measurement.candidate_digest == "fast"
    store.add_measurement(None, ENV, failed("fast", FailureKind.CRASH))
    best = store.best(ENV, WORKLOAD)
    assert best is not None and best.measurement.candidate_digest == "mid"


def test_best_prefers_fresh_and_names_what_is_stale(store: Store) -> None:
    filled(store)
    stale = store.best(NEWER_DRIVER, WORKLOAD)
    assert stale is not None and stale.stale == ("driver",)
    assert stale.measurement.candidate_digest == "good"
    store.add_measurement(None, NEWER_DRIVER, measurement("loose", 19.0))
    fresh = store.best(NEWER_DRIVER, WORKLOAD)
    assert fresh is not None and fresh.stale == ()
    assert fresh.measurement == measurement("loose", 19.0)
    renamed = replace(ENV, stale=(("power", "90"), ("cuda", "13")))
    other = store.best(renamed, WORKLOAD)
    assert other is not None and other.stale == ("cuda", "driver")


def test_a_session_without_a_best_plan_is_kept(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    session = store.start_session(ENV, WORKLOAD, "random", 7, 60.0)
    assert store.sessions()[0].result is None and store.sessions()[0].ended is None
    store.finish_session(session, result(""))
    assert store.sessions()[0].result == result("")
    assert store.best(ENV, WORKLOAD) is None


def test_equal_groups_are_one_row(store: Store) -> None:
    filled(store)
    assert store.counts()["group_"] == 5
    assert store.measured(ENV, WORKLOAD)["good"].groups == ("g-good", "g-shared", "g-good")


def test_calibration_is_replaced(store: Store) -> None:
    store.set_calibration(ENV, {"launch_us": 3.0})
    store.set_calibration(ENV, {"launch_us": 4.0})
    store.set_calibration(OTHER_DEVICE, {"launch_us": 5.0})
    assert store.calibration(ENV) == {"launch_us": 4.0}


def test_records_that_contradict_themselves_are_refused(store: Store) -> None:
    session = filled(store)
    before = store.counts()
    good = measurement("new")
    nan = replace(good, timing=replace(timing(), stdev_us=float("nan")))
    for session_id, one, reason in (
        (None, replace(good, failure=failed("x").failure), "either a timing or a failure"),
        (None, replace(good, timing=None), "either a timing or a failure"),
        (None, replace(good, stage="guess"), "unknown stage 'guess'"),
        (None, nan, "not a finite number"),
        (None, replace(good, workload="unknown"), "workload unknown is not in the database"),
        (99, good, "session 99 is not in the database"),
    ):
        with pytest.raises(DatabaseError, match=reason):
            store.add_measurement(session_id, ENV, one)
    with pytest.raises(DatabaseError, match="candidate never was never measured"):
        store.add_event(session, event("never", 1.0))
    for damaged in (
        Proof(search_gap=math.nan),
        Proof(residual_us=math.nan),
    ):
        with pytest.raises(DatabaseError, match=r"(search_gap|residual_us) is not a number"):
            store.add_event(session, replace(event("good", 1.0), proof=damaged))
    with pytest.raises(DatabaseError, match="already ended"):
        store.finish_session(session, result("good"))
    with pytest.raises(DatabaseError, match="does not fit in 64 bits"):
        store.start_session(ENV, WORKLOAD, "random", 2**63, 1.0)
    with pytest.raises(DatabaseError, match="is not a finite number"):
        store.set_calibration(ENV, {"launch_us": float("inf")})
    assert store.counts() == before


def test_an_error_that_is_not_a_number_is_kept_as_infinite(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    store.add_measurement(None, ENV, replace(failed("x"), max_rel_error=float("nan")))
    assert store.measured(ENV, WORKLOAD)["x"].max_rel_error == float("inf")
    assert json.loads(list(export_lines(store))[-1])["max_rel_error"] == "inf"


def test_foreign_keys_and_pragmas_are_on(sqlite_store: Store) -> None:
    store = sqlite_store
    with store.engine.connect() as connection:
        assert connection.execute(text("PRAGMA foreign_keys")).scalar() == 1
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 30_000
    insert = text("INSERT INTO calibration (environment_id, name, value) VALUES (77, 'x', 1)")
    with (
        pytest.raises(IntegrityError, match="FOREIGN KEY"),
        store.engine.execution_options(**WRITES).begin() as connection,
    ):
        connection.execute(insert)


def test_models_and_migrations_agree(store: Store) -> None:
    """A new database is made by the models: the migrations arrive at the same tables."""

    def check_tables() -> None:
        with store.engine.connect() as connection:
            options = {"version_table": VERSION_TABLE, "compare_type": True}
            context = MigrationContext.configure(connection, opts=options)
            assert compare_metadata(context, Base.metadata) == []
            assert context.get_current_revision() == HEAD

    check_tables()
    with store.engine.execution_options(**WRITES).begin() as connection:
        Base.metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
        migrate(connection)
    check_tables()
    assert ScriptDirectory.from_config(migration_config()).get_heads() == [HEAD]


def test_checks_indices_and_keys_of_models_and_migrations_agree() -> None:
    # Alembic compares neither CHECK constraints nor all of an index.
    def parts(connection: Connection) -> dict[str, list[str]]:
        query = text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
        # What was added later stands in the last line, after a comma.
        return {
            str(name): sorted(
                filter(None, map(str.strip, re.split(r"[,\n]", sql.replace('"', ""))))
            )
            for name, sql in connection.execute(query)
        }

    with Store.open("sqlite://") as memory, memory.engine.connect() as connection:
        made = parts(connection)
        Base.metadata.drop_all(connection)
        connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
        migrate(connection)
        migrated = parts(connection)
    assert made == migrated
    assert sum("CHECK" in line for lines in made.values() for line in lines) >= 4


def test_the_default_database_is_user_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    path = Path(platformdirs.user_data_dir("autofuse")) / "tuning.db"
    assert default_url() == f"sqlite:///{path}"
    with Store.open(None) as store:
        assert store.name == str(path) and path.is_file()


def test_paths_and_urls_name_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    odd = "a b%20?#é.db"
    with Store.open(odd) as store:
        store.add_environment(ENV)
    assert (tmp_path / odd).is_file()
    with Store.open(tmp_path / odd) as store:
        assert store.counts()["environment"] == 1
    with Store.open("plain.db") as store:
        store.add_environment(ENV)
    with Store.open("sqlite:///plain.db") as store:
        assert store.counts()["environment"] == 1


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    Store.open(path).close()
    with closing(sqlite3.connect(path)) as raw, raw:
        raw.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    before = path.read_bytes()
    expected = (
        f"database {path} was written by a newer autofuse (schema 9999); "
        "upgrade autofuse or use another --db"
    )
    with pytest.raises(DatabaseError) as caught:
        Store.open(path)
    assert str(caught.value) == expected and isinstance(caught.value, AutofuseError)
    assert path.read_bytes() == before


def test_files_that_are_not_tuning_databases_are_left_as_they_are(tmp_path: Path) -> None:
    prose = tmp_path / "prose.txt"
    prose.write_text("not a database\n" * 100)
    torn = tmp_path / "torn.db"
    torn.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as raw, raw:
        raw.execute("CREATE TABLE bookmark (url TEXT)")
    for path, reason in (
        (prose, "is not a database"),
        (torn, "not a database|cannot be used"),
        (foreign, "belongs to another program"),
    ):
        before = path.read_bytes()
        with pytest.raises(DatabaseError, match=reason) as caught:
            Store.open(path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["foreign.db", "prose.txt", "torn.db"]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("", "the database name is empty"),
        ("nowhere/x.db", "its directory does not exist"),
        (".", "is a directory"),
        ("/proc/x.db", "cannot be"),
        ("/dev/null", "is not a regular file"),
        ("sqlite://x.db", "three slashes"),
        ("nonsense://x", "no driver for 'nonsense' databases"),
        ("sqlite+nonsense:///x", "no driver for 'sqlite\\+nonsense' databases"),
        ("://", "not a database URL"),
        ("sqlite:///nowhere/x.db", "its directory does not exist"),
    ],
)
def test_what_cannot_be_opened_is_one_sentence(
    url: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DatabaseError, match=reason) as caught:
        Store.open(url)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []
