"""gpu_check without a GPU: its options, how time is split, what is written when, and the page."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.cuda.driver import CudaMissing
from autofuse.graph.builder import GraphBuilder
from autofuse.peers.types import BenchError
from autofuse.zoo import ZOO
from benchmarks import gpu_check, gpu_steps, wheels
from benchmarks.gpu_check import (
    PAGE,
    RESULT,
    STAGES,
    Check,
    CheckOptions,
    Stage,
    checked_options,
)
from benchmarks.gpu_page import page
from benchmarks.gpu_steps import Context, against_hand, best_rule, follow, read_tests, shares
from benchmarks.workloads import HEADLINE

ROOT = Path(__file__).parent.parent


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def check(tmp_path: Path, clock: Clock, *steps: str, total: float = 100.0) -> Check:
    options = CheckOptions(tmp_path, 10.0, total, steps, ("softmax",), "x.db")
    return Check(options, lambda _: None, clock)


def test_options_are_completed_and_refused(tmp_path: Path) -> None:
    found = checked_options(CheckOptions(tmp_path, steps=("peers", "facts"), workloads=("mlp",)))
    assert found.steps == ("facts", "peers") and found.workloads == ("mlp",)
    assert found.db == str(tmp_path / "tuning.db")
    every = checked_options(CheckOptions(tmp_path))
    assert every.steps == tuple(STAGES) and sorted(every.workloads) == sorted(ZOO)
    assert every.workloads[: len(HEADLINE)] == HEADLINE
    assert every.total_s + gpu_check.GRACE_S < 9 * 60
    for wrong, said in (
        ({"steps": ("dance",)}, "unknown step 'dance'"),
        ({"workloads": ("dance",)}, "unknown zoo workload 'dance'"),
        ({"budget_s": 0.0}, "the budget must be a positive number of seconds, not 0"),
        ({"total_s": float("nan")}, "the total must be"),
    ):
        with pytest.raises(BenchError, match=said):
            checked_options(CheckOptions(tmp_path, **wrong))


def test_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(CudaMissing, match="device 'cuda' cannot be used: no CUDA driver was found"):
        gpu_check.gpu_check(CheckOptions(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("arguments", "said"), [
    (["--steps", "dance"], "gpu_check: unknown step 'dance'"),
    (["--budget", "-1"], "gpu_check: the budget must be a positive number of seconds, not -1"),
])  # fmt: skip
def test_the_script_runs_from_anywhere(tmp_path: Path, arguments: list[str], said: str) -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts/gpu_check", *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2 and result.stderr.startswith(said)
    assert len(result.stderr.splitlines()) == 1


def test_what_is_left_is_shared_when_a_turn_comes() -> None:
    clock, found = Clock(), {}
    for name, share in shares(("a", "b", "c", "d"), 40.0, clock):
        found[name] = share
        clock.now += {"a": 2.0, "b": 36.0}.get(name, 0.0)
    assert found == {"a": 10.0, "b": pytest.approx(38 / 3)}, "too little was left for c"
    assert [n for n, _ in shares(("a", "b"), 2.0, clock)] == []


def test_steps_write_what_they_have(tmp_path: Path) -> None:
    clock, seen = Clock(), []

    def written() -> Any:
        return json.loads((tmp_path / RESULT).read_text())["steps"]

    def first(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
        assert written()["tests"]["state"] == "running" and seconds == 50.0
        yield {"device": {"name": "toy"}}
        clock.now += 60.0
        yield {"found": 1}
        seen.append(written()["tests"]["found"])

    def second(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
        assert seconds == pytest.approx(40.0) and context.steps["tests"]["found"] == 1
        yield {"found": 2}
        clock.now += 35.0
        raise RuntimeError("the driver is gone\nsomewhere")

    stages = {"tests": Stage(first, 0.5, "one"), "tune": Stage(second, 1.0, "two"),
              "peers": Stage(first, 1.0, "three")}  # fmt: skip
    run = check(tmp_path, clock, *stages)
    steps = run.run(stages)["steps"]
    assert steps == written() and seen == [1]
    assert (steps["tests"]["state"], steps["tests"]["seconds"]) == ("done", 60.0)
    assert steps["tune"]["state"] == "failed" and steps["tune"]["found"] == 2
    assert steps["tune"]["error"] == "RuntimeError: the driver is gone"
    assert steps["peers"]["state"] == "not begun", "5 seconds are too few"
    assert "the driver is gone" in (tmp_path / PAGE).read_text()


def test_a_run_that_is_cut_off_keeps_what_it_has(tmp_path: Path) -> None:
    def step(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
        yield {"found": 1}
        raise KeyboardInterrupt

    stages = {"tune": Stage(step, 1.0, "one"), "peers": Stage(step, 1.0, "two")}
    with pytest.raises(KeyboardInterrupt):
        check(tmp_path, Clock(), *stages).run(stages)
    steps = json.loads((tmp_path / RESULT).read_text())["steps"]
    assert steps["tune"]["state"] == "cut off" and steps["tune"]["found"] == 1
    assert steps["peers"]["state"] == "not begun"


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_child_is_followed_to_its_end(tmp_path: Path) -> None:
    log, ticks = tmp_path / "log", itertools.count()
    states = list(follow(python("print('hello'); raise SystemExit(3)"), log, 60, lambda: 0.0))
    assert states[-1] == 3 and set(states[:-1]) <= {None} and log.read_text() == "hello\n"
    slow = python("import time; print('begun'); time.sleep(60)")
    states = list(follow(slow, log, 4.0, lambda: float(next(ticks)), poll_s=0.05))
    assert set(states) == {None}, "it was killed, and nothing more came"


def test_pytest_is_read_while_it_runs() -> None:
    text = (
        "tests/test_gpu_a.py::test_x[softmax 1] PASSED   [ 10%]\n"
        "tests/test_gpu_a.py::test_y FAILED   [ 20%]\ntests/test_gpu_a.py::test_z SKIPPED (no)\n"
    )
    found = read_tests(text, None)
    assert (found["passed"], found["skipped"]) == (1, 1)
    assert found["failed"] == ["tests/test_gpu_a.py::test_y"] and found["tail"] == text
    assert read_tests("", 4)["code"] == 4 and read_tests("", 0)["tail"] == ""


def test_the_gpu_tests_are_found_and_deselected(tmp_path: Path) -> None:
    context = Context(tmp_path, "x.db", (), 1.0, lambda: 0.0, lambda _: None, {})
    # What runs them here has no GPU, or runs them all.
    found: dict[str, Any] = {}
    try:
        for more in gpu_steps.tests(context, 120.0):
            found |= more
    except RuntimeError as error:
        assert "ended with code 5" in str(error)
        assert "deselected" in (tmp_path / "tests.log").read_text()
    assert found["failed"] == []


def test_peers_that_end_early_leave_what_they_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake(command: list[str], log: Path, *_: object) -> Iterator[int | None]:
        log.write_text("first\nbench_peers: no such thing\n")
        yield None
        Path(command[command.index("--output") + 1]).write_text('{"modes": {"graph": {}}}')
        yield 2

    monkeypatch.setattr(gpu_steps, "follow", fake)
    context = Context(tmp_path, "x.db", ("mlp",), 1.0, lambda: 0.0, lambda _: None, {})
    seen: list[Mapping[str, Any]] = []
    with pytest.raises(RuntimeError, match="ended with code 2: bench_peers: no such thing"):
        seen.extend(gpu_steps.peers(context, 10.0))
    seen = []
    monkeypatch.setattr(gpu_steps, "follow", lambda *a: itertools.islice(fake(*a), 2))
    with pytest.raises(RuntimeError):
        for found in gpu_steps.peers(context, 10.0):
            seen.append(found)
    assert seen[0] == {} and seen[-1] == {"modes": {"graph": {}}}


def test_bandwidth_counts_inputs_and_outputs() -> None:
    b = GraphBuilder()
    graph = b.build([b.add("neg", b.input("x", (1000, 1000), "f32"))])
    result = {"best": {"time_us": 8.0, "kernels": 1, "origin": "exact"}, "verified": True}
    found = gpu_steps.moved(graph, result, 2000.0)
    assert found["bytes"] == 8_000_000 and found["gbytes_per_s"] == pytest.approx(1000.0)
    assert found["share_of_copy"] == pytest.approx(0.5)
    assert gpu_steps.moved(graph, {"error": "lost"}, 1.0)["error"] == "lost"
    for make, sizes in gpu_steps.LARGE.values():
        large = make(*sizes)
        assert sum(t.nbytes for t in (*large.input_types, *large.output_types)) >= 256 << 20


def test_one_workload_that_fails_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **given: Any) -> Any:
        raise RuntimeError(f"out of memory after {given['budget_s']:g} s")

    monkeypatch.setattr(gpu_steps, "tune", fail)
    clock = Clock()
    context = Context(tmp_path, "x.db", ("softmax", "mlp"), 20.0, clock, lambda _: None, {})
    *_, last = gpu_steps.tune_zoo(context, 50.0)
    assert last["workloads"]["softmax"]["error"] == "RuntimeError: out of memory after 10 s"
    assert last["not_begun"] == [] and last["geomean_best_rule_over_best"] is None
    assert best_rule({"best": {"time_us": 2.0}, "baselines": {"a": {"time_us": 6.0}}}) == 3.0


def test_the_fastest_by_hand_is_compared_with_our_fastest() -> None:
    times = {"best": 10.0, "fused": 12.0, "hand 1": 20.0, "hand 2": 9.0}
    samples = {name: tuple((us, us, us) for _ in range(5)) for name, us in times.items()}
    found = against_hand(times, samples, ("fused", "best"))
    assert (found["hand"], found["ours"]) == ("hand 2", "best")
    assert found["ratio_hand_over_ours"] == pytest.approx(0.9)
    assert "missing" in against_hand({"best": 1.0}, samples, ("best",))["error"]


def made_up() -> dict[str, Any]:
    """Results of every step; figures are nobody's."""
    best = {"time_us": 2.0, "kernels": 1, "origin": "exact", "plan_digest": "d", "compile_s": 1.0}
    tuned = {"best": best, "baselines": {"unfused": {"time_us": 4.0}, "bad": {"time_us": None}},
             "verified": True, "max_rel_error": 1e-6}  # fmt: skip
    large = {"sizes": [8, 4], "bytes": 256, "time_us": 5.0, "kernels": 1, "gbytes_per_s": 3.0,
             "share_of_copy": 0.75}  # fmt: skip
    cells = {"autofuse": {"time_us": 1.0}, "jax": {"time_us": 3.0}, "cupy": {"error": "no"}}
    mode = {"workloads": {"softmax": cells}, "ratio_best_peer_over_autofuse": {"softmax": 3.0},
            "geomean_best_peer_over_autofuse": 3.0, "geomean_over": ["softmax"]}  # fmt: skip
    steps: dict[str, Any] = {
        "facts": {"device": {"name": "Toy <1>"}, "calibration": {"launch_us": 1.5}},
        "tests": {"passed": 3, "failed": ["tests/a.py::b"], "skipped": 0, "tail": "E assert <"},
        "tune": {"workloads": {"softmax": tuned, "mlp": {"error": "out of memory"}}},
        "bandwidth": {"workloads": {"softmax": large, "rms": {"bytes": 1, "error": "lost"}},
                      "copy_gbytes_per_s": 4.0, "not_begun": ["black_scholes"]},
        "handwritten": {"times_us": {"best": 1.0}, "ratio_hand_over_ours": 1.1, "low": 1.0,
                        "high": 1.2, "hand": "32 threads", "ours": "best"},
        "peers": {"modes": {"graph": mode, "eager": mode}, "missing": {"torch": "absent"}},
    }  # fmt: skip
    return {"started": "now", "steps": {n: {"state": "done", **s} for n, s in steps.items()}}


def test_the_page_shows_every_step_and_escapes() -> None:
    data = made_up()
    text = page(data)
    for said in (
        "autofuse on Toy &lt;1&gt;", "3 passed, 1 failed", "E assert &lt;", "out of memory",
        "Not begun: black_scholes.", "75.0%", "32 threads over best: 1.100", "graph mode",
        "absent", "1 of 2", "2×", "A copy moves 4 GB/s.",
    ):  # fmt: skip
        assert said in text, said
    assert text.count("not met") == 2 and "<1>" not in text


@pytest.mark.parametrize("name", list(STAGES))
def test_the_page_shows_steps_that_have_nothing_yet(name: str) -> None:
    assert "running" in page({"steps": {name: {"state": "running", "title": "x"}}})
    assert "<h1>autofuse on a GPU</h1>" in page({})


def test_wheels_are_those_of_the_project(tmp_path: Path) -> None:
    text = (ROOT / "pyproject.toml").read_text()
    names = {requirement.split(">")[0] for requirement in wheels.wanted(text)}
    assert {"optuna", "sqlalchemy", "highspy", "typer", "hypothesis"} <= names
    assert names.isdisjoint(wheels.THERE)
    seen: list[list[str]] = []

    def run(command: Any) -> int:
        seen.append(list(command))
        for name in ("numpy-2-x.whl", "optuna-5-x.whl"):
            (tmp_path / "w" / name).write_text("")
        return 0

    found = wheels.download(tmp_path / "w", ROOT / "pyproject.toml", run)
    assert [w.name for w in found] == ["optuna-5-x.whl"], "what is there already is left out"
    assert "--python-version" in seen[0] and "manylinux_2_28_x86_64" in seen[0]
    with pytest.raises(BenchError, match="could not download"):
        wheels.download(tmp_path / "w", ROOT / "pyproject.toml", lambda _: 1)
