"""The best plan is replaced only by one that was timed against it, in the same cache state."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from autofuse.records import Blame, Failure, FailureKind, Measurement
from tests.support.databases import Databases
from tests.support.tuning_records import ENV, WORKLOAD, failed, filled, measurement, result
from tuning_db import DatabaseError, Store, stale_with_code
from tuning_db.transfer import export_lines, import_lines

NEWER_DRIVER = replace(ENV, stale=(("driver", "6"), ("power", "90")))
OTHER_DEVICE = replace(ENV, must=(("isa", "avx512"),))


@pytest.fixture
def store(databases: Databases) -> Iterator[Store]:
    with Store.open(databases("tuning")) as opened:
        opened.add_workload(WORKLOAD, "graph text", "toy", 3)
        yield opened


def final(name: str, us: float, cache: str = "cold") -> Measurement:
    one = measurement(name, us, "final")
    assert one.timing is not None
    return replace(one, timing=replace(one.timing, cache=cache), code=f"code of {name}")


def best(store: Store, cache: str | None = None) -> tuple[str, float] | None:
    found = store.best(ENV, WORKLOAD, cache)
    if found is None or found.measurement.timing is None:
        return None
    return found.measurement.candidate_digest, found.measurement.timing.median_us


def test_the_session_that_ends_last_does_not_replace_a_better_plan(store: Store) -> None:
    sessions = [store.start_session(ENV, WORKLOAD, "exact", seed, 1.0) for seed in range(2)]
    assert best(store) is None
    assert store.promote(sessions[0], ENV, final("fast", 100.0), None)
    store.finish_session(sessions[0], result("fast"))
    # The other session began before there was a best plan, and ends after.
    store.add_measurement(sessions[1], ENV, final("slow", 150.0))
    assert not store.promote(sessions[1], ENV, final("slow", 150.0), None)
    store.finish_session(sessions[1], result("slow"))
    assert best(store) == ("fast", 100.0)


def test_a_lucky_time_replaces_nothing_that_was_promoted(store: Store) -> None:
    assert store.promote(None, ENV, final("known", 100.0), None)
    store.add_measurement(None, ENV, measurement("lucky", 1.0))
    assert best(store) == ("known", 100.0)


def test_who_was_beaten_is_replaced_and_the_own_time_refreshed(store: Store) -> None:
    assert store.promote(None, ENV, final("first", 100.0), None)
    assert store.promote(None, ENV, final("second", 90.0), "first")
    assert not store.promote(None, ENV, final("third", 80.0), "first")
    assert best(store) == ("second", 90.0)
    assert store.promote(None, ENV, final("second", 95.0), "second")
    assert best(store) == ("second", 95.0)
    assert store.counts()["best_plan"] == 1


def test_a_stored_measurement_is_not_stored_again(store: Store) -> None:
    session = store.start_session(ENV, WORKLOAD, "exact", 0, 1.0)
    store.add_measurement(session, ENV, final("known", 100.0))
    assert store.promote(session, ENV, final("known", 100.0), None)
    assert store.counts()["measurement"] == 1
    assert store.promote(None, ENV, final("new", 90.0), "known")
    assert store.counts()["measurement"] == 2
    found = store.best(ENV, WORKLOAD)
    assert found is not None and found.measurement == final("new", 90.0)


def test_cache_states_are_never_ranked_against_each_other(store: Store) -> None:
    assert store.promote(None, ENV, final("cold", 100.0), None)
    assert store.best(ENV, WORKLOAD, "warm") is None
    assert store.promote(None, ENV, final("warm", 10.0, "warm"), None)
    assert best(store, "cold") == ("cold", 100.0) and best(store, "warm") == ("warm", 10.0)
    assert best(store) == ("warm", 10.0)
    assert store.promote(None, ENV, final("cold", 101.0), "cold")
    assert best(store) == ("cold", 101.0)


def test_without_a_promoted_plan_the_state_measured_last_is_ranked(store: Store) -> None:
    store.add_measurement(None, ENV, final("warm", 1.0, "warm"))
    store.add_measurement(None, ENV, final("slow", 9.0))
    store.add_measurement(None, ENV, final("fast", 8.0))
    assert best(store) == ("fast", 8.0) and best(store, "warm") == ("warm", 1.0)


def test_a_best_plan_that_fails_by_its_own_fault_gives_way(store: Store) -> None:
    assert store.promote(None, ENV, final("known", 100.0), None)
    store.add_measurement(None, ENV, measurement("other", 150.0))
    machine = Failure(FailureKind.CRASH, "killed by SIGKILL", Blame.MACHINE)
    store.add_measurement(None, ENV, replace(failed("known"), failure=machine))
    assert best(store) == ("known", 100.0)
    store.add_measurement(None, ENV, failed("known", FailureKind.WRONG_RESULT))
    assert best(store) == ("other", 150.0)
    assert not store.promote(None, ENV, final("new", 90.0), None)
    assert store.promote(None, ENV, final("new", 90.0), "other")
    assert best(store) == ("new", 90.0)


def test_a_stale_best_plan_gives_way_to_what_is_fresh_and_no_slower(store: Store) -> None:
    assert store.promote(None, ENV, final("old", 100.0), None)

    def served() -> tuple[str, tuple[str, ...]]:
        found = store.best(NEWER_DRIVER, WORKLOAD)
        assert found is not None
        return found.measurement.candidate_digest, found.stale

    store.add_measurement(None, NEWER_DRIVER, measurement("slower", 150.0))
    assert served() == ("old", ("driver",))
    store.add_measurement(None, NEWER_DRIVER, measurement("faster", 90.0))
    assert served() == ("faster", ())
    store.add_measurement(None, NEWER_DRIVER, final("old", 80.0))
    assert served() == ("old", ())
    assert store.promote(None, NEWER_DRIVER, final("new", 70.0), "old")
    assert served() == ("new", ())
    assert store.best(OTHER_DEVICE, WORKLOAD) is None


def test_the_code_of_a_best_plan_is_compared(store: Store) -> None:
    assert store.promote(None, ENV, final("known", 100.0), None)
    found = store.best(ENV, WORKLOAD)
    assert found is not None and found.measurement.code == "code of known"
    assert stale_with_code(found, "code of known") == found
    assert stale_with_code(found, "other").stale == ("code",)
    stale = store.best(NEWER_DRIVER, WORKLOAD)
    assert stale is not None and stale_with_code(stale, "other").stale == ("code", "driver")
    unknown = replace(found, measurement=replace(found.measurement, code=""))
    assert stale_with_code(unknown, "").stale == ("code",)


def test_what_has_no_time_is_not_promoted(store: Store) -> None:
    with pytest.raises(DatabaseError, match="candidate x has no time: it cannot be the best"):
        store.promote(None, ENV, failed("x"), None)
    with pytest.raises(DatabaseError, match="session 99 is not in the database"):
        store.promote(99, ENV, final("x", 1.0), None)
    with pytest.raises(DatabaseError, match="workload nowhere is not in the database"):
        store.promote(None, ENV, replace(final("x", 1.0), workload="nowhere"), None)
    assert store.counts()["best_plan"] == 0 and store.counts()["measurement"] == 0


def test_of_many_sessions_at_once_each_replaces_only_what_it_beat(databases: Databases) -> None:
    url = databases("shared")
    times = [150.0, 100.0, 130.0, 120.0, 110.0, 140.0]
    start = Barrier(len(times))

    def session(us: float) -> None:
        name = f"plan-{us:g}"
        with Store.open(url) as own:
            own.add_workload(WORKLOAD, "graph text", "toy", 3)
            number = own.start_session(ENV, WORKLOAD, "exact", 0, 1.0)
            beaten: str | None = None
            start.wait()
            while not own.promote(number, ENV, final(name, us), beaten):
                present = own.best(ENV, WORKLOAD, "cold")
                assert present is not None and present.measurement.timing is not None
                if present.measurement.timing.median_us <= us:  # it wins when timed again
                    break
                beaten = present.measurement.candidate_digest
            own.finish_session(number, result(""))

    with ThreadPoolExecutor(len(times)) as pool:
        list(pool.map(session, times))
    with Store.open(url) as store:
        assert best(store) == ("plan-100", 100.0)
        assert store.counts()["session"] == len(times)


def test_import_fills_what_is_missing_and_replaces_nothing(
    store: Store, databases: Databases
) -> None:
    filled(store)
    assert store.promote(None, ENV, final("here", 100.0), "good")
    with Store.open(databases("there")) as there:
        there.add_workload(WORKLOAD, "graph text", "toy", 3)
        assert there.promote(None, ENV, final("there", 50.0), None)
        assert there.promote(None, ENV, final("warm", 5.0, "warm"), None)
        assert there.promote(None, OTHER_DEVICE, final("other", 5.0), None)
        exported = list(export_lines(there))
    assert import_lines(store, exported)["best"] == 2
    assert best(store, "cold") == ("here", 100.0) and best(store, "warm") == ("warm", 5.0)
    assert store.best(OTHER_DEVICE, WORKLOAD) is not None
    assert import_lines(store, exported)["best"] == 0
    number = next(n for n, line in enumerate(exported) if '"kind":"best"' in line)
    for old, new, reason in (
        ('"cache":"cold"', '"cache":"warm"', "of another workload or cache state"),
        ('"measurement":"', '"measurement":"x', "on no earlier line"),
    ):
        broken = exported[number].replace(old, new)
        with pytest.raises(
            DatabaseError, match=rf"^line {number + 1}: measurement \w+ is {reason}"
        ):
            import_lines(store, [*exported[:number], broken])


def test_a_name_that_is_a_whole_text_leaves_a_sentence(store: Store, databases: Databases) -> None:
    with Store.open(databases("there")) as there:
        there.add_workload(WORKLOAD, "graph text", "toy", 3)
        assert there.promote(None, ENV, final("there", 50.0), None)
        exported = list(export_lines(there))
    long = json.dumps("return %1\n" * 4_000)
    texts = [line.replace(f'"workload":"{WORKLOAD}"', f'"workload":{long}') for line in exported]
    assert texts != exported
    with pytest.raises(DatabaseError, match=r"^line \d+: .{1,200} is not in the database$"):
        import_lines(store, texts)
