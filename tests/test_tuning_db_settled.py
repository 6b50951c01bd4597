"""What final comparisons have settled, on every kind of database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from autofuse.records import Environment, Measurement, Settled, Verdict
from tests.support.databases import Databases
from tests.support.tuning_records import ENV, WORKLOAD, failed, measurement, result
from tuning_db import Store
from tuning_db.compact import compact
from tuning_db.transfer import merge

NEWER = replace(ENV, stale=(("driver", "6"), ("power", "90")))


def final(name: str, us: float = 10.0, code: str = "c") -> Measurement:
    return replace(measurement(name, us, "final"), code=code)


def compared(
    store: Store, *them: Measurement, beaten: str | None = None, ends: bool = True,
    verdicts: tuple[Verdict, ...] = (),
) -> int:  # fmt: skip
    """A session that timed these together and promoted the first."""
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    session = store.start_session(ENV, WORKLOAD, "random", 7, 60.0)
    assert store.add_comparison(session, ENV, them)
    assert store.promote(session, ENV, them[0], beaten)
    if ends:
        own = replace(result(them[0].candidate_digest, them[-1].candidate_digest))
        store.finish_session(session, replace(own, verdicts=verdicts or own.verdicts))
    return session


def asked(
    store: Store, *names: str, env: Environment = ENV, samples: int = 30,
    codes: Mapping[str, str] | None = None,
) -> Settled | None:  # fmt: skip
    wanted = dict.fromkeys(names, "c") | dict(codes or {})
    return store.settled(env, WORKLOAD, "cold", wanted, samples)


def losers(found: Settled | None) -> set[str]:
    assert found is not None
    return set(found.losers)


def test_who_lost_to_what_is_served_is_settled(store: Store) -> None:
    assert asked(store, "a") is None
    compared(store, final("a", 8.0), final("b"), final("c"))
    found = asked(store, "a", "b", "d")
    assert found is not None and found.winner == final("a", 8.0) and losers(found) == {"b"}
    # Two baselines are this candidate: who has a verdict is told by name.
    assert found.verdicts == (("c", result("a").verdicts[0]),)


def test_nothing_is_settled_by_a_session_that_has_not_ended(store: Store) -> None:
    session = compared(store, final("a"), final("b"), ends=False)
    assert asked(store, "b") is None
    store.finish_session(session, result("a"))
    assert losers(asked(store, "b")) == {"b"}


def test_other_code_other_drivers_and_rougher_comparisons_settle_nothing(store: Store) -> None:
    compared(store, final("a"), final("b"), final("none", code=""))
    assert losers(asked(store, codes={"b": "other", "none": ""})) == set()
    assert asked(store, "b", env=NEWER) is None
    assert asked(store, "b", samples=31) is None and losers(asked(store, "b")) == {"b"}
    assert store.settled(ENV, WORKLOAD, "warm", {"b": "c"}, 1) is None


def test_who_lost_to_one_that_lost_is_settled_while_its_code_is_the_same(store: Store) -> None:
    compared(store, final("a"), final("b"))
    compared(store, final("e", 7.0), final("a"), beaten="a")
    assert losers(asked(store, "a", "b", "e", "d")) == {"a", "b"}
    compared(store, final("f", 6.0), final("e", 7.0, "new"), beaten="e")
    assert losers(asked(store, "a", "b", codes={"e": "new"})) == {"e"}


def test_a_winner_that_failed_since_settles_nothing(store: Store) -> None:
    compared(store, final("a"), final("b"))
    store.add_measurement(None, ENV, failed("a"))
    assert asked(store, "b") is None


def test_two_that_beat_each_other_settle_as_much_as_one_does(store: Store) -> None:
    compared(store, final("a"), final("b"))
    compared(store, final("b"), final("a"), beaten="a")
    assert losers(asked(store, "a", "b", "d")) == {"a"}


def test_a_comparison_is_stored_whole_while_its_lease_is_held(store: Store) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    session = store.start_session(ENV, WORKLOAD, "random", 7, 60.0)
    late = store.claim("final", "late", -1.0)
    second = store.claim("final", "second", 60.0)
    assert late is not None and second is not None
    both = (final("a"), final("b"))
    assert not store.add_comparison(session, ENV, both, late)
    assert store.counts()["measurement"] == 0
    assert store.add_comparison(session, ENV, both, second)
    assert store.measured(ENV, WORKLOAD) == {"a": final("a"), "b": final("b")}
    assert store.claim("final", "third", 60.0) is None, "it is done when the session has ended"


def test_it_is_exported_merged_and_kept(databases: Databases) -> None:
    with Store.open(databases("one")) as one, Store.open(databases("other")) as other:
        compared(one, final("a"), *(final(f"b{n}") for n in range(8)))
        compared(one, final("a", 9.0), *(final("z") for _ in range(8)), beaten="a")
        merge(other, one)
        for store in (one, other):
            compact(store, 1)
            assert losers(asked(store, "b0", "b7", "z")) == {"b0", "b7", "z"}


@pytest.mark.parametrize("others", [0, 2])
def test_what_was_measured_since_is_told_alone(store: Store, others: int) -> None:
    store.add_workload(WORKLOAD, "graph text", "toy", 3)
    store.add_measurement(None, ENV, measurement("old"))
    seen = store.newest_measurement()
    for n in range(others):
        store.add_measurement(None, ENV, measurement(f"new{n}"))
    assert store.measured(ENV, WORKLOAD, seen) == {
        f"new{n}": measurement(f"new{n}") for n in range(others)
    }
    assert len(store.measured(ENV, WORKLOAD)) == 1 + others
