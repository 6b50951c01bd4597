"""What tuning stores and promises: times of the code that ran, blame, plans that never get worse,
budgets that are caps, and progress that never stands still."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from autofuse.backends.cpu import backend as cpu
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.graph.canonical import canonical, digest
from autofuse.kernel.ir.types import Kernel
from autofuse.measure.timing.sampling import Sampling, summarise
from autofuse.measure.worker.protocol import Reply
from autofuse.measure.worker.session import Worker
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.records import Blame, Failure, FailureKind, Measurement, Timing
from autofuse.tuning import best_plan
from autofuse.tuning.budget import Budget
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job import finals, incumbent, rules
from autofuse.tuning.job.finals import FinalDecision
from autofuse.tuning.job.heartbeat import Heartbeat
from autofuse.tuning.plans import baseline_candidate, baseline_plan
from autofuse.tuning.result import Progress
from search_spaces import CpuLaunchSpace
from tests.support.toy_device import TOY, toy_kind, workload
from tests.support.toy_tuning import after, toy, tune_toy
from tuning_db import Store

__all__ = ["toy"]  # a fixture
pytestmark = pytest.mark.usefixtures("two_baselines")


# --- a stored time belongs to the code that ran -------------------------------------------------


def stored_kernels(db: Path) -> set[tuple[str, str, str]]:
    """Group, launch and code of every kernel row, which must all be different."""
    query = (
        "select g.digest, k.launch, k.code from kernel_measurement k"
        " join group_ g on g.id = k.group_id"
    )
    with closing(sqlite3.connect(db)) as connection:
        rows = connection.execute(query).fetchall()
    assert len(set(rows)) == len(rows) and all(code for _, _, code in rows)
    return set(rows)


def test_exactly_the_kernels_that_a_change_touches_are_measured_again(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "t.db"
    graph = canonical(workload())
    plans = [baseline_plan(graph, name)[0] for name in ("unfused", "xla-2022")]
    kernels = enumerate_groups(graph, include=plans)
    exponential = {
        kernels.digest(i): any(graph[n].op == "exp" for n in group.nodes)
        for i, group in enumerate(kernels.groups)
    }
    tune_toy(db, "exact")
    before = stored_kernels(db)
    assert tune_toy(db, "exact").measured == 0 and stored_kernels(db) == before
    monkeypatch.setattr(cpu, "print_c", printed_otherwise(cpu.print_c))
    cpu.rendered.cache_clear()
    tune_toy(db, "exact")
    cpu.rendered.cache_clear()
    added = stored_kernels(db) - before
    # What is measured anew may lead the search to launches that it had left out.
    known = {(group, launch) for group, launch, _ in before}
    again = {group for group, launch, _ in added if (group, launch) in known}
    assert again and all(exponential[group] for group in again)


def printed_otherwise(printed: Callable[[Kernel], str]) -> Callable[[Kernel], str]:
    """The printer with another spelling of the exponential."""
    return lambda kernel: printed(kernel).replace("af_exp_f32(", "(af_exp_f32)(")


def test_a_best_plan_of_other_code_is_served_and_said_to_be_stale(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "t.db"
    tune_toy(db, stop=after(6))
    known = best_plan(workload(), device="toy", db=str(db))
    assert known is not None and known.stale == ()
    monkeypatch.setattr(cpu, "FLAGS", (*cpu.FLAGS, "-fno-unroll-loops"))
    again = best_plan(workload(), device="toy", db=str(db))
    assert again is not None and again.stale == ("code",) and again.candidate == known.candidate


# --- blame -------------------------------------------------------------------------------------

STALLED = Failure(FailureKind.TIMEOUT, "did not finish", Blame.MACHINE)
KILLED = Failure(FailureKind.CRASH, "killed by SIGKILL", Blame.MACHINE)
CRASHED = Failure(FailureKind.CRASH, "killed by SIGSEGV")
TIME = summarise([4.0, 5.0, 6.0], "warm", "noise")


@dataclass
class Answering:
    """A worker that gives these answers, and notes what limits it was given, and whether it was to
    check on all draws."""

    answers: list[Timing | Failure]
    limits: list[float] = field(default_factory=list)
    draws: list[bool] = field(default_factory=list)
    starts: int = 1

    def measure(
        self, artifact: object, sampling: Sampling, limit_s: float, draws: bool = True
    ) -> Reply:
        self.limits.append(limit_s)
        self.draws.append(draws)
        answer = self.answers.pop(0)
        if isinstance(answer, Failure):
            return Reply(None, None, answer, 0.1)
        return Reply(answer, 0.0, None, 0.1)


def evaluated(worker: Answering, budget_s: float = 600.0, limit_s: float = 5.0) -> Measurement:
    evaluator, candidate = evaluating(worker, budget_s)
    return evaluator(candidate, limit_s)


def evaluating(worker: Answering, budget_s: float = 600.0) -> tuple[Evaluator, Candidate]:
    graph = canonical(workload())
    candidate = baseline_candidate(graph, "unfused", CpuLaunchSpace())[0]
    found = Evaluator(TOY, graph, "w", cast(Worker, worker), Sampling(), Budget(budget_s))
    return found, candidate


def test_a_time_out_counts_once_a_second_try_alone_times_out_too() -> None:
    worker = Answering([STALLED, STALLED])
    record = evaluated(worker)
    assert record.failure is not None and record.failure.blame is Blame.CANDIDATE
    assert worker.limits == [5.0, 5.0]


def test_a_time_out_on_a_gpu_is_final_and_its_class_is_not_run_again() -> None:
    graph, budget = canonical(workload()), Budget(600.0)
    plan = baseline_candidate(graph, "unfused", CpuLaunchSpace())[0]

    def with_settings(**settings: Any) -> Candidate:
        launches = tuple(LaunchConfig.of(**settings) for _ in plan.launches)
        return replace(plan, launches=launches)

    hung, like = with_settings(mma="wgmma", maps=True), with_settings(mma="wgmma", maps=True, x=2)
    worker = Answering([STALLED, TIME])
    evaluator = Evaluator(TOY, graph, "w", cast(Worker, worker), Sampling(), budget, True)
    first = evaluator(hung, 5.0)
    assert first.failure is not None and first.failure.blame is Blame.CANDIDATE
    refused = evaluator(like, 5.0).failure
    assert refused is not None and "its class (wgmma, boxes) did not end" in refused.message
    assert refused.blame is Blame.MACHINE and worker.limits == [5.0]
    assert evaluator(with_settings(mma="wgmma"), 5.0).timing == TIME


def test_what_a_stalled_or_killed_try_says_is_forgotten_when_the_second_works() -> None:
    for first in (STALLED, KILLED):
        record = evaluated(Answering([first, TIME]))
        assert record.failure is None and record.timing == TIME


def test_the_machine_is_blamed_twice_and_a_candidate_is_not_tried_twice() -> None:
    record = evaluated(Answering([KILLED, KILLED]))
    assert record.failure == KILLED
    worker = Answering([CRASHED])
    assert evaluated(worker).failure == CRASHED and len(worker.limits) == 1


def test_only_what_has_a_new_kernel_is_checked_on_all_draws() -> None:
    worker = Answering([CRASHED, TIME, TIME, TIME])
    evaluator, candidate = evaluating(worker)
    for _ in range(3):
        evaluator(candidate, 5.0)
    assert worker.draws == [True, True, False], "a failure verifies nothing"
    evaluator.verified.discard(evaluator.codes(candidate)[-1])
    evaluator(candidate, 5.0)
    assert worker.draws[-1]


def test_what_is_served_is_checked_on_all_draws_once() -> None:
    worker = Answering([TIME, TIME, TIME, KILLED, CRASHED])
    evaluator, candidate = evaluating(worker)
    records = [evaluator(candidate, 5.0) for _ in "12"]
    assert evaluator.confirm(records[0], 5.0) is None and worker.draws == [True, False, True]
    assert evaluator.confirm(records[1], 5.0) is None and len(worker.draws) == 3
    other = replace(records[0], candidate_digest="another")
    assert evaluator.confirm(other, 5.0) is None, "that is the machine's fault"
    wrong = evaluator.confirm(other, 5.0)
    assert wrong is not None and wrong.failure == CRASHED and wrong.timing is None


def test_a_try_that_the_budget_cuts_short_says_nothing_about_the_candidate() -> None:
    worker = Answering([replace(STALLED, blame=Blame.CANDIDATE)])
    record = evaluated(worker, budget_s=3.0)
    assert worker.limits[0] < 5.0 and record.failure is not None
    assert record.failure.blame is Blame.MACHINE and "cut short" in record.failure.message


# --- the best plan never gets worse -------------------------------------------------------------


def test_a_session_that_ends_last_times_its_plan_against_the_best(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second session measures only the baseline that stores every value, and knows nothing of
    the comparison of the first."""
    db = tmp_path / "t.db"
    first = tune_toy(db)
    timed: list[frozenset[str]] = []
    decide = incumbent.decide

    def deciding(*given: Any) -> FinalDecision:
        found = decide(*given)
        assert found.final is not None
        timed.append(found.final.compared)
        return found

    monkeypatch.setattr(incumbent, "decide", deciding)
    monkeypatch.setattr(incumbent, "adopted", lambda *_: None)
    monkeypatch.setattr(incumbent, "past", lambda *_: None)
    second = tune_toy(db, baselines=["unfused"], stop=lambda: True)
    known = best_plan(workload(), device="toy", db=str(db))
    assert known is not None and known.candidate.digest == second.best.digest
    assert second.best_us <= second.baseline_us["unfused"]
    assert any(first.best.digest in compared for compared in timed)


def test_another_jobs_plan_is_timed_against_before_it_is_replaced(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While this job compares its finalists another one promotes a plan of its own."""
    db = tmp_path / "t.db"
    asked: list[tuple[str, ...]] = []
    compare = Worker.compare
    promoted = threading.Event()

    def comparing(self: Worker, artifacts: Any, *more: Any) -> Any:
        found = compare(self, artifacts, *more)
        asked.append(tuple(str(a.path) for a in artifacts))
        if not promoted.is_set():
            promoted.set()
            other(db)
        return found

    monkeypatch.setattr(Worker, "compare", comparing)
    result = tune_toy(db, stop=after(9))
    assert any(len(one) == 2 for one in asked[1:]), "the two were timed against each other"
    known = best_plan(workload(), device="toy", db=str(db))
    assert known is not None and known.candidate.digest == result.best.digest


def test_without_time_to_compare_them_the_best_plan_stays(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = tmp_path / "t.db"
    first = tune_toy(db)
    before = best_plan(workload(), device="toy", db=str(db))
    assert before is not None and before.candidate.digest == first.best.digest
    other(db, first.best.digest)
    monkeypatch.setattr(finals, "affordable", lambda entries, room_s: {})
    result = tune_toy(db, baselines=["xla-2022"], stop=lambda: True)
    known = best_plan(workload(), device="toy", db=str(db))
    assert known is not None and known.candidate.launches[0]["threads"] == 2
    assert result.best.digest != known.candidate.digest
    assert any("no time to time it against" in note for note in result.notes)


def other(db: Path, beaten: str | None = None) -> None:
    """Promote a plan under settings that nobody else tries, as another job would."""
    graph = canonical(workload())
    plain = baseline_candidate(graph, "unfused", toy_kind().space)[0]
    launches = tuple(LaunchConfig.of(threads=2, tile=64) for _ in plain.launches)
    strange = replace(plain, launches=launches)
    with Store.open(str(db)) as store:
        rows = store.measurements(digest(graph))
        mine = next(m for m in rows if m.candidate_digest == plain.digest)
        assert mine.timing is not None
        # Slower than all, so that nobody takes it for the best of a session.
        record = replace(
            mine, stage="final", candidate=strange.to_json(), candidate_digest=strange.digest,
            timing=replace(
                mine.timing, median_us=1e3 * mine.timing.median_us, q3_us=2e3 * mine.timing.q3_us,
            ),
        )  # fmt: skip
        (session, *_) = store.sessions(digest(graph))
        assert store.promote(session.id, TOY.environment(), record, beaten)


def test_a_best_plan_over_the_memory_stays_what_is_served(toy: None, tmp_path: Path) -> None:
    """The unfused plan is promoted first, and is over what the next job allows."""
    db = tmp_path / "t.db"
    free = tune_toy(db, baselines=["unfused"], stop=lambda: True)
    assert free.peak_bytes > 0
    tight = tune_toy(db, baselines=["xla-2022"], stop=lambda: True, max_memory=free.peak_bytes - 1)
    assert tight.peak_bytes < free.peak_bytes
    known = best_plan(workload(), device="toy", db=str(db))
    assert known is not None and known.candidate.digest == free.best.digest
    assert any("keeps more in memory than allowed" in note for note in tight.notes)


# --- the budget, and progress -------------------------------------------------------------------


def test_baselines_that_the_budget_has_no_time_for_are_named(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is served untuned is a baseline too; nothing is left to others, by the budget's own
    clock."""
    monkeypatch.setattr(rules, "BASELINE_SHARE", 0.0)
    elapsed = [0.0]
    monkeypatch.setattr(Budget, "elapsed_s", property(lambda self: elapsed[0]))
    evaluate = Evaluator.__call__

    def slow(self: Evaluator, *more: Any) -> Measurement:
        elapsed[0] += 0.3 * self.budget.seconds
        return evaluate(self, *more)

    monkeypatch.setattr(Evaluator, "__call__", slow)
    result = tune_toy(tmp_path / "t.db")
    assert list(result.baselines) == ["xla-2022"] and result.left_out == ("unfused",)
    assert result.to_json()["left_out"] == ["unfused"]
    assert any("left out: unfused" in note for note in result.notes)


def test_what_held_the_clock_down_is_told(
    toy: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate, modes = Evaluator.__call__, iter(["call", "call,power", "call,heat"])

    def hot(self: Evaluator, *more: Any) -> Measurement:
        record = evaluate(self, *more)
        assert record.timing is not None
        return replace(record, timing=replace(record.timing, mode=next(modes, "call,power")))

    monkeypatch.setattr(Evaluator, "__call__", hot)
    *_, power, heat = tune_toy(tmp_path / "t.db").notes
    assert power.endswith("plans were timed while its power limit held the device's clock down")
    assert heat.startswith("1 of ") and "its temperature" in heat


def test_progress_is_told_again_while_one_call_takes_long() -> None:
    told: list[Progress] = []
    again = threading.Event()

    def tell(state: Progress) -> None:
        told.append(state)
        if len(told) == 3:
            again.set()

    state = Progress(None, None, "", 0, 0, {}, 9.0, "planning")
    budget = Budget(60.0)
    with Heartbeat(tell, lambda: budget.left_s) as heartbeat:
        heartbeat.tell(state)
        assert again.wait(30.0)
    assert {one.phase for one in told} == {"planning"} and told[-1].left_s < 60.0


def test_what_watching_raises_ends_the_job() -> None:
    raised = threading.Event()

    def tell(state: Progress) -> None:
        if raised.is_set():
            return
        if threading.current_thread() is not threading.main_thread():
            raised.set()
            raise ValueError("enough")

    state = Progress(None, None, "", 0, 0, {}, 9.0, "planning")
    budget = Budget(60.0)
    with Heartbeat(tell, lambda: budget.left_s) as heartbeat:
        heartbeat.tell(state)
        assert raised.wait(30.0)
        with pytest.raises(ValueError, match="enough"):
            for _ in range(1000):
                heartbeat.tell(state)
