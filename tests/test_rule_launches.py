"""Launches of the rules' partitions are tuned, and what is known of a plan's kernels is used."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.devices import DEVICES
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import canonical
from autofuse.tuning.known_kernels import tuned_candidate
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.problem import default_candidate
from tests.support.toy_device import workload
from tests.support.toy_tuning import check_complete, stored, toy, tune_toy
from tuning_db import Store

__all__ = ["toy"]  # a fixture
pytestmark = pytest.mark.usefixtures("two_baselines")

RULES = ("unfused", "xla-2022")


def test_the_partitions_stay_and_every_kernel_goes_through_its_space(
    toy: None, tmp_path: Path
) -> None:
    db, graph = tmp_path / "t.db", canonical(workload())
    result = tune_toy(db, "launches")
    check_complete(result, db, workload())
    plans = {baseline_plan(graph, name)[0] for name in RULES}
    assert result.best.plan in plans and result.trials > 0 and result.search_gap is None
    with Store.open(str(db)) as store:
        kernels = {group for plan in plans for group in plan.groups}
        environment = DEVICES["toy"].backend.environment()
        keys = {key for row in stored(db, workload())[0] for key in row.groups}
        found = store.kernels(environment, keys)
    tried = {group: set[str]() for group, *_ in found}
    for group, launch, *_ in found:
        tried[group].add(launch)
    assert tried and all(len(each) == 2 for each in tried.values()) and len(tried) <= len(kernels)


def test_a_plan_is_given_the_fastest_launches_that_are_known(toy: None, tmp_path: Path) -> None:
    db, graph, kind = str(tmp_path / "t.db"), canonical(workload()), DEVICES["toy"]
    plan = baseline_plan(graph, "unfused")[0]
    bare = default_candidate(graph, plan, kind.space, "unfused")
    with Store.open(db):
        pass
    assert tuned_candidate(graph, plan, kind, db, "unfused") == (bare, 0)
    tune_toy(Path(db), "launches")
    tuned, known = tuned_candidate(graph, plan, kind, db, "unfused")
    assert known == len(plan.groups) and tuned.plan == plan
    with Store.open(db) as store:
        environment = kind.backend.environment()
        rows = store.kernels(environment, set(stored(Path(db), workload())[0][0].groups))
    assert len(rows) >= len(plan.groups)


def test_the_strategy_has_no_options(toy: None, tmp_path: Path) -> None:
    with pytest.raises(AutofuseError, match="strategy 'launches' has no option 'sampler'"):
        tune_toy(tmp_path / "t.db", "launches", options={"sampler": "tpe"})
