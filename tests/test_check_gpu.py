"""gpu_check without a GPU: its options, how time is split, what is written when and not done again,
and the page. `test_dry_run.py` runs it."""

from __future__ import annotations

import itertools
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.driver import CudaMissing
from autofuse.devices import DEVICES
from autofuse.graph.builder import GraphBuilder
from autofuse.measure.references import Preparation
from autofuse.peers.types import BenchError
from benchmarks import gpu_check, gpu_children, gpu_steps, wheels
from benchmarks.gpu_check import (
    DATABASE,
    PAGE,
    RESULT,
    STAGES,
    TUNED,
    Check,
    CheckOptions,
    Stage,
    checked_options,
    settle,
)
from benchmarks.gpu_children import follow, merged, read_tests
from benchmarks.gpu_page import page
from benchmarks.gpu_steps import Context, against_hand, best_rule, shares
from benchmarks.workloads import HEADLINE
from tuning_db import Store

ROOT = Path(__file__).parent.parent


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def check(tmp_path: Path, clock: Clock, *steps: str, again: bool = False) -> Check:
    options = CheckOptions(tmp_path, 100.0, steps, ("softmax",), "x.db", again=again)
    return Check(options, DEVICES["cuda"], DEFAULT_TARGET, lambda _: None, clock)


def context(out: Path, *workloads: str, clock: Any = lambda: 0.0, **steps: Any) -> Context:
    """Of a step on its own, after others found `steps`."""
    return Context(
        out, "x.db", DEVICES["cuda"], DEFAULT_TARGET, "default", workloads, clock,
        lambda _: None, steps, Preparation({}),
    )  # fmt: skip


def test_options_are_completed_and_refused(tmp_path: Path) -> None:
    found = checked_options(CheckOptions(tmp_path, steps=("peers", "facts"), workloads=("mlp",)))
    assert found.steps == ("facts", "peers") and found.workloads == ("mlp",)
    assert found.db == str(tmp_path / "tuning.db")
    every = checked_options(CheckOptions(tmp_path))
    assert every.steps == tuple(STAGES) and every.workloads == TUNED
    assert set(TUNED) < set(HEADLINE), "a real search of each needs time"
    assert every.total_s + gpu_check.GRACE_S < 9 * 60
    for wrong, said in (
        ({"steps": ("dance",)}, "unknown step 'dance'"),
        ({"workloads": ("dance",)}, "unknown zoo workload 'dance'"),
        ({"device": "cpu"}, "device 'cpu' is none of these: cuda, cuda-emulated"),
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
    (["--total", "-1"], "gpu_check: the total must be a positive number of seconds, not -1"),
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
    for name, share in shares(iter("abcd"), 4, 40.0, clock):
        found[name] = share
        clock.now += {"a": 2.0, "b": 36.0}.get(name, 0.0)
    assert found == {"a": 10.0, "b": pytest.approx(38 / 3)}, "too little was left for c"
    assert [n for n, _ in shares(iter("ab"), 2, 2.0, clock)] == []


def test_steps_write_what_they_have(tmp_path: Path) -> None:
    clock, seen = Clock(), []

    def written() -> Any:
        return json.loads((tmp_path / RESULT).read_text())["steps"]

    def first(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
        assert written()["tests"]["state"] == "running" and seconds == pytest.approx(50.0)
        yield {"device": {"name": "toy"}}
        clock.now += 60.0
        yield {"found": 1}
        seen.append(written()["tests"]["found"])

    def second(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
        assert seconds == pytest.approx(20.0) and context.steps["tests"]["found"] == 1
        yield {"found": 2}
        clock.now += 35.0
        raise RuntimeError("the driver is gone\nsomewhere")

    stages = {"tests": Stage(first, 4.0, "one"), "tune": Stage(second, 2.0, "two"),
              "peers": Stage(first, 2.0, "three")}  # fmt: skip
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


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    done: list[tuple[str, Any]] = []

    def step(name: str, *, ends: bool = True) -> Stage:
        def run(context: Context, seconds: float) -> Iterator[Mapping[str, Any]]:
            done.append((name, dict(context.steps[name])))
            yield {"found": len(done)}
            if not ends:
                raise RuntimeError("not yet")

        return Stage(run, 1.0, name)

    stages = {"facts": step("facts"), "tune": step("tune", ends=False), "peers": step("peers")}
    check(tmp_path, Clock(), "facts", "tune").run(stages)
    assert [name for name, _ in done] == ["facts", "tune"]
    found = check(tmp_path, Clock(), *stages).run(stages | {"tune": step("tune")})["steps"]
    assert [name for name, _ in done[2:]] == ["tune", "peers"]
    assert done[2][1]["found"] == 2, "what a step had found when it ended is still there"
    assert {one["state"] for one in found.values()} == {"done"} and "error" not in found["tune"]
    assert found["facts"]["found"] == 1 and "facts" in (tmp_path / PAGE).read_text()
    check(tmp_path, Clock(), "tune", again=True).run(stages)
    assert done[-1][0] == "tune" and "found" not in done[-1][1]


def test_results_of_another_device_are_not_added_to(tmp_path: Path) -> None:
    stages = {"facts": Stage(lambda *_: iter([{"found": 1}]), 1.0, "one")}
    one = check(tmp_path, Clock(), "facts")
    one.run(stages)
    one.target = replace(DEFAULT_TARGET, name="another")
    with pytest.raises(BenchError, match=r"has results of sm_90:.*, not of sm_90:another"):
        one.run(stages)


def test_a_database_is_left_in_one_file(tmp_path: Path) -> None:
    """Also one that was killed while it was open."""
    path, copy = tmp_path / DATABASE, tmp_path / "killed.db"
    with Store.open(path) as store, closing(sqlite3.connect(path)) as reader:
        store.add_workload("d", "text", "name", 1)
        for ending in ("", "-wal", "-shm"):
            (tmp_path / f"killed.db{ending}").write_bytes(Path(f"{path}{ending}").read_bytes())
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM workload").fetchall()
        assert not settle(str(path)), "somebody reads what is not in it yet"
    assert settle(str(copy)) and settle(str(tmp_path / "absent.db"))
    assert [p.name for p in tmp_path.glob("killed*")] == ["killed.db"]
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM workload").fetchone() == (1,)


def python(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_child_is_followed_to_its_end(tmp_path: Path) -> None:
    log, ticks = tmp_path / "log", itertools.count()
    states = list(follow(python("print('hello'); raise SystemExit(3)"), log, 60, lambda: 0.0))
    assert states[-1] == 3 and set(states[:-1]) <= {None} and log.read_text() == "hello\n"
    slow = python("import time; print('begun'); time.sleep(60)")
    states = list(follow(slow, log, 4.0, lambda: float(next(ticks)), None, 0.05))
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
    again = read_tests(text, None, found["passed_tests"] + ["tests/test_gpu_a.py::test_w"])
    assert again["passed"] == 3


def test_the_gpu_tests_are_found_and_deselected(tmp_path: Path) -> None:
    # What runs them here has no GPU, or runs them all.
    found: dict[str, Any] = {}
    try:
        for more in gpu_children.tests(context(tmp_path), 120.0):
            found |= more
    except RuntimeError as error:
        assert "ended with code 5" in str(error)
        assert "deselected" in (tmp_path / "tests.log").read_text()
    assert found["failed"] == []
    assert [path.name for path in tmp_path.iterdir()] == ["tests.log"]


def test_tests_that_passed_before_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "test_own.py"
    own.write_text("def test_a(): pass\ndef test_ab(): assert 0\n")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "benchmarks.gpu_passed", "--rootdir",
               str(tmp_path), "-p", "no:cacheprovider", str(own)]  # fmt: skip
    monkeypatch.setattr(gpu_children, "tests_command", lambda device: command)
    monkeypatch.setattr(gpu_children, "read_tests", lambda text, *_: {"text": text})
    before = context(tmp_path, tests={"passed_tests": ["test_own.py::test_a"]})
    found: dict[str, Any] = {}
    with pytest.raises(RuntimeError, match="the tests ended with code 1"):
        for more in gpu_children.tests(before, 60.0):
            found |= more
    assert "1 failed, 1 deselected" in found["text"]


def peers_of(*names: str) -> dict[str, Any]:
    """Of workloads that a peer takes 2, 3, ... times as long for."""
    rows = {name: {"autofuse": {"time_us": 1.0}} for name in names}
    ratios = {name: 2.0 + at for at, name in enumerate(names)}
    mode = {"workloads": rows, "ratio_best_peer_over_autofuse": ratios}
    return {"modes": {"graph": mode, "eager": mode}}


def test_peers_that_end_early_leave_what_they_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fake(command: list[str], log: Path, *_: object) -> Iterator[int | None]:
        asked.append(command[command.index("--workloads") + 1])
        log.write_text("first\nbench_peers: no such thing\n")
        yield None
        data = json.dumps(peers_of("softmax"))
        Path(command[command.index("--output") + 1]).write_text(data)
        yield 2

    monkeypatch.setattr(gpu_children, "follow", fake)
    own = context(tmp_path, "softmax", "swiglu")
    seen: list[Mapping[str, Any]] = []
    with pytest.raises(RuntimeError, match="ended with code 2: bench_peers: no such thing"):
        seen.extend(gpu_children.peers(own, 10.0))
    seen = []
    monkeypatch.setattr(gpu_children, "follow", lambda *a: itertools.islice(fake(*a), 2))
    with pytest.raises(RuntimeError):
        for found in gpu_children.peers(own, 10.0):
            seen.append(found)
    assert seen[0] == {} and seen[-1]["modes"]["graph"]["geomean_over"] == ["softmax"]
    later = replace(own, steps={"peers": seen[-1], "tune": {"workloads": {
        "softmax": {"best": 1}, "swiglu": {"best": 1}, "mlp": {"error": "lost"},
    }}})  # fmt: skip
    with pytest.raises(RuntimeError):
        list(gpu_children.peers(later, 10.0))
    assert asked == ["softmax,swiglu", "softmax,swiglu", "swiglu"], "what was tuned and is not done"
    done = replace(own, steps={"peers": peers_of("softmax", "swiglu")})
    assert list(gpu_children.peers(done, 10.0)) == [] and len(asked) == 3


def test_comparisons_of_two_calls_are_one() -> None:
    both = merged(peers_of("softmax"), peers_of("black_scholes", "swiglu"))["modes"]["graph"]
    assert set(both["workloads"]) == {"softmax", "black_scholes", "swiglu"}
    assert both["geomean_best_peer_over_autofuse"] == pytest.approx((2 * 2 * 3) ** (1 / 3))
    assert merged(peers_of("softmax"), {}) == {}, "nothing yet"


def test_bandwidth_counts_inputs_and_outputs() -> None:
    b = GraphBuilder()
    graph = b.build([b.add("neg", b.input("x", (1000, 1000), "f32"))])
    result = {"best": {"time_us": 8.0, "kernels": 1, "origin": "exact"}, "verified": True}
    found = gpu_steps.moved(graph, result, 4.0)
    assert found["bytes"] == 8_000_000 and found["gbytes_per_s"] == pytest.approx(1000.0)
    assert found["share_of_copy"] == pytest.approx(0.5)
    assert gpu_steps.moved(graph, {"error": "lost"}, 1.0)["error"] == "lost"
    for large in gpu_steps.LARGE.values():
        assert gpu_steps.moved_bytes(large.graph("default")) >= 256 << 20
        assert gpu_steps.moved_bytes(large.graph("small")) < 1 << 20


def test_one_workload_that_fails_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **given: Any) -> Any:
        raise RuntimeError(f"out of memory after {given['budget_s']:g} s")

    monkeypatch.setattr(gpu_steps, "tune", fail)
    kept = {"best": {"time_us": 1.0}, "baselines": {}}
    known = {"workloads": {"swiglu": kept, "softmax": {"error": "before"}}}
    own = context(tmp_path, "softmax", "mlp", "swiglu", clock=Clock(), tune=known)
    seen: list[Mapping[str, Any]] = []
    with pytest.raises(RuntimeError, match="failed: softmax, mlp"):
        for found in gpu_steps.tune_zoo(own, 20.0):
            seen.append(found)
    last = seen[-1]
    assert last["workloads"]["softmax"]["error"] == "RuntimeError: out of memory after 10 s"
    assert last["workloads"]["swiglu"] == kept, "what an earlier call found is kept"
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
             "copy_gbytes_per_s": 4.0, "share_of_copy": 0.75,
             "notes": ["1 of 2 plans were hot"]}  # fmt: skip
    cells = {"autofuse": {"time_us": 1.0}, "jax": {"time_us": 3.0}, "cupy": {"error": "no"}}
    mode = {"workloads": {"softmax": cells}, "ratio_best_peer_over_autofuse": {"softmax": 3.0},
            "geomean_best_peer_over_autofuse": 3.0, "geomean_over": ["softmax"]}  # fmt: skip
    steps: dict[str, Any] = {
        "facts": {"device": {"name": "Toy <1>"}, "calibration": {"launch_us": 1.5}},
        "tests": {"passed": 3, "failed": ["tests/a.py::b"], "skipped": 0, "tail": "E assert <"},
        "tune": {"workloads": {"softmax": tuned, "mlp": {"error": "out of memory"}}},
        "bandwidth": {"workloads": {"softmax": large, "rms": {"bytes": 1, "error": "lost"}}},
        "cartpole": {"times_us": {"best": 1.0}, "ratio_hand_over_ours": 1.1, "low": 1.0,
                        "high": 1.2, "hand": "32 threads", "ours": "best"},
        "peers": {"modes": {"graph": mode, "eager": mode}, "missing": {"torch": "absent"}},
    }  # fmt: skip
    return {"started": "now", "steps": {n: {"state": "done", **s} for n, s in steps.items()}}


def test_the_page_shows_every_step_and_escapes() -> None:
    data = made_up()
    text = page(data)
    for said in (
        "autofuse on Toy &lt;1&gt;", "3 passed, 1 failed", "E assert &lt;", "out of memory",
        "1 of 2 plans were hot", "75.0%", "32 threads over best: 1.100", "graph mode",
        "absent", "1 of 2", "2×", "a copy, GB/s",
    ):  # fmt: skip
        assert said in text, said
    assert text.count("not met") == 2 and "<1>" not in text and "measured</th>" in text
    dry = page(data | {"times": "made up"})
    assert "A dry run. Times are made up." in dry and "measured</th>" not in dry


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
