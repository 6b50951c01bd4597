"""Who computes the products and convolutions of a plan: what is said of it, and what is served
where the library of the best plan is missing. No test here needs oneDNN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import autofuse
from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu.onednn import MISSING
from autofuse.devices import DEVICES
from autofuse.graph.canonical import digest, group_digest, text
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.tuning import best_plan, compile, tune
from autofuse.tuning.evaluate import code_of
from autofuse.tuning.explain.contests import Contest, plan_contests
from autofuse.tuning.search.launches import launch_text
from tests.support.cli_tools import Ended, call, refused
from tests.support.library_calls import CALLED, candidate, product, whole
from tests.support.tuning_records import kernel, measurement
from tuning_db import Store

CPU = DEVICES["cpu"]
GRAPH = product()
BLAS, OURS = LaunchConfig.of(threads=1), LaunchConfig.of(impl="loops", threads=1)
Told = Callable[..., Ended]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Told:
    return partial(call, capsys)


@pytest.fixture
def pretended(no_onednn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has oneDNN, as far as codes go."""
    monkeypatch.setattr(cpu, "onednn", lambda: SimpleNamespace(name="oneDNN 9.9"))


def stored(db: Path, times: dict[LaunchConfig, float], best: LaunchConfig | None = None) -> None:
    """A database in which the product took so long under these configurations, and one of them is
    the best plan."""
    environment, group = CPU.backend.environment(), whole(GRAPH)
    with Store.open(str(db)) as store:
        store.add_workload(digest(GRAPH), text(GRAPH), "toy", len(GRAPH.nodes))
        for launch, us in times.items():
            code = CPU.backend.group_code(GRAPH, group, launch)
            key = group_digest(GRAPH, group.nodes, group.outputs)
            store.add_kernel(None, environment, kernel(key, us, launch_text(launch), code=code))
            one = _measured(candidate(GRAPH, launch), us)
            store.add_measurement(None, environment, one)
            if launch == best:
                assert store.promote(None, environment, one, None)


def _measured(found: Candidate, us: float) -> object:
    return replace(
        measurement(found.digest, us), workload=digest(GRAPH), candidate=found.to_json(),
        origin="exact", groups=(), code=code_of(CPU.backend, GRAPH, found),
    )  # fmt: skip


def contest(db: Path, launch: LaunchConfig) -> Contest:
    (found,) = plan_contests(GRAPH, candidate(GRAPH, launch), CPU, str(db))
    return found


# --- who won ------------------------------------------------------------------------------------


def test_each_is_told_with_its_best_time(pretended: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    slow = LaunchConfig.of(impl="loops", threads=2)
    stored(db, {CALLED: 10.0, BLAS: 15.0, OURS: 20.0, slow: 30.0})
    found = contest(db, CALLED)
    assert found.times == (("onednn", 10.0), ("blas", 15.0), ("loops", 20.0))
    assert (found.kernel, found.chosen, found.ahead) == (0, "onednn", 1.5)
    assert contest(db, BLAS).ahead == pytest.approx(2 / 3)


def test_who_was_alone_is_ahead_of_nobody(tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    assert contest(db, BLAS) == Contest(0, 2, "blas", ())
    stored(db, {BLAS: 15.0})
    assert contest(db, BLAS).ahead is None and contest(db, BLAS).times == (("blas", 15.0),)
    assert contest(db, OURS).ahead is None, "our kernel was not timed"


def test_times_of_other_code_do_not_count(
    pretended: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db = tmp_path / "t.db"
    stored(db, {CALLED: 10.0, BLAS: 15.0})
    monkeypatch.setattr(cpu, "onednn", lambda: SimpleNamespace(name="oneDNN 10"))
    assert contest(db, BLAS).times == (("blas", 15.0),)


def test_only_what_a_library_could_do_is_a_contest(tmp_path: Path) -> None:
    alone = autofuse.trace(autofuse.xp.exp, autofuse.spec((4, 4)))
    compiled = compile(alone, device="cpu", db=str(tmp_path / "t.db"))
    assert plan_contests(compiled.graph, compiled.candidate, CPU, None) == ()


def test_show_says_who_won_and_by_how_much(cli: Told, pretended: None, tmp_path: Path) -> None:
    db, file = tmp_path / "t.db", _file(tmp_path)
    stored(db, {CALLED: 10.0, BLAS: 15.0, OURS: 20.0}, CALLED)
    shown = cli("show", file, "--db", db, "--device", "cpu")
    said = "oneDNN, 1.50x as fast as BLAS: oneDNN 10 µs, BLAS 15 µs, our kernel 20 µs"
    assert "oneDNN call 0: 1 node" in shown.out and f"by      {said}" in shown.out
    why = cli("show", file, "--why", "--db", db, "--device", "cpu")
    assert f"kernel 0: %2 dot_general by {said}" in why.out
    source = cli("show", file, "--source", "--db", db, "--device", "cpu")
    assert "is a call of oneDNN" in source.out
    (row,) = cli("show", file, "--db", db, "--device", "cpu", "--format", "json").json["contests"]
    assert row["implementation"] == "onednn" and row["ahead"] == 1.5
    assert row["times_us"] == {"onednn": 10.0, "blas": 15.0, "loops": 20.0}
    plan = tmp_path / "slow.db"
    stored(plan, {CALLED: 10.0, BLAS: 15.0}, BLAS)
    shown = cli("show", file, "--db", plan, "--device", "cpu")
    assert "BLAS, though oneDNN was 1.50x as fast: oneDNN 10 µs, BLAS 15 µs" in shown.out


def test_the_report_says_it_too(cli: Told, pretended: None, tmp_path: Path) -> None:
    db = tmp_path / "t.db"
    stored(db, {CALLED: 10.0, BLAS: 15.0})
    with Store.open(str(db)) as store:
        number = store.start_session(CPU.backend.environment(), digest(GRAPH), "exact", 0, 1.0)
        store.finish_session(number, _ended(candidate(GRAPH).digest))
    page = cli("report", "--db", db, "--format", "md").out
    assert "Who computes products and convolutions" in page
    assert (
        "| %2 dot\\_general | f32\\[40,56\\] | oneDNN | 1.5× | oneDNN 10 µs, BLAS 15 µs |" in page
    )
    (one,) = cli("report", "--db", db, "--format", "json").json["workloads"]
    (row,) = one["implementations"]
    assert (row["chosen"], row["times"]) == ("oneDNN", {"oneDNN": 10.0, "BLAS": 15.0})


def _ended(best: str) -> object:
    from tests.support.tuning_records import result

    return replace(result(best), baselines=(), verdicts=())


def _file(folder: Path) -> Path:
    autofuse.save(GRAPH, folder / "toy.json")
    return folder / "toy.json"


# --- a missing library --------------------------------------------------------------------------


def test_the_next_best_plan_is_served_and_that_is_said(
    cli: Told, no_onednn: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db, file = tmp_path / "t.db", _file(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(cpu, "onednn", lambda: SimpleNamespace(name="oneDNN 9.9"))
        stored(db, {OURS: 20.0, BLAS: 15.0, CALLED: 10.0}, CALLED)
    best = candidate(GRAPH).digest
    known = best_plan(GRAPH, device="cpu", db=str(db))
    assert known is not None and known.candidate == candidate(GRAPH, BLAS)
    (passed,) = known.passed_over
    assert (passed.plan_digest, passed.time_us, passed.lacking) == (best, 10.0, MISSING)
    compiled = compile(GRAPH, device="cpu", db=str(db))
    assert compiled.origin == "best that can be built here (exact)"
    said = f"plan {best} was found to be the best, but {MISSING}"
    assert compiled.notes == (said,)
    asked = cli("query", file, "--device", "cpu", "--db", db)
    assert asked.code == 0 and f"note: {said}" in asked.out and "15 µs" in asked.out
    assert said in cli("run", file, "--device", "cpu", "--db", db).err
    assert said in cli("show", file, "--device", "cpu", "--db", db).err


def test_a_plan_that_cannot_be_built_here_is_one_sentence(
    cli: Told, no_onednn: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db, file = tmp_path / "t.db", _file(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(cpu, "onednn", lambda: SimpleNamespace(name="oneDNN 9.9"))
        stored(db, {CALLED: 10.0}, CALLED)
    with pytest.raises(autofuse.AutofuseError) as raised:
        compile(GRAPH, device="cpu", db=str(db), plan=candidate(GRAPH))
    assert str(raised.value) == f"the plan cannot run here: {MISSING}"
    assert best_plan(GRAPH, device="cpu", db=str(db)) is None
    asked = cli("query", file, "--device", "cpu", "--db", db)
    assert asked.code == 4 and MISSING in asked.out
    refused(cli("run", file, "--device", "cpu", "--db", db, "--plan", "best"), MISSING)
    compiled = compile(GRAPH, device="cpu", db=str(db))
    assert compiled.origin != "best" and MISSING in compiled.notes[0]


def test_tuning_without_the_library_leaves_the_best_plan_known(
    no_onednn: None, two_baselines: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    db = tmp_path / "t.db"
    with monkeypatch.context() as patched:
        patched.setattr(cpu, "onednn", lambda: SimpleNamespace(name="oneDNN 9.9"))
        stored(db, {CALLED: 1.5}, CALLED)
    environment = CPU.backend.environment()
    with Store.open(str(db)) as store:
        promoted = store.best(environment, digest(GRAPH))
    assert promoted is not None and promoted.measurement.timing is not None
    cache = promoted.measurement.timing.cache
    result = tune(GRAPH, device="cpu", db=str(db), budget_s=2.0, strategy="random", cache=cache)
    assert result.best_us > 1.5 and result.best != candidate(GRAPH)
    assert f"the best plan known stays known, but {MISSING}" in result.notes
    with Store.open(str(db)) as store:
        after = store.best(environment, digest(GRAPH))
    assert after is not None
    assert after.measurement.candidate_digest == promoted.measurement.candidate_digest
    known = best_plan(GRAPH, device="cpu", db=str(db))
    assert known is not None and known.candidate == result.best


def test_info_says_what_competes(
    cli: Told, no_onednn: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = cli("info", "--format", "json").json
    assert found["libraries"]["blas"]["found"] is True and found["libraries"]["blas"]["version"]
    assert found["libraries"]["onednn"] == {"found": False, "reason": MISSING}
    assert found["cxx_compiler"]["found"] is True
    assert isinstance(found["devices"]["cpu"]["instruction_sets"], list)
    assert MISSING in cli("info").out
    there = SimpleNamespace(name="oneDNN 9.9 0123")
    monkeypatch.setattr("autofuse.backends.cpu.onednn.onednn", lambda: there)
    assert "oneDNN 9.9 0123" in cli("info").out
