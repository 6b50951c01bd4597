"""Who chooses how many iterations of a loop are one: kernels, search spaces, the exact planner."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.cost.bounds import NOMINAL
from autofuse.devices import DEVICES
from autofuse.kernel.ir.emit import LoweringError
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import FusionGroup, FusionPlan, LaunchConfig, candidate_from_json
from autofuse.tuning import tune
from autofuse.tuning.job import tuner
from autofuse.tuning.job.job import Job
from autofuse.tuning.search.profiling import Kernels
from search_spaces import CpuLaunchSpace, FusionSpace
from search_spaces.fusion import unroll_factors
from tests.support.batching import Case, failures
from tests.support.toy_device import LONG_S, QUICK, toy_kind
from tests.support.unrolled_plans import GRAPH, LOOP, TRIP, whole

# --- inside one kernel ----------------------------------------------------------------------


def test_a_loop_in_one_kernel_may_run_several_trips_at_a_time() -> None:
    assert not failures([Case(GRAPH, whole(k), f"by {k}") for k in (1, 2, 3, 6)])


def test_trips_at_a_time_are_one_turn_of_the_kernels_loop() -> None:
    group, _ = extract(GRAPH, whole(1).plan.groups[0])
    turns = {k: str(lower(group, LaunchConfig.of(loop_unroll=k))) for k in (1, 2, 6)}
    for unroll, lines in turns.items():
        assert f"serial t0 < {TRIP // unroll}:i64" in lines
        assert lines.count("tanh") == unroll * turns[1].count("tanh")
    assert str(lower(group, LaunchConfig())) == turns[1]
    with pytest.raises(LoweringError, match="a loop of 6 iterations cannot be unrolled by 4"):
        lower(group, LaunchConfig.of(loop_unroll=4))


def test_the_launch_space_of_a_loop_offers_what_divides_its_trips() -> None:
    space, group = CpuLaunchSpace(), whole(1).plan.groups[0]

    def choosing(unroll: int) -> LaunchConfig:
        return space.choose(
            GRAPH, group, lambda name, options: unroll if "unroll.1/2" in name else options[0], "p"
        )

    assert choosing(1) == space.default(GRAPH, group)
    assert choosing(2).get("loop_unroll", 1) == 2


# --- choosing -------------------------------------------------------------------------------


def test_factors_are_few_divisors_and_one_comes_first() -> None:
    assert unroll_factors(10, 20) == (1, 2, 5, 10)
    assert unroll_factors(64, 20) == (1, 2, 8, 16)
    assert unroll_factors(60, 20) == (1, 2, 6, 15)
    assert unroll_factors(13, 20) == (1, 13)
    assert unroll_factors(101, 20) == unroll_factors(1, 20) == unroll_factors(10, 600) == (1,)
    assert unroll_factors(10, 200) == (1, 2)


def test_the_space_asks_for_a_factor_and_finds_a_plan_again() -> None:
    asked: dict[str, tuple[object, ...]] = {}

    def choose(name: str, options: tuple[object, ...]) -> object:
        asked[name] = options
        if name.startswith("loop:"):
            return "body"
        return 3 if name.startswith("unroll:") else options[0]

    space = FusionSpace(GRAPH)
    plan = space.choose(choose)
    assert asked[f"unroll:{LOOP}"] == (1, 2, 3, 6)
    assert {g.unroll for g in plan.groups} == {1, 3}
    check_plan(GRAPH, plan)
    chosen = space.encode(plan)
    assert chosen[f"unroll:{LOOP}"] == 3
    assert space.choose(lambda name, options: chosen.get(name, options[0])) == plan


def test_a_loop_in_one_kernel_is_asked_no_factor() -> None:
    asked: list[str] = []
    FusionSpace(GRAPH).choose(lambda name, options: (asked.append(name), options[0])[1])
    assert f"loop:{LOOP}" in asked and not any("unroll:" in name for name in asked)


def faked_us(group: FusionGroup) -> float:
    """Three iterations at once are least, if they are one kernel."""
    if group.body is None:
        return 1000.0 if LOOP in group.nodes else 1.0
    return (10.0 if group.unroll == 3 else 100.0) * len(group.body.groups)


def test_the_exact_planner_unrolls_where_that_costs_least(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Kernel times are made up; whole plans are built, checked and timed."""

    def profile(self: Kernels, found: FusionPlan, trial: Mapping[str, LaunchConfig]) -> bool:
        made = self.candidate(found, trial)
        for key, group, launch in zip(
            self.keys(made.plan), made.plan.groups, made.launches, strict=True
        ):
            self._kernel(key).us[launch] = faked_us(group)
        return True

    monkeypatch.setitem(DEVICES, "toy", toy_kind())
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))
    monkeypatch.setattr(Job, "calibration", lambda _: replace(NOMINAL, launch_us=0.01))
    monkeypatch.setattr(Kernels, "profile", profile)
    db = tmp_path / "t.db"
    result = tune(GRAPH, device="toy", db=str(db), budget_s=LONG_S, baselines="all", simplify=False)
    assert result.verified and result.search_gap == pytest.approx(0, abs=1e-6)
    assert result.proof.planned_us == pytest.approx(11.0)
    with closing(sqlite3.connect(db)) as connection:
        query = (
            "select distinct json from candidate c join measurement m on m.candidate_id = c.id"
            " where failure_kind is null and c.origin = 'exact'"
        )
        rows = connection.execute(query).fetchall()
    plans = [candidate_from_json(text).plan for (text,) in rows]
    assert {g.unroll for plan in plans for g in plan.groups if LOOP in g.nodes} == {3}
