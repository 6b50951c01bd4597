"""The comparison on a GPU, with a driver made of NumPy memory and peers made up."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.driver import CudaMissing
from autofuse.backends.registry import CUDA_BACKEND
from autofuse.devices import DEVICES
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate
from autofuse.measure.cuda import CudaDevice
from autofuse.measure.hardware import GPU, DeviceUnit
from autofuse.measure.truth.references import prepare
from autofuse.measure.workload import Workload
from autofuse.peers import programs_numpy
from autofuse.peers.types import BenchError, BenchWorkload, PeerOutcome
from autofuse.peers.verify import check
from autofuse.records import Environment
from autofuse.simplify import normal_form
from benchmarks import peers_cuda, run_cuda
from benchmarks.fused_cupy import fused_program
from benchmarks.peers_cuda import CUDA_COLUMNS, CudaReady, NotApplicableError
from benchmarks.run_cuda import bench_peers_cuda, compare_cuda, modes_table
from benchmarks.workloads import bench_workload
from tests.support.cli_tools import call_script
from tests.support.cuda_clocks import clocks, kernels
from tests.support.fake_cuda import FakeDriver

# The kind "cuda" as on a host with one GPU.
HERE = replace(DEVICES["cuda"], hardware=replace(GPU, units=lambda: (DeviceUnit("fake"),)))


def device() -> CudaDevice:
    ticks = count()
    return CudaDevice(FakeDriver(), DEFAULT_TARGET, clocks(), lambda: next(ticks) * 1e-6)


class Planted:
    """A column that does what the test says and takes `us` microseconds of the fake device."""

    def __init__(self, name: str, own: CudaDevice, us: float = 5.0, **failing: Exception) -> None:
        self.name, self.device, self.us, self.failing = name, own, us, failing

    def prepare(self, workload: BenchWorkload, arrays: Any) -> CudaReady:
        if "prepare" in self.failing:
            raise self.failing["prepare"]
        driver: Any = self.device.driver

        def issue(mode: str) -> Any:
            if mode in self.failing:
                raise self.failing[mode]
            calls = count()

            def run() -> Any:
                if "late" in self.failing and next(calls) > 5:
                    raise self.failing["late"]
                driver.now_us += self.us if mode == "graph" else 10 * self.us
                return (driver.upload(np.exp(arrays[0].memory)),)

            return run

        return CudaReady(issue, lambda found: (found[0].memory,), 0.5, kernels=2, note="planted")


def toy() -> BenchWorkload:
    b = GraphBuilder()
    x = b.input("x", (8,), "f32")
    graph = b.build([b.add("exp", x)])
    return BenchWorkload("toy", graph, (np.linspace(-1, 1, 8, dtype=np.float32),))


def test_a_row_for_each_mode() -> None:
    own = device()
    columns = [
        Planted("autofuse", own, 4.0),
        Planted("jax", own, 8.0),
        Planted("cupy", own, 6.0, graph=RuntimeError("cannot be captured\nat all")),
        Planted("torch", own, prepare=ImportError("no triton")),
        Planted("handwritten", own, prepare=NotApplicableError("not for this one")),
    ]
    with own.stream:
        rows = compare_cuda(toy(), columns, own, 0.0, kind=HERE)
    graph, eager = rows["graph"], rows["eager"]
    assert graph["autofuse"].time_us == pytest.approx(4.0)
    assert eager["autofuse"].time_us == pytest.approx(40.0)
    assert eager["cupy"].time_us == pytest.approx(60.0)
    assert graph["cupy"].error == "RuntimeError: cannot be captured"
    assert graph["torch"].error == eager["torch"].error == "ImportError: no triton"
    assert "handwritten" not in graph and graph["jax"].kernels == 2
    assert graph["autofuse"].samples >= 6 and graph["autofuse"].max_rel_error is not None


def test_graph_mode_stalls_and_eager_mode_begins_idle() -> None:
    own = device()
    driver: Any = own.driver
    with own.stream:
        for mode, wanted in (
            ("graph", ["launch", "launch", "event", "event"]),
            ("eager", ["launch", "synchronize", "event", "event"]),
        ):
            watch = run_cuda._watch(own, Planted("jax", own).prepare(toy(), driver_arrays(own))
                                    .issue(mode), mode)  # fmt: skip
            driver.log.clear()
            watch.sample()
            assert driver.names() == wanted and kernels(driver)[-1] == "af_read"


def driver_arrays(own: CudaDevice) -> tuple[Any, ...]:
    return tuple(own.driver.upload(a) for a in toy().inputs)


def test_samples_that_fail_end_one_column_only() -> None:
    own = device()
    columns = [Planted("autofuse", own), Planted("jax", own, late=LaunchError("throttled"))]
    with own.stream:
        rows = compare_cuda(toy(), columns, own, 0.0, kind=HERE)
    assert rows["graph"]["jax"].error == "throttled" and rows["graph"]["jax"].time_us is None
    assert rows["graph"]["autofuse"].time_us == pytest.approx(5.0)


def test_what_is_absent_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> None:
        raise BenchError(f"{package} is not installed")

    monkeypatch.setattr(peers_cuda, "require", absent)
    found, missing = peers_cuda.cuda_implementations(device(), 0.0, None)
    assert [each.name for each in found] == [*CUDA_COLUMNS[:3], "handwritten"]
    assert list(missing) == list(CUDA_COLUMNS[4:])
    assert missing["cupy_fuse"] == "cupy is not installed"


def test_libraries_without_a_gpu_are_absent() -> None:
    found, missing = peers_cuda.cuda_implementations(device(), 0.0, None)
    # This machine has JAX without a GPU.
    assert missing["jax"].startswith("this JAX has no GPU backend: ")
    assert "jax" not in [each.name for each in found]


def test_results_are_written_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = device()
    columns = [Planted("autofuse", own, 4.0), Planted("jax", own, 8.0)]
    here = replace(
        CUDA_BACKEND, ready=lambda: None, environment=lambda: Environment("cuda", (), ())
    )
    kind = replace(HERE, backend=here, hardware=replace(HERE.timer, device=lambda: own))
    monkeypatch.setattr(run_cuda, "prepare_process", lambda: None)
    monkeypatch.setattr(run_cuda, "cuda_implementations", lambda *_: (columns, {"torch": "absent"}))
    monkeypatch.setattr(run_cuda, "bench_workload", lambda name, size: toy())
    output, times = tmp_path / "peers.json", iter([0.0, 1.0, 2.0, 99.0])
    found = bench_peers_cuda(
        ["softmax", "swiglu", "mlp"], timing_s=0.0, output=output, total_s=50.0,
        clock=lambda: next(times), kind=kind,
    )  # fmt: skip
    data = json.loads(output.read_text())
    assert data["modes"]["graph"]["geomean_best_peer_over_autofuse"] == pytest.approx(2.0)
    assert set(data["modes"]["eager"]["workloads"]) == {"softmax", "swiglu"}
    assert data["missing"] == {"torch": "absent", "mlp": "not begun: the time was used up"}
    assert "graph mode" in found["table"] and "eager mode" in found["table"]


@pytest.mark.parametrize("name", ["swiglu", "adam_16", "cartpole_norng"])
def test_results_come_from_a_reference_that_was_prepared(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is of the same inputs, and of the same results in the same order."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    workload = bench_workload(name, "small")
    wanted = run_cuda.wanted_results(workload)
    prepare(Workload(normal_form(workload.graph)))
    monkeypatch.setattr(run_cuda, "evaluate", lambda *_: None)
    found = run_cuda.wanted_results(workload)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_kernel_by_hand_is_no_peer() -> None:
    row = {"autofuse": PeerOutcome(time_us=10.0), "handwritten": PeerOutcome(time_us=1.0)}
    text = modes_table({"graph": {"softmax": row | {"cupy": PeerOutcome(time_us=30.0)}}}, {})
    assert "3.00 (cupy)" in text


@pytest.mark.parametrize(
    "name", ["swiglu", "black_scholes", "adam_16", "cartpole_noconcat", "cartpole_unroll10"]
)
def test_fused_programs_compute_the_workload(name: str) -> None:
    fused: list[Any] = []

    def fuse(function: Any) -> Any:
        fused.append(function)
        return function

    workload = bench_workload(name, "small")
    program = fused_program(name, programs_numpy.NUMPY, fuse)
    assert program is not None and len(fused) == 1
    found = tuple(np.asarray(a) for a in program(*workload.inputs))
    assert all(a.dtype == np.float32 for a in found)
    assert check(found, evaluate(workload.graph, workload.inputs), False) < 1e-4


def test_reductions_are_not_for_fuse() -> None:
    assert fused_program("softmax", programs_numpy.NUMPY, lambda f: f) is None


def test_without_a_device() -> None:
    with pytest.raises(CudaMissing, match="device 'cuda' cannot be used"):
        bench_peers_cuda(["softmax"])


def test_the_script_says_so_in_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The very machine may have a GPU: an unknown workload is refused before anything else."""
    asked = ("bench_peers", "--device", "cuda", "--workloads", "nope")
    ended = call_script(capsys, monkeypatch, *asked)
    assert ended.code == 2 and ended.err.startswith("bench_peers: unknown workload 'nope'")
