"""Arithmetic is changed only where that is asked for; plans that change it serve nobody else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse import xp
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate, LaunchConfig, candidate_from_json
from autofuse.simplify import forms_of, normal_form
from autofuse.tuning import plan_named
from autofuse.tuning.plans import known_plans
from autofuse.tuning.serve.borrowed import Lent, borrow
from tuning_db import Store

pytestmark = pytest.mark.usefixtures("two_baselines")
N = 4096


def difference() -> Graph:
    return autofuse.trace(lambda x, y: (x + y) - x, autofuse.spec(N), autofuse.spec(N))


def relaxed(candidate: Candidate) -> Candidate:
    launches = (
        LaunchConfig.of(**{**dict(c.settings), "math": "relaxed"}) for c in candidate.launches
    )
    return replace(candidate, launches=tuple(launches))


def options(math: str) -> set[object]:
    """What the launch space of the CPU offers a kernel."""
    kind, seen = device_named("cpu", math=math), set[object]()
    graph = normal_form(difference())
    plan = plan_named(graph, "fused", device_named("cpu")).plan

    def note(_: str, offered: tuple[object, ...]) -> object:
        seen.update(offered)
        return offered[0]

    kind.space.choose(graph, plan.groups[0], note, "p")
    return seen


def test_relaxed_launches_are_offered_where_they_are_asked_for() -> None:
    assert "relaxed" not in options("default") and "relaxed" in options("relaxed")
    assert device_named("cpu", math="relaxed").backend.environment() != (
        device_named("cpu").backend.environment()
    )
    with pytest.raises(AutofuseError, match="math is one of default, relaxed, not 'fast'"):
        device_named("cpu", math="fast")


def test_a_sum_and_a_difference_round_as_they_are_written(tmp_path: Path) -> None:
    plan = autofuse.compile(difference(), device="cpu", db=str(tmp_path / "t.db"))
    x, y = np.full(N, 1e8, np.float32), np.ones(N, np.float32)
    np.testing.assert_array_equal(plan(x, y)[0], (x + y) - x)


def test_what_is_tuned_under_other_math_is_not_served(tmp_path: Path) -> None:
    db = str(tmp_path / "t.db")
    autofuse.tune(difference(), device="cpu", db=db, budget_s=3.0, math="relaxed")
    here = autofuse.compile(difference(), device="cpu", db=db, math="relaxed")
    other = autofuse.compile(difference(), device="cpu", db=db)
    assert here.origin.startswith("best") and not other.origin.startswith("best")
    assert any("other math" in note for note in other.notes)
    with pytest.raises(AutofuseError, match="other math"):
        autofuse.compile(difference(), device="cpu", db=db, on_miss="error")


def test_rows_of_former_versions_with_changed_arithmetic_are_passed_over(tmp_path: Path) -> None:
    """They were tuned when nobody had to ask for it; tuning again replaces them."""
    db = str(tmp_path / "t.db")
    first = autofuse.tune(difference(), device="cpu", db=db, budget_s=3.0)
    backend = device_named("cpu").backend
    changed = relaxed(candidate_from_json(first.best_record.candidate))
    timing = first.best_record.timing
    assert timing is not None
    old = replace(
        first.best_record, candidate=changed.to_json(), candidate_digest=changed.digest,
        timing=replace(
            timing, min_us=timing.min_us / 100, q1_us=timing.q1_us / 100,
            median_us=timing.median_us / 100,
        ),
    )  # fmt: skip
    with Store.open(db) as store:
        session = store.start_session(backend.environment(), first.digest, "exact", 0, 1.0)
        store.add_measurement(session, backend.environment(), old)
        assert store.promote(
            session, backend.environment(), old, first.best_record.candidate_digest
        )
    known, passed = known_plans(normal_form(difference()), backend, db)
    assert known is not None and known.candidate.digest != changed.digest
    assert [one.plan_digest for one in passed] == [changed.digest]
    assert "math='relaxed'" in str(passed[0])
    again = autofuse.tune(difference(), device="cpu", db=db, budget_s=3.0)
    assert again.best_record.candidate_digest != changed.digest
    _, passed = known_plans(normal_form(difference()), backend, db)
    assert passed == (), "what took its place is promoted"


def test_what_changes_arithmetic_is_not_borrowed() -> None:
    forms = forms_of(difference())
    kind = device_named("cpu")
    given = relaxed(plan_named(forms.graph, "fused", device_named("cpu"), simplify=False))
    lent = Lent("cpu", (("model", "another"),), given, "database")
    assert borrow(forms, kind, [lent])[0] is None


# --- signed zeros ---------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["maximum", "minimum"])
def test_of_two_zeros_either_is_the_extremum(op: str, tmp_path: Path) -> None:
    """Which one is not said; a zero it is, and NaN comes through, whatever the order."""
    function = getattr(xp, op)
    x = np.tile(np.array([0.0, -0.0, np.nan, 1.0], np.float32), N // 4)
    y = np.tile(np.array([-0.0, 0.0, 0.0, np.nan], np.float32), N // 4)
    for a, b in ((x, y), (y, x)):
        graph = autofuse.trace(lambda x, y: function(x, y), autofuse.spec(N), autofuse.spec(N))
        (found,) = autofuse.compile(graph, device="cpu", db=str(tmp_path / "t.db"))(a, b)
        zeros = (a == 0) & (b == 0)
        assert (found[zeros] == 0).all() and np.isnan(found[~zeros]).all()
        bits = set(found[zeros].view(np.uint32).tolist())
        assert bits <= {0x00000000, 0x80000000}
