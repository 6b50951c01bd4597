"""Tuning with the exact strategy: kernels measured once, gaps, early stops, failures, windows,
memory."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from autofuse import spec, trace, xp
from autofuse.backends.base import Program
from autofuse.backends.registry import Backend
from autofuse.cost.bounds import Calibration, peak_bytes
from autofuse.cover import k_best
from autofuse.devices import DEVICES
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import digest, group_digest
from autofuse.graph.types import Graph
from autofuse.measure.hardware import HOST
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import Candidate, FusionPlan
from autofuse.records import Proof
from autofuse.simplify import normal_form
from autofuse.tuning import Progress, TuneResult, tune
from autofuse.tuning.evaluate import group_digests
from autofuse.tuning.job import tuner
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search import exact
from autofuse.tuning.search.allocation import VAIN, Allocation
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.exact import ExactSearch
from autofuse.zoo.networks import transformer
from benchmarks.planning import mixed
from tests.support.toy_device import LONG_S, QUICK, TOY, toy_kind, workload
from tuning_db import Store

# Faster than any machine, so that no bound is too high.
FAST = Calibration(0.01, 400.0, 5000.0, 1000.0, 10000.0, 4000.0)


# Ten baselines take longer than what is tested here.
pytestmark = pytest.mark.usefixtures("two_baselines")


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, TOY)


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend, calibration: Calibration = FAST) -> None:
    """Register a device, and measure quickly, for one test."""
    known = replace(HOST, calibrate=lambda: calibration, latencies=lambda relaxed: ())
    monkeypatch.setitem(DEVICES, "toy", toy_kind(backend, known))
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))


def tune_exactly(db: Path, graph: Graph | None = None, **more: Any) -> TuneResult:
    budget_s = more.pop("budget_s", LONG_S)
    more = {"baselines": "all"} | more
    return tune(graph or workload(), device="toy", db=str(db), budget_s=budget_s, **more)


def until_measured(count: int) -> dict[str, Any]:
    """What ends a search that has measured so many candidates, on a machine however slow."""
    measured = [0]

    def told(progress: Progress) -> None:
        measured[0] = progress.measured

    return {"progress": told, "stop": lambda: measured[0] >= count}


def kernel_rows(db: Path) -> Counter[tuple[str, str, str]]:
    """How many rows each kernel has under each configuration and cache state."""
    query = (
        "select g.digest, k.launch, k.cache from kernel_measurement k"
        " join group_ g on g.id = k.group_id"
    )
    with closing(sqlite3.connect(db)) as connection:
        return Counter(connection.execute(query).fetchall())


def group_keys(rows: Counter[tuple[str, str, str]]) -> set[str]:
    return {group for group, _, _ in rows}


def check_gap(result: TuneResult) -> None:
    assert result.search_gap is not None and 0 <= result.search_gap <= 1
    floor_us, planned_us = result.proof.search_floor_us, result.proof.planned_us
    assert floor_us is not None and planned_us is not None and floor_us <= planned_us
    assert result.search_gap == pytest.approx(1 - floor_us / planned_us)


def check_result(result: TuneResult) -> None:
    """Verified, and no baseline is faster."""
    assert result.verified and {v.outcome for v in result.verdicts} <= {"faster", "tie"}
    assert result.best_us <= min(result.baseline_us.values())


def test_layers_share_their_kernels_within_and_across_graphs(tmp_path: Path) -> None:
    """Two layers and four: twelve and twenty-four take minutes, and no gap so small is reached.
    Which plan is found follows from measured times: what layers share is asked of one that follows
    rules, and of all measurements."""
    db, few, more = tmp_path / "t.db", transformer(2, 16, 16, 2), transformer(4, 16, 16, 2)
    used, again = (
        group_digests(normal_form(graph), baseline_plan(normal_form(graph), "xla-2022")[0])
        for graph in (few, more)
    )
    assert len(set(used)) <= 0.7 * len(used) and set(used) == set(again)
    check_result(tune_exactly(db, few, search_gap=0.6, budget_s=60, **until_measured(6)))
    before = kernel_rows(db)
    assert before and set(before.values()) == {1}
    check_result(tune_exactly(db, more, search_gap=0.6, budget_s=60, **until_measured(6)))
    after = kernel_rows(db)
    assert set(after.values()) == {1}, "a time that is known is not taken again"
    assert before.keys() <= after.keys()
    graph = normal_form(more)
    offered = {group_digest(graph, g.nodes, g.outputs) for g in enumerate_groups(graph).groups}
    assert group_keys(before) & offered


def test_the_gap_is_reported_and_kept(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    result = tune_exactly(db)
    check_result(result)
    check_gap(result)
    assert result.search_gap == pytest.approx(0, abs=1e-6) and result.proof.certificate == "whole"
    data = result.to_json()
    assert data["search_gap"] == result.search_gap and data["certificate"] == "whole"
    with Store.open(str(db)) as store:
        (ended,) = store.sessions(digest(normal_form(workload())))
        events = store.events(ended.id)
    assert ended.result is not None and ended.result.proof.search_gap == result.search_gap
    assert (events[-1].proof.search_gap, events[-1].proof.search_floor_us) == (
        result.search_gap,
        result.proof.search_floor_us,
    )


def test_kernels_below_their_bounds_refute_the_calibration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not [n for n in tune_exactly(tmp_path / "t.db").notes if "lower bound" in n]
    slow = Calibration(1e6, 1.0, 1.0, 1.0, 1.0, 1.0)
    use(monkeypatch, TOY, slow)
    result = tune_exactly(tmp_path / "slow.db")
    (note,) = (n for n in result.notes if "lower bound" in n)
    assert "neither gap is proved" in note


def test_a_gap_that_is_allowed_ends_the_search_early(tmp_path: Path) -> None:
    full = tune_exactly(tmp_path / "full.db", normal_form(mixed(7)))
    early = tune_exactly(tmp_path / "early.db", normal_form(mixed(7)), search_gap=1.0)
    check_result(early)
    check_gap(early)
    assert full.search_gap == pytest.approx(0, abs=1e-6)
    rows = [group_keys(kernel_rows(tmp_path / name)) for name in ("early.db", "full.db")]
    assert len(rows[0]) < len(rows[1])


def test_few_runs_are_worth_no_measuring_and_many_are(tmp_path: Path) -> None:
    one = tune_exactly(tmp_path / "one.db", normal_form(mixed(9)), runs=1)
    many = tune_exactly(tmp_path / "many.db", normal_form(mixed(9)), runs=1e12)
    check_result(one)
    check_gap(one)
    assert one.measured < many.measured
    assert (
        one.search_gap is not None
        and many.search_gap is not None
        and many.search_gap < one.search_gap
    )
    launches = {launch for _, launch, _ in kernel_rows(tmp_path / "one.db")}
    assert len(launches) == 1


OPTIMISTIC = FusionPlan(())


@dataclass
class Scripted(ExactSearch):
    """A search whose plan takes what is scripted each time that it is planned, and whose optimistic
    estimates are all worth following."""

    takes_us: list[float]
    followed: int = 0

    def __post_init__(self) -> None:
        self.proof, self.expected, self.allocation = Proof(), {"k": 1.0}, Allocation(None)
        self.bench = Mock(left_s=lambda: 1.0)

    def _planned(self, may_yield: bool) -> tuple[FusionPlan | None, bool]:
        self.proof = replace(self.proof, planned_us=self.takes_us.pop(0))
        return FusionPlan(()), False

    def _optimistic(self) -> FusionPlan | None:
        self.followed += 1
        return OPTIMISTIC

    def _tune(self, found: FusionPlan, yielded: bool) -> int:
        return int(found is OPTIMISTIC)


def test_estimates_are_followed_until_some_in_a_row_came_to_nothing() -> None:
    search = Scripted([9.0, 8.0, 8.0, 8.0, 8.0, 7.0, *[7.0] * 9])
    search._search()
    assert search.followed == 5 + VAIN


def test_a_second_tune_measures_no_kernel_again(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    first = tune_exactly(db)
    rows = kernel_rows(db)
    assert first.measured > 2 and set(rows.values()) == {1}
    second = tune_exactly(db)
    check_result(second)
    assert kernel_rows(db) == rows and second.measured == 0


@dataclass(frozen=True)
class Crashing:
    """The toy's `program`, but kernels with all of these words in their text crash."""

    words: tuple[str, ...]

    def __call__(self, graph: Graph, candidate: Candidate) -> Program:
        made = TOY.program(graph, candidate)
        sources = [replace(s, text=self.spoilt(s.name, s.text)) for s in made.sources]
        return replace(made, sources=tuple(sources))

    def spoilt(self, name: str, text: str) -> str:
        head, mark, body = text.partition(f"void {name}(")
        if not mark or not all(word in body for word in self.words):
            return text
        first, brace, rest = body.partition(")\n{")
        return f"{head}{mark}{first}{brace} *(volatile int *)8 = 1;{rest}"


def test_a_crashing_kernel_is_one_failed_row_and_another_plan_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, replace(TOY, program=Crashing(("af_exp_f32", "acc", " / "))))
    db = tmp_path / "t.db"
    result = tune_exactly(db)
    check_result(result)
    check_gap(result)
    assert result.failed["crash"] >= 1 and len(result.best.plan.groups) > 1
    query = "select count(*) from kernel_measurement where failure_kind = 'crash'"
    with closing(sqlite3.connect(db)) as connection:
        ((failed,),) = connection.execute(query).fetchall()
    assert failed >= 1 and set(kernel_rows(db).values()) == {1}
    again = tune_exactly(db)
    check_result(again)
    assert again.failed == {} and again.measured == 0


def test_a_large_graph_is_planned_window_by_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exact, "WHOLE_NODES", 12)
    graph = normal_form(mixed(24))
    result = tune_exactly(tmp_path / "t.db", graph, budget_s=20)
    check_result(result)
    check_gap(result)
    check_plan(graph, result.best.plan)
    data = result.to_json()
    assert data["certificate"] == "per window"
    assert any("per window" in note for note in data["notes"])
    assert set(kernel_rows(tmp_path / "t.db").values()) == {1}


def test_plans_over_the_memory_are_not_chosen(tmp_path: Path) -> None:
    graph = normal_form(mixed(9))
    most = peak_bytes(graph, baseline_plan(graph, "unfused")[0])
    assert most > 0
    bound = tune_exactly(tmp_path / "bound.db", graph, max_memory=most - 1, search_gap=0.05)
    assert bound.verified and peak_bytes(graph, bound.best.plan) == bound.peak_bytes < most
    assert bound.to_json()["best"]["peak_bytes"] == bound.peak_bytes
    assert any("more than allowed" in note for note in bound.notes)
    assert set(bound.to_json()["speedup_over"]) == set(bound.baseline_us)


def test_a_memory_that_nothing_fits_is_one_sentence(tmp_path: Path) -> None:
    graph = normal_form(
        trace(lambda x: xp.cumulative_sum(xp.cumulative_sum(x, axis=0), axis=1), spec((300, 300)))
    )
    with pytest.raises(AutofuseError, match=r"no plan was found that fits 8 bytes .* needs \d+$"):
        tune_exactly(tmp_path / "t.db", graph, max_memory=8, search_gap=0.5)


def test_the_lightest_plan_keeps_least_in_memory() -> None:
    graph = normal_form(workload())
    cover = cover_problem(enumerate_groups(graph), digests=True)
    light = cover.plan(cover.lightest())
    check_plan(graph, light)
    every = (cover.plan(one.plan) for one in k_best(cover.problem, k=20))
    assert peak_bytes(graph, light) <= min(peak_bytes(graph, plan) for plan in every)


def test_only_what_a_calibration_lacks_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that was calibrated before there were latencies is asked for these alone."""
    db, asked = tmp_path / "t.db", list[str]()
    tune_exactly(db, search_gap=0.9)

    def latencies(relaxed: bool) -> tuple[tuple[str, float], ...]:
        asked.append("latencies")
        return (("add.f32.0", 1.0),)

    def calibrate() -> Calibration:
        raise AssertionError("calibrated again")

    known = replace(HOST, calibrate=calibrate, latencies=latencies)
    monkeypatch.setitem(DEVICES, "toy", toy_kind(TOY, known))
    for _ in range(2):
        tune_exactly(db, search_gap=0.9)
    with Store.open(db) as store:
        kept = store.calibration(toy_kind(TOY, known).backend.environment())
    assert asked == ["latencies"] and kept["latency.add.f32.0"] == 1.0
    assert Calibration.kept(kept) == replace(FAST, latency=(("add.f32.0", 1.0),))
