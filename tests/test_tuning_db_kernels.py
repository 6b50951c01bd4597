"""Single kernels in the tuning database: measured once, ever; older databases are brought along."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import event as sql_event

from autofuse.records import FailureKind, KernelMeasurement
from tests.support.tuning_records import (
    ENV,
    failed_kernel,
    filled,
    kernel,
    timing,
)
from tuning_db import DatabaseError, Store, kernels

NEWER_DRIVER = replace(ENV, stale=(("driver", "6"), ("power", "90")))
OTHER_DEVICE = replace(ENV, must=(("isa", "avx512"),))


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
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite_store
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
