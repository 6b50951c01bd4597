"""Leases: of those who want a piece of work one gets it, and who comes too late writes nothing."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from tests.support.databases import Databases
from tests.support.tuning_records import ENV, WORKLOAD, failed, filled, kernel, measurement
from tuning_db import Store
from tuning_db.compact import compact
from tuning_db.transfer import export_lines, merge


def test_one_of_two_gets_the_work_until_it_is_released(store: Store) -> None:
    first = store.claim("work", "one", 60.0)
    assert first is not None and store.claim("work", "two", 60.0) is None
    assert store.claim("other work", "two", 60.0) is not None
    assert store.prolong(first, 60.0)
    store.release(first)
    assert not store.prolong(first, 60.0)
    assert store.claim("work", "two", 60.0) is not None


def test_what_has_expired_is_taken_over_and_the_late_writer_fenced_off(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    late = store.claim("work", "late", -1.0)
    second = store.claim("work", "second", 60.0)
    assert late is not None and second is not None
    assert not store.add_measurement(None, ENV, measurement("x", 9.0), late)
    assert store.measured(ENV, WORKLOAD) == {}
    store.release(late)
    assert store.add_measurement(None, ENV, measurement("x", 8.0), second)
    assert store.measured(ENV, WORKLOAD) == {"x": measurement("x", 8.0)}
    assert store.counts()["lease"] == 0


def test_late_but_not_taken_over_is_not_too_late(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    late = store.claim("work", "late", -1.0)
    assert late is not None and store.add_measurement(None, ENV, measurement("x"), late)


def test_many_share_the_work_and_do_nothing_twice(databases: Databases) -> None:
    url, items = databases("shared"), [f"c{n}" for n in range(20)]

    def work(owner: int) -> int:
        done = 0
        with Store.open(url) as store:
            for name in items[owner * 3 :] + items[: owner * 3]:
                lease = store.claim(name, f"w{owner}", 60.0)
                if lease is None:
                    continue
                if name in store.measured(ENV, WORKLOAD):
                    store.release(lease)
                else:
                    done += store.add_measurement(None, ENV, measurement(name), lease)
        return done

    with Store.open(url) as store:
        store.add_workload(WORKLOAD, "graph text", "toy", 3)
        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(work, range(4))) == len(items)
        found = Counter(one.candidate_digest for one in store.measurements(WORKLOAD))
        assert found == Counter(items) and store.counts()["lease"] == 0


# --- keeping it small, bringing it together -----------------------------------------------------


def test_compacting_changes_no_answer(store: Store) -> None:
    session = filled(store)
    final = replace(measurement("good", 9.0, "final"), code="c")
    assert store.promote(session, ENV, final, "good")
    for n in range(9):
        store.add_measurement(session, ENV, measurement("loose", 20.0 + n))
        store.add_measurement(session, ENV, failed("broken"))
        store.add_kernel(session, ENV, kernel("g", 5.0 + n))
        store.add_kernel(session, ENV, kernel("g", 5.0 + n, cache="warm"))
    store.claim("gone", "nobody", -1.0)
    store.claim("held", "somebody", 60.0)

    def answers() -> tuple[object, ...]:
        groups = ["g", "g-good", "g-broken"]
        known = (store.measured(ENV, WORKLOAD), store.kernels(ENV, groups), store.sessions())
        return (*known, store.best(ENV, WORKLOAD), store.incumbent(ENV, WORKLOAD, "cold"))

    before, rows = answers(), store.counts()
    assert compact(store, 3) == {"measurement": 7 + 9, "kernel_measurement": 2 * 6, "lease": 1}
    assert answers() == before
    left = store.counts()
    assert left["measurement"] == rows["measurement"] - 16 and left["lease"] == 1
    assert compact(store, 3) == {"measurement": 0, "kernel_measurement": 0, "lease": 0}


def test_merging_adds_what_is_new(databases: Databases) -> None:
    with Store.open(databases("one")) as one, Store.open(databases("two")) as two:
        filled(one)
        filled(two)
        two.add_measurement(None, ENV, measurement("more", 5.0))
        assert merge(one, two)["measurement"] == 6 and merge(one, two)["measurement"] == 0
        assert {"more"} <= set(one.measured(ENV, WORKLOAD))
        assert len(list(export_lines(one))) > len(list(export_lines(two)))
