"""The dry run: what measures on a GPU, from end to end, where there is none; and its times are
never taken for a GPU's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.environment import target_environment
from autofuse.backends.cuda.launch import MODES
from autofuse.devices import DEVICES, device_named
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.records import FailureKind
from autofuse.tuning import Progress, plan_named, tune
from benchmarks import gpu_children, gpu_steps
from benchmarks.dry import DryDriver, dry_environment, dry_run
from benchmarks.gpu_check import DATABASE, MADE_UP, PAGE, RESULT, CheckOptions, gpu_check
from tests.support.fake_cuda import DeviceArray
from tuning_db import Store

ROOT = Path(__file__).parent.parent
FILES = {DATABASE, PAGE, RESULT, "tests.log", "peers.json", "peers.log"}
QUICK = Sampling("cold", warmup_s=0.0, minimum=4, maximum=8)


def doubled() -> Graph:
    b = GraphBuilder()
    x = b.input("x", (64,), "f32")
    return canonical(b.build([b.add("add", x, x)]))


@pytest.mark.slow
def test_every_step_on_the_emulator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the form for CI: one small workload, and a search of few kernels."""
    measured = [0]

    def told(progress: Progress) -> None:
        measured[0] = progress.measured

    def short(*given: Any, **options: Any) -> Any:
        own = {"budget_s": 200.0, "baselines": ("xla-2026",), "progress": told}
        return tune(*given, **{**options, **own, "stop": lambda: measured[0] >= 3})

    monkeypatch.setattr(gpu_steps, "tune", short)
    monkeypatch.setattr(gpu_children, "usable_cores", lambda: 1)
    steps = ("facts", "tests", "tune", "peers")
    monkeypatch.chdir(tmp_path.parent)
    options = CheckOptions(Path(tmp_path.name), 500.0, steps, ("softmax",), device="cuda-emulated")
    found = gpu_check(options)
    assert {name: one["state"] for name, one in found["steps"].items()} == dict.fromkeys(
        steps, "done"
    )
    assert {path.name for path in tmp_path.iterdir()} == FILES and len(FILES) <= 8
    assert json.loads(json.dumps(found)) == json.loads((tmp_path / RESULT).read_text())
    assert found["times"] == MADE_UP and found["device"] == "sm_90:emulated H100"
    assert MADE_UP in (tmp_path / PAGE).read_text()
    tuned = found["steps"]["tune"]["workloads"]["softmax"]
    assert tuned["device"] == "cuda-emulated" and tuned["verified"] and tuned["measured"] > 0
    log = (tmp_path / "tests.log").read_text()
    assert found["steps"]["tests"]["passed"] > 20 and "[gw0]" in log, "some of them side by side"
    peers = found["steps"]["peers"]
    row = peers["modes"]["graph"]["workloads"]["softmax"]
    assert peers["device"] == found["device"] and row["autofuse"]["time_us"] > 0
    with Store.open(tmp_path / DATABASE) as store:
        gpu = target_environment(DEFAULT_TARGET)
        for env, known in ((dry_environment(), True), (gpu, False)):
            records = store.measured(env, tuned["graph"]["digest"]).values()
            modes = [one.timing.mode for one in records if one.timing is not None]
            assert bool(modes) == known and all(mode.endswith(",dry") for mode in modes)


def test_the_device_is_never_timed_but_in_a_dry_run() -> None:
    with dry_run() as kind:
        kind.must_be_timed()
        assert DEVICES["cuda-emulated"] is kind
    with pytest.raises(AutofuseError, match="is never timed"):
        DEVICES["cuda-emulated"].must_be_timed()


def test_wrong_kernels_are_found_out() -> None:
    graph = doubled()
    with dry_run() as kind, Worker(Workload(graph), hardware=kind.timer) as worker:
        plan = plan_named(graph, "fused", device_named(kind.name))
        good = kind.backend.build(kind.backend.program(graph, plan)).artifact
        reply = worker.measure(good, QUICK)
        assert reply.timing is not None and reply.timing.mode == "graph,batch,dry"
        ((name, path),) = good.cubins
        text, driver = path.read_text(), DryDriver()
        driver.load(text.encode())
        assert driver.bytes == {name: ((1, False), (1, True))}
        for wrong, kind_of, words in (
            (text.replace("+ l0_x1_0;", "+ 1.0f;"), FailureKind.WRONG_RESULT, "instead of"),
            (text.replace("in0, i0_0)", "in0, i0_0 + 64)"), FailureKind.LAUNCH, name),
        ):
            assert wrong != text
            path.write_text(wrong)
            failure = worker.measure(good, None).failure
            assert failure is not None and failure.kind is kind_of and words in failure.message
        path.write_text(text)


def test_what_is_launched_to_be_timed_computes_nothing() -> None:
    """Until the host writes again."""
    driver, ran = DryDriver(), []

    class Library:
        kernels = ("k",)

        def units(self, name: str) -> tuple[int, ...]:
            return 4, 4

        def launch(self, name: str, grid: int, block: int, views: Any, *_: Any) -> None:
            ran.append([view.size for view in views])

    driver.libraries["k"] = Library()
    array: DeviceArray = driver.upload(np.zeros(8, np.float32))
    shape: Any = type("Shape", (), {"grid": 1, "block": 32, "shared": 0, "cooperative": False})
    start = driver.pointer(array)
    with driver.new_stream():
        driver.settle()
        for _ in range(2):
            driver.launch("k", shape, (start, start + 8))
        driver.download(array)
        before = driver.now_us
        driver.launch("k", shape, (start, start + 8))
        assert len(ran) == 2 and driver.now_us > before
        driver.assign(array, np.ones(8, np.float32))
        driver.launch("k", shape, (start, start + 8))
    assert ran == [[2, 6]] * 3, "each array ends where the next begins, or with its memory"


@pytest.mark.parametrize("mode", MODES)
def test_products_are_calls_of_cublas(mode: str) -> None:
    """Of the library's functions by their arguments, on memory of the driver's."""
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(s).astype(np.float32) for s in ((8, 6), (6, 4)))
    b = GraphBuilder()
    pair = b.input("x", x.shape, "f32"), b.input("y", y.shape, "f32")
    roles = {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (1,), "rhs_contract": (0,)}
    graph = canonical(b.build([b.add("dot_general", *pair, **roles)]))
    with dry_run() as kind:
        program = kind.backend.program(graph, plan_named(graph, "unfused", device_named(kind.name)))
        assert not program.sources
        (found,) = kind.backend.load(kind.backend.build(program).artifact, mode).run([x, y])
    np.testing.assert_allclose(found, x.astype(np.float64) @ y, rtol=1e-6)


@pytest.mark.slow
def test_the_script_from_end_to_end(tmp_path: Path) -> None:
    """Every step, in one call and then in none: what is done is not done again."""
    command = [
        sys.executable, ROOT / "scripts/gpu_check", "--device", "cuda-emulated", "--out", "out",
        "--workloads", "softmax,swiglu", "--total", "400",
    ]  # fmt: skip
    for _ in range(2):
        result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        assert result.stdout.count(": done") == 6
    assert result.stderr == "" and {path.name for path in (tmp_path / "out").iterdir()} == FILES
