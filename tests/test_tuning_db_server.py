"""The tuning database on a server: few round trips, errors that pass, a server that goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from sqlalchemy import event as sql_event
from sqlalchemy import text
from sqlalchemy.orm import Session as Transaction

from autofuse.records import FailureKind
from benchmarks.postgres import Server, round_trips, running
from tests.support.tuning_records import (
    ENV,
    WORKLOAD,
    event,
    failed,
    failed_kernel,
    filled,
    kernel,
    measurement,
    result,
)  # fmt: skip
from tuning_db import DatabaseError, Store, engine, transactions
from tuning_db.engine import database_url, url_name
from tuning_db.errors import Unreachable
from tuning_db.retry import Fate, fate_of, insist
from tuning_db.transfer import export_lines, import_lines


@pytest.fixture(autouse=True)
def _own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


@pytest.fixture
def url(postgres: Server, request: pytest.FixtureRequest) -> Iterator[str]:
    name = f"server-{abs(hash(request.node.name))}"
    yield postgres.create(name, "schema")
    postgres.drop(name)


def test_a_candidate_of_fifty_groups_takes_at_most_four_round_trips(url: str) -> None:
    def large(name: str) -> Callable[[], bool]:
        groups = tuple(f"g-{name}-{n}" for n in range(50))
        one = replace(measurement(name), groups=groups)
        return lambda: store.add_measurement(session, ENV, one)

    with Store.open(url) as store:
        session = filled(store)
        round_trips(store, large("warm-up"))
        assert round_trips(store, large("new")) <= 4
        assert round_trips(store, large("new")) <= 4
        assert round_trips(store, lambda: store.add_kernel(session, ENV, kernel("other"))) <= 4
        several = [kernel(f"k{n}") for n in range(20)]
        assert round_trips(store, lambda: store.add_kernels(session, ENV, several)) <= 4
        lease = store.claim("work", "me", 60.0)
        under = replace(measurement("leased"), groups=tuple(f"l{n}" for n in range(50)))
        add = lambda: store.add_measurement(session, ENV, under, lease)  # noqa: E731 - a call to be counted
        assert round_trips(store, add) <= 4
        assert len(store.measured(ENV, WORKLOAD)["new"].groups) == 50
        assert store.counts()["lease"] == 0


def test_what_is_asked_most_often_takes_one_round_trip(url: str) -> None:
    with Store.open(url) as store:
        filled(store)
        assert store.promote(None, ENV, measurement("good", 10.5, "final"), None)
        found = store.best(ENV, WORKLOAD)
        assert found is not None and found.measurement.candidate_digest == "good"
        assert len(found.measurement.groups) == len(measurement("good").groups)
        assert round_trips(store, lambda: store.best(ENV, WORKLOAD)) == 1
        assert store.latest(ENV, WORKLOAD, "nobody") is None
        assert round_trips(store, lambda: store.latest(ENV, WORKLOAD, "nobody")) == 1
        lease = store.claim("work", "me", 60.0)
        assert lease is not None
        assert round_trips(store, lambda: store.prolong(lease, 60.0)) == 1
        assert round_trips(store, lambda: store.release(lease)) == 1
        assert round_trips(store, lambda: store.claim("other", "me", 60.0)) == 1


def test_many_open_an_empty_database_at_once(postgres: Server) -> None:
    url, start = postgres.create("empty"), Barrier(6)

    def visit(number: int) -> None:
        start.wait()
        with Store.open(url) as store:
            store.add_workload(WORKLOAD, "graph text", "toy", 3)
            store.add_measurement(None, ENV, measurement(f"m{number}"))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(visit, range(6)))
    with Store.open(url) as store:
        assert store.counts()["measurement"] == 6 and store.counts()["group_"] == 7
    postgres.drop("empty")


def test_writers_on_the_same_groups_lose_and_double_nothing(url: str) -> None:
    start = Barrier(4)

    def write(number: int) -> None:
        with Store.open(url) as store:
            start.wait()
            for n in range(15):
                groups = tuple(f"g{(n * 7 + k * (number + 1)) % 40}" for k in range(20))
                one = replace(measurement(f"c{n}"), groups=groups)
                store.add_measurement(None, ENV, one)

    with Store.open(url) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        counts = store.counts()
    assert counts["measurement"] == 60 and counts["candidate"] == 15
    assert counts["candidate_group"] == 15 * 20 and counts["group_"] <= 40


def test_an_export_sees_one_state(url: str) -> None:
    with Store.open(url) as one, Store.open(url) as two, Store.open("sqlite://") as copy:
        filled(one)
        lines = export_lines(one)
        said = [next(lines) for _ in range(3)]
        two.add_measurement(None, ENV, measurement("meanwhile"))
        said += lines
        assert import_lines(copy, said)["measurement"] == 5
        with one.reading() as t, pytest.raises(Exception, match="read-only transaction"):
            t.execute(text("DELETE FROM verdict"))


def test_rows_are_dated_by_the_server(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuning_db import clock

    with Store.open(url) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        store.add_measurement(None, ENV, measurement("x", 9.0))
        monkeypatch.setattr(clock, "now", lambda seconds=0.0: "2001-01-01T00:00:00.000000+00:00")
        store.add_measurement(None, ENV, measurement("x", 8.0))
        assert store.measured(ENV, WORKLOAD)["x"] == measurement("x", 8.0)


# --- errors that pass ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "fate"),
    [
        ("40001", Fate.AGAIN), ("40P01", Fate.AGAIN), ("08006", Fate.AWAY), ("57P01", Fate.AWAY),
        ("53300", Fate.AWAY), ("23505", None), ("42601", None), ("28P01", None),
    ],
)  # fmt: skip
def test_what_passes_by_itself(state: str, fate: Fate | None) -> None:
    error = psycopg.errors.lookup(state)()
    assert fate_of(error) is fate
    wrapped = DatabaseError("x")
    wrapped.__cause__ = error
    assert fate_of(wrapped) is fate
    assert fate_of(ValueError()) is None and fate_of(DatabaseError("x")) is None


def test_it_is_insisted_on_until_patience_ends() -> None:
    tries: list[int] = []

    def work() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise psycopg.errors.SerializationFailure
        return 7

    assert insist(work, 60.0) == 7 and len(tries) == 3
    with pytest.raises(psycopg.errors.DeadlockDetected):
        insist(lambda: (_ for _ in ()).throw(psycopg.errors.DeadlockDetected), 0.0)


def test_a_commit_whose_answer_is_lost_is_done_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write is done, and then the connection is cut before the answer."""
    with Store.open(url) as store:
        session = filled(store)
        before = store.counts()
        other = store.start_session(ENV, WORKLOAD, "random", 8, 1.0)
        lost: list[bool] = []

        def cut(_: object) -> None:
            if lost and lost.pop():
                raise psycopg.OperationalError("the connection is lost")

        sql_event.listen(Transaction, "after_commit", cut)
        try:
            for write in (
                lambda: store.add_measurement(other, ENV, measurement("again")),
                lambda: store.add_kernel(other, ENV, kernel("again")),
                lambda: store.add_event(other, event("again", 5.0)),
                lambda: store.finish_session(other, result("again")),
                lambda: store.start_session(ENV, WORKLOAD, "random", 9, 1.0),
            ):
                lost.append(True)
                write()
                assert not lost
            final = replace(measurement("again", 4.0, "final"), code="c")
            lost.append(True)
            assert store.promote(other, ENV, final, "good")
        finally:
            sql_event.remove(Transaction, "after_commit", cut)
        after = store.counts()
        assert session and after["measurement"] == before["measurement"] + 2
        for table, more in (("kernel_measurement", 1), ("event", 1), ("session", 2)):
            assert after[table] == before[table] + more, table


# --- a server that goes away --------------------------------------------------------------------


def test_a_session_goes_on_while_the_server_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "HURRIED_S", 0.05)
    monkeypatch.setattr(transactions, "PATIENCE_S", 0.05)
    with running(durable=False) as server, Store.open(server.create("away")) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        session = store.start_session(ENV, WORKLOAD, "random", 7, 60.0)
        store.add_measurement(session, ENV, measurement("base", 30.0, "baseline"))
        store.add_event(session, event("base", 30.0))
        server.crash()
        store.add_measurement(session, ENV, measurement("good", 10.0))
        monkeypatch.setattr(transactions, "LOOK_S", 0.0)
        store.add_measurement(session, ENV, failed("broken", FailureKind.CRASH))
        store.add_kernel(session, ENV, kernel("g-good"))
        store.add_kernel(None, ENV, failed_kernel("g-broken"))
        store.add_event(session, event("good", 10.0, 3))
        store.finish_session(session, result("good"))
        with pytest.raises(Unreachable, match="cannot be used"):
            store.measured(ENV, WORKLOAD)
        (spooled,) = (tmp_path / "data" / "autofuse" / "spool").iterdir()
        with spooled.open("ab") as file:
            file.write(b'{"kind": "half a li')
        server.start()
        monkeypatch.setattr(transactions, "PATIENCE_S", 30.0)
        assert set(store.measured(ENV, WORKLOAD)) == {"base", "good", "broken"}
        assert spooled.stat().st_size == 0
        (row,) = store.sessions()
        assert row.result == result("good") and row.ended is not None
        assert store.events(session) == (event("base", 30.0), event("good", 10.0, 3))
        assert store.counts()["kernel_measurement"] == 2


def test_what_another_process_has_sent_meanwhile_is_not_missed(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several jobs of a user share a spool: between looking and sending one of them sends it."""
    with Store.open(url) as store:
        assert store.spool is not None and store.spool.is_empty()
        monkeypatch.setattr(type(store.spool), "is_empty", lambda self: False)
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        assert store.counts()["workload"] == 1


@pytest.mark.parametrize("idle_s", [0.0, 60.0])
def test_a_connection_that_the_server_dropped_is_replaced(
    url: str, postgres: Server, idle_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_S", idle_s)
    with Store.open(url) as store:
        filled(store)
        mine = database_url(url).database
        postgres.execute(
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{mine}'"
        )
        store.add_measurement(None, ENV, measurement("after"))
        assert "after" in store.measured(ENV, WORKLOAD)


# --- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://me:s3cret@/nowhere?host=/nowhere",
        "postgresql+psycopg://me@/nowhere?host=/nowhere&password=s3cret",
        "postgresql+psycopg://me@/nowhere?host=/nowhere&passfile=s3cret",
    ],
)
def test_passwords_are_never_printed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "s3cret" not in url_name(database_url(url)) and "nowhere" in url_name(database_url(url))
    monkeypatch.setattr(engine, "OPENING_S", 0.0)
    with pytest.raises(DatabaseError, match="cannot be used") as said:
        Store.open(url)
    assert "s3cret" not in str(said.value)


def test_what_is_no_url_is_not_quoted() -> None:
    for text_ in ("postgresql+psycopg://me:s3cret@host:port/x", "mysql+pymysql://me:s3cret@h/x"):
        with pytest.raises(DatabaseError) as said:
            database_url(text_)
        assert "s3cret" not in str(said.value)
