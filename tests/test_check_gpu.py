"""gpu_check without a GPU: its options, how time is split, what is written when and not done again,
and the page. `test_dry_run.py` runs it."""

from __future__ import annotations

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
from autofuse.peers.types import BenchError
from benchmarks import gpu_check, gpu_steps
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
from benchmarks.gpu_page import page
from benchmarks.gpu_steps import Context, against_hand, best_rule, shares
from benchmarks.workloads import HEADLINE
from tests.support.cli_tools import call_script
from tests.support.gpu_contexts import context
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


def test_options_are_completed_and_refused(tmp_path: Path) -> None:
    found = checked_options(CheckOptions(tmp_path, steps=("peers", "facts"), workloads=("mlp",)))
    assert found.steps == ("facts", "peers") and found.workloads == ("mlp",)
    assert found.db == str(tmp_path / "tuning.db")
    beside = checked_options(CheckOptions(Path("out"), db="own.db"))
    assert beside.out == Path.cwd() / "out" and beside.db == str(Path.cwd() / "own.db")
    as_url = checked_options(CheckOptions(tmp_path, db="sqlite:///own.db"))
    assert as_url.db == beside.db
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


def test_a_process_that_gives_up_leaves_its_database_in_one_file(tmp_path: Path) -> None:
    program = (
        "import sys; from benchmarks.gpu_check import _give_up; from tuning_db import Store\n"
        "with Store.open(sys.argv[1]) as store:\n"
        "    store.add_workload('d', 'text', 'name', 1); _give_up(sys.argv[1])\n"
    )
    path = tmp_path / DATABASE
    result = subprocess.run([sys.executable, "-c", program, str(path)], cwd=ROOT, check=False)
    assert result.returncode == gpu_check.GIVEN_UP
    assert [found.name for found in tmp_path.iterdir()] == [DATABASE]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM workload").fetchone() == (1,)


def test_the_script_runs_from_anywhere(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, ROOT / "scripts/gpu_check", "--steps", "dance"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.startswith("gpu_check: unknown step 'dance'")
    assert len(result.stderr.splitlines()) == 1


def test_the_script_refuses_a_total_that_is_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = call_script(capsys, monkeypatch, "gpu_check", "--total", "-1")
    said = "gpu_check: the total must be a positive number of seconds, not -1\n"
    assert (ended.code, ended.err) == (2, said)


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
