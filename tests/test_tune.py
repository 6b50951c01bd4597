"""The whole tuning job: complete results, bad candidates, resuming, stopping, sharing, errors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from autofuse import faults, spec, trace, xp
from autofuse.backends.base import Program
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.plan.program.schedule import Run
from autofuse.plan.types import Candidate
from autofuse.records import FailureKind
from autofuse.tuning import Progress, best_plan, compare, tune
from autofuse.zoo import zoo_graph
from tests.support.toy_device import LONG_S, TOY, workload
from tests.support.toy_tuning import (
    after,
    check_complete,
    measured_once,
    stored,
    toy,
    tune_toy,
    use,
)
from tuning_db import Store

__all__ = ["toy"]  # a fixture
pytestmark = pytest.mark.usefixtures("two_baselines")


def test_a_tune_on_the_cpu_is_complete(tmp_path: Path) -> None:
    db, graph, seen = tmp_path / "t.db", zoo_graph("softmax", "small"), list[Progress]()
    result = tune(
        graph, name="softmax", device="cpu", db=str(db), budget_s=3, strategy="optuna",
        progress=seen.append,
    )  # fmt: skip
    check_complete(result, db, graph)
    assert result.device == "cpu"
    assert {*result.baselines, *result.left_out, *result.predicted} == {"unfused", "xla-2022"}
    assert [p.measured for p in seen] == sorted(p.measured for p in seen)
    assert seen[-1].phase == "final comparison"
    known = best_plan(graph, device="cpu", db=str(db))
    assert known is not None and known.candidate == result.best and known.stale == ()


def test_a_program_that_makes_nothing_but_nan_is_not_verified(toy: None, tmp_path: Path) -> None:
    """No inputs would do: exponentials are positive."""
    graph = trace(lambda x: {"y": xp.log(-xp.exp(x)), "z": x + 1.0}, spec((8, 8)))
    said = "not verifiable: 100% of output 0 is NaN in the reference"
    db = str(tmp_path / "t.db")
    result = tune(graph, device="toy", db=db, budget_s=LONG_S, strategy="random")
    assert not result.verified and said in result.notes
    rows = compare(graph, device="toy", db=db, plans=["unfused"])
    assert rows.notes == (said,) and not rows.plans["unfused"]["verified"]
    right = compare(workload(), device="toy", db=db, plans=["unfused"])
    assert right.notes == () and right.plans["unfused"]["verified"]


VARIANTS = [("random", {}), ("optuna", {}), ("optuna", {"sampler": "nsga2"})]


@pytest.mark.parametrize(("strategy", "options"), VARIANTS, ids=["random", "tpe", "nsga2"])
def test_each_strategy_uses_the_space_up_and_repeats_nothing(
    toy: None, tmp_path: Path, strategy: str, options: dict[str, str]
) -> None:
    db = tmp_path / "t.db"
    first = tune_toy(db, strategy, options=options)
    check_complete(first, db, workload())
    assert first.measured == measured_once(stored(db, workload())[0]) >= 15
    again = tune_toy(db, strategy, options=options)
    check_complete(again, db, workload())
    assert (again.measured, again.failed) == (0, {}) and again.trials >= 15
    rows, sessions = stored(db, workload())
    assert measured_once(rows) == first.measured and len(sessions) == 2


def test_a_fault_in_lowering_costs_its_candidate_and_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The code of a kernel is asked for before anything is built."""

    def broken(run: Run) -> str:
        if run.launch["tile"] == 16:
            raise IndexError("a fault of ours")
        return TOY.kernel_code(run)

    use(monkeypatch, replace(TOY, kernel_code=broken))
    with faults.strict(False), faults.collecting() as told:
        result = tune_toy(tmp_path / "t.db")
    assert result.verified and result.best_us > 0
    assert told == ["lowering failed and was done without: IndexError: a fault of ours"]
    with faults.strict(), pytest.raises(IndexError, match="a fault of ours"):
        tune_toy(tmp_path / "u.db")


def test_what_one_strategy_measured_answers_another(toy: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    first = tune_toy(db, stop=after(16))
    assert first.interrupted and 4 <= first.measured < 15
    second = tune_toy(db, "optuna", seed=5)
    assert not second.interrupted
    assert first.measured + second.measured == measured_once(stored(db, workload())[0]) >= 15


def test_a_stop_before_the_search_still_gives_the_best_baseline(toy: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    result = tune_toy(db, stop=lambda: True)
    check_complete(result, db, workload())
    assert result.interrupted and result.trials == 0 and result.measured == 1
    assert result.best.origin == "xla-2022" and result.left_out == ("unfused",)
    assert any("left out: unfused" in note for note in result.notes)


# Text put at the start of the entry and before its end. OUTPUT has 24 x 40 floats.
OUTPUT = "float *out = (float *)buffers[AF_OUT];"
PLANTS = {
    "hangs": ("for (volatile int k = 0;; k++);", ""),
    "segfaults": ("*(volatile int *)8 = 1;", ""),
    "computes wrongly": ("", "for (int i = 0; i < 960; i++) out[i] *= 1.5f;"),
    "leaves one out": ("const float keep = out[77];", "out[77] = keep;"),
}
KINDS = {
    "hangs": FailureKind.TIMEOUT,
    "segfaults": FailureKind.CRASH,
    "computes wrongly": FailureKind.WRONG_RESULT,
    "leaves one out": FailureKind.WRONG_RESULT,
}


@dataclass
class Planted:
    """The toy's `program` with bad code in some candidates: the n-th new one gets `plants[n]`."""

    plants: dict[int, str]
    seen: dict[str, str] = field(default_factory=dict)

    def __call__(self, graph: Graph, candidate: Candidate) -> Program:
        name = self.seen.setdefault(candidate.digest, self.plants.get(len(self.seen), ""))
        made = TOY.program(graph, candidate)
        if not name:
            return made
        sources = [self.spoilt(s.text, name) if s.name == "entry" else s.text for s in made.sources]
        pairs = zip(made.sources, sources, strict=True)
        return replace(made, sources=tuple(replace(s, text=text) for s, text in pairs))

    @staticmethod
    def spoilt(text: str, name: str) -> str:
        first, last = PLANTS[name]
        call = "af_steps(buffers, workspace, blas, NULL);"
        assert text.count(f"return {call}") == 1
        spoilt = f"{OUTPUT} {first} const int32_t status = {call} {last} (void)out; return status;"
        return text.replace(f"return {call}", spoilt)


def test_planted_kernels_cost_one_row_each(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    planted = Planted(dict(zip((2, 4, 5, 7), PLANTS, strict=True)))  # 0 and 1 are the baselines
    use(monkeypatch, replace(TOY, program=planted))
    db = tmp_path / "t.db"
    result = tune_toy(db)
    check_complete(result, db, workload())
    bad = {d: name for d, name in planted.seen.items() if name}
    rows, _ = stored(db, workload())
    failures = {r.candidate_digest: r.failure for r in rows if r.failure is not None}
    assert {d: f.kind for d, f in failures.items()} == {d: KINDS[n] for d, n in bad.items()}
    assert sum(r.candidate_digest in bad for r in rows) == 4
    assert result.failed == {"timeout": 1, "crash": 1, "wrong_result": 2}
    assert result.measured >= 15 and result.best.digest not in bad
    again = tune_toy(db)
    assert again.measured == 0 and again.failed == {}


def test_a_graph_without_a_working_plan_is_an_error_and_its_rows_are_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    planted = Planted(dict.fromkeys(range(100), "computes wrongly"))
    use(monkeypatch, replace(TOY, program=planted))
    db = tmp_path / "t.db"
    with pytest.raises(AutofuseError, match="no plan of this graph works: wrong_result: "):
        tune_toy(db)
    rows, (ended,) = stored(db, workload())
    assert measured_once(rows) == len(rows) == len(planted.seen) >= 15
    assert ended.result is not None and ended.result.best_digest == ""
    assert best_plan(workload(), device="toy", db=str(db)) is None


def test_a_failing_baseline_is_shown_and_the_other_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, replace(TOY, program=Planted({0: "segfaults"})))
    result = tune_toy(tmp_path / "t.db", stop=after(5))
    data = result.to_json()
    # The one with fewer kernels has the least bound, so it goes first.
    assert data["baselines"]["xla-2022"]["failure"]["kind"] == "crash"
    assert data["baselines"]["xla-2022"]["time_us"] is None
    assert set(data["speedup_over"]) == set(data["break_even_runs"]) == {"unfused"}
    assert result.verified and result.failed == {"crash": 1}


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"budget_s": 0}, "budget must be a positive number"),
        ({"budget_s": -1.0}, "budget must be a positive number"),
        ({"budget_s": float("nan")}, "budget must be a positive number"),
        ({"budget_s": float("inf")}, "budget must be"),
        ({"seed": -1}, "seed must not be negative"),
        ({"seed": 2**70}, "seed"),
        ({"strategy": "luck"}, "unknown strategy 'luck'"),
        ({"strategy": "random", "options": {"sampler": "tpe"}}, "no option 'sampler'"),
        ({"strategy": "optuna", "options": {"sampler": "grid"}}, "no sampler 'grid'"),
        ({"device": "abacus"}, "unknown device 'abacus'"),
    ],
)
def test_bad_arguments_are_one_sentence_and_lose_nothing(
    toy: None, tmp_path: Path, bad: dict[str, Any], text: str
) -> None:
    db = tmp_path / "t.db"
    with Store.open(str(db)) as store:
        store.add_workload("d" * 32, "text", "mine", 1)
        before = store.counts()
    arguments: dict[str, Any] = {"device": "toy", "db": str(db), "budget_s": 5.0} | bad
    with pytest.raises(AutofuseError, match=re.escape(text)) as raised:
        tune(workload(), **arguments)
    assert "\n" not in str(raised.value)
    with Store.open(str(db)) as store:
        after_it = store.counts()
    assert after_it["measurement"] == 0 and after_it["workload"] >= before["workload"] == 1


def test_a_file_that_is_no_database_is_left_alone(toy: None, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("my notes\n" * 500)
    with pytest.raises(AutofuseError):
        tune_toy(file)
    assert file.read_text() == "my notes\n" * 500
