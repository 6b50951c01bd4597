"""Final comparisons that sessions share, on a device that keeps a ledger of what was run on it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.devices import DEVICES
from autofuse.measure.worker.session import Worker
from autofuse.records import Blame, Measurement
from autofuse.sources import load_source
from autofuse.tuning import TuneResult, tune
from autofuse.tuning.job import adopting, finals, incumbent
from autofuse.tuning.job.incumbent import ADOPTED
from autofuse.tuning.job.job import ELSEWHERE, Job
from autofuse.tuning.problem import default_candidate
from benchmarks.soak.simulated import NAME, runs, simulated_kind
from tuning_db import Store

pytestmark = pytest.mark.usefixtures("two_baselines")
LONG_S = 600.0
FINAL = "final"
FAILED = replace(ELSEWHERE, blame=Blame.CANDIDATE)


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The device's, which is registered."""
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setitem(DEVICES, NAME, simulated_kind(path))
    return path


def tuned(folder: Path, measured: int = 4, **more: Any) -> TuneResult:
    """A session that measures about so many candidates."""
    name, graph = load_source("zoo:batched_products:small")
    path, seen = folder / "ledger.jsonl", len(measured_in(folder))
    return tune(
        graph, name=name, device=NAME, db=str(folder / "tuning.db"), budget_s=LONG_S,
        stop=lambda: path.exists() and len(measured_in(folder)) >= seen + measured,
        **{"baselines": "all", **more},
    )  # fmt: skip


def measured_in(folder: Path) -> set[str]:
    return {run.candidate for run in runs(folder / "ledger.jsonl") if run.what != "compared"}


def compared(folder: Path) -> list[str]:
    return [run.candidate for run in runs(folder / "ledger.jsonl") if run.what == "compared"]


def test_what_was_compared_is_adopted_with_its_verdicts(ledger: Path, tmp_path: Path) -> None:
    first = tuned(tmp_path)
    before = compared(tmp_path)
    second = tuned(tmp_path, 0)
    assert before and compared(tmp_path) == before
    assert ADOPTED in second.notes and ADOPTED not in first.notes
    assert second.best.digest == first.best.digest and second.best_us == first.best_us
    told = {v.other: v for v in first.verdicts}
    assert second.verdicts and all(told[v.other] == v for v in second.verdicts)
    with Store.open(str(tmp_path / "tuning.db")) as store:
        rows = store.sessions(first.digest)
        assert [row.result.best_digest for row in rows if row.result] == [first.best.digest] * 2
        finals = [m for m in store.measurements(first.digest) if m.stage == FINAL]
    assert {m.candidate_digest for m in finals} == set(before)


def test_only_what_is_new_is_compared_with_the_winner(ledger: Path, tmp_path: Path) -> None:
    first = tuned(tmp_path)
    before = compared(tmp_path)
    second = tuned(tmp_path, 30, seed=1)
    late = set(compared(tmp_path)[len(before) :])
    assert late and late & set(before) == {first.best.digest}
    assert set(second.baseline_us) == {"unfused", "xla-2022"}
    for verdict in second.verdicts:
        assert verdict.ratio == pytest.approx(second.baseline_us[verdict.other] / second.best_us)
    third = tuned(tmp_path, 0)
    assert ADOPTED in third.notes and third.best.digest == second.best.digest


def test_a_winner_that_fails_now_settles_nothing(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails in the comparison with what is new: then all others are compared again."""
    first = tuned(tmp_path)
    known, decide, asked = adopting.past, finals.decide, list[set[str]]()

    def one_is_new(job: Job, them: adopting.Entrants, seconds: float) -> adopting.Past | None:
        found = known(job, them, seconds)
        other = next(m for m in them.ranked if m.candidate_digest != first.best.digest)
        return found and replace(found, finalists=(other,))

    def deciding(evaluator: Any, finalists: Any, baselines: Any, *more: Any) -> Any:
        served = more[-1]
        asked.append({m.candidate_digest for m in (*finalists, *baselines.values(), served) if m})
        found = decide(evaluator, finalists, baselines, *more)
        if len(asked) > 1 or found.final is None:
            return found
        lost = replace(served, stage=FINAL, timing=None, failure=FAILED, max_rel_error=None)
        return replace(found, final=replace(found.final, timed=()), failed=(lost,))

    monkeypatch.setattr(incumbent, "adopted", lambda *_: None)
    monkeypatch.setattr(incumbent, "past", one_is_new)
    monkeypatch.setattr(incumbent, "decide", deciding)
    second = tuned(tmp_path, 0)
    assert first.best.digest in asked[0] and len(asked[0]) == 2
    assert first.best.digest not in asked[1] and len(asked[1]) > 2
    assert second.best.digest != first.best.digest


def test_who_lost_the_lease_meanwhile_takes_what_the_other_found(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compare, begun = Worker.compare, threading.Event()
    other: list[TuneResult] = []

    def comparing(self: Worker, *given: Any) -> Any:
        found = compare(self, *given)
        if not begun.is_set():
            begun.set()
            with Store.open(str(tmp_path / "tuning.db")) as store:
                ((key, _),) = store.held(FINAL)
                assert store.revoke(key)
            other.append(tuned(tmp_path, 0))
        return found

    monkeypatch.setattr(Worker, "compare", comparing)
    late = tuned(tmp_path)
    assert ADOPTED in late.notes and ADOPTED not in other[0].notes
    with Store.open(str(tmp_path / "tuning.db")) as store:
        sessions = store.sessions(late.digest)
        rows = [m for m in store.measurements(late.digest) if m.stage == FINAL]
    assert len(sessions) == 2
    assert len({m.candidate_digest for m in rows}) == len(rows), "the late one stored nothing"


@pytest.fixture
def a_job(ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Job]:
    """The job of a session that has ended, its database still open."""
    jobs: list[Job] = []
    made = Job.__init__

    def noted(self: Job, *given: Any) -> None:
        made(self, *given)
        jobs.append(self)

    def job() -> Job:
        monkeypatch.setattr(Job, "__init__", noted)
        tuned(tmp_path)
        return jobs[-1]

    return job


def test_at_the_end_nobody_measures_what_another_measures(a_job: Callable[[], Job]) -> None:
    job = a_job()
    candidate = default_candidate(job.graph, job.plans["unfused"], job.space, "another")
    strange = replace(candidate, launches=tuple(_strange(c) for c in candidate.launches))
    other = job.store.claim(f"{job.place('measure')}:{strange.digest}", "elsewhere 1", 60.0)
    assert job.is_over() and other is not None
    before = job.measured
    record: Measurement = job.measure_now(strange, "search")
    assert record.failure == ELSEWHERE and job.measured == before
    assert strange.digest not in job.stored


def _strange(launch: Any) -> Any:
    return type(launch).of(**{**dict(launch.settings), "loop_unroll": 8, "stream": True})


def test_what_is_settled_is_taken_at_once_and_nobody_waits_without_time(
    a_job: Callable[[], Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = a_job()
    job.budget = replace(job.budget, seconds=1e-3)
    assert job.store.claim(job.place(FINAL), "elsewhere 1", 60.0) is not None
    assert adopting.adopted(job, 0.5) is not None
    monkeypatch.setattr(adopting, "past", lambda *_: None)
    assert adopting.adopted(job, 0.5) is None and job.sharing.is_elsewhere
