"""On a GPU, with nothing else on it: arrays are not copied, times are plausible, and a candidate
that breaks the device does not break the session."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.base import Source
from autofuse.backends.cuda.build import CudaArtifact, build_cuda
from autofuse.backends.cuda.driver import CupyDriver, running_target
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.nvrtc import FLAGS
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import CUDA
from autofuse.measure.calibrate.cuda import copy_us
from autofuse.measure.cuda import FLUSHED, CudaDevice
from autofuse.measure.hardware import GPU
from autofuse.measure.timing.sampling import Sampling, collect
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.records import FailureKind
from autofuse.zoo import zoo_graph
from benchmarks.handwritten import kernel_program

pytestmark = pytest.mark.gpu
N = 1 << 20
QUICK = Sampling(warmup_s=0.01, minimum=8, maximum=30, wall_s=0.5)
GOOD = "y[i] = -x[i];"
ILLEGAL = "y[1ll << 40] = x[i];"
# Longer than the worker waits, and it ends by itself.
SLOW = """
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (i < 256 && now - start < 12000000000ull);
  y[i] = -x[i];"""


def negation(size: int = N) -> Graph:
    b = GraphBuilder()
    return b.build([b.add("neg", b.input("x", (size,), "f32"))])


def by_hand(statement: str, size: int = N) -> CudaArtifact:
    """A kernel of one's own for `negation`."""
    head = 'extern "C" __global__ void k_test(AF_IN(float, x), AF_OUT(float, y))'
    index = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"
    text = f"{CUDA.prelude}\n{head} {{ {index} {statement} }}"
    source = Source("k_test", text, FLAGS)
    made = kernel_program(negation(size), source, Geometry(size // 256, 256), running_target())
    return build_cuda(made).artifact


@pytest.mark.parametrize(("bad", "kinds"), [
    (ILLEGAL, {FailureKind.LAUNCH, FailureKind.CRASH}),
    (SLOW, {FailureKind.TIMEOUT}),
])  # fmt: skip
def test_a_session_survives_a_candidate(bad: str, kinds: set[FailureKind]) -> None:
    with Worker(Workload(negation()), hardware=GPU, limit_s=4.0) as worker:
        assert worker.measure(by_hand(GOOD), QUICK, limit_s=60.0).failure is None
        failure = worker.measure(by_hand(bad), QUICK).failure
        assert failure is not None and failure.kind in kinds
        reply = worker.measure(by_hand(GOOD), QUICK, limit_s=60.0)
        assert reply.failure is None and reply.timing is not None
        assert worker.starts == 2


def torch_array(array: np.ndarray) -> tuple[Any, int]:
    torch = pytest.importorskip("torch")  # not needed to use a GPU
    made = torch.tensor(array, device="cuda")
    return made, made.data_ptr()


def jax_array(array: np.ndarray) -> tuple[Any, int]:
    jax = pytest.importorskip("jax")  # not needed to use a GPU
    made = jax.device_put(array, jax.devices("gpu")[0])
    return made, made.unsafe_buffer_pointer()


def cupy_array(array: np.ndarray) -> tuple[Any, int]:
    import cupy

    made = cupy.asarray(array)
    return made, made.data.ptr


@pytest.mark.parametrize("make", [torch_array, jax_array, cupy_array])
def test_arrays_of_others_are_used_in_place(make: Any) -> None:
    host = np.linspace(-1, 1, N, dtype=np.float32)
    array, address = make(host)
    driver = CupyDriver()
    assert driver.pointer(driver.adopt(array)) == address
    (result,) = autofuse.compile(negation(), device="cuda")(array)
    assert np.array_equal(driver.download(result), -host)


def test_torch_takes_results_without_a_copy() -> None:
    torch = pytest.importorskip("torch")  # not needed to use a GPU
    (result,) = autofuse.compile(negation(), device="cuda")(torch.ones(N, device="cuda"))
    taken = torch.from_dlpack(result)
    assert taken.data_ptr() == result.data.ptr and bool((taken == -1).all())


def test_results_come_on_the_callers_stream() -> None:
    import cupy

    plan = autofuse.compile(negation(), device="cuda")
    x = cupy.ones(N, cupy.float32)
    cupy.cuda.Device().synchronize()
    for stream in (cupy.cuda.Stream(non_blocking=True) for _ in range(3)):
        with stream:
            x = plan(x * 2)[0]
            assert float(x.sum()) == pytest.approx(float((x[:1] * N)[0]))


def test_a_caller_may_capture_a_plan_in_a_graph_of_his_own() -> None:
    import cupy

    graph = zoo_graph("softmax", "small")
    plan = autofuse.compile(graph, device="cuda", mode="eager")
    inputs = random_inputs(graph, 2)
    device_inputs = [cupy.asarray(a) for a in inputs]
    outputs = [cupy.empty(t.shape, t.dtype.numpy) for t in graph.output_types]
    plan.run(device_inputs, outputs)
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(device_inputs, outputs)
        captured = stream.end_capture()
    outputs[0].fill(float("nan"))
    cupy.cuda.Device().synchronize()
    captured.launch(stream)
    stream.synchronize()
    assert np.allclose(outputs[0].get(), evaluate(graph, inputs)[0], rtol=1e-4, atol=1e-6)


def test_events_see_a_stall_that_is_known() -> None:
    device = CudaDevice()
    with device.stream:
        taken = [device.timed_us(lambda: None, lambda: device.stall(500.0)) for _ in range(5)]
    # The timer that the stall reads may tick once a microsecond or more.
    assert 450.0 < min(taken) < 5000.0


def test_times_are_not_faster_than_memory() -> None:
    size = 1 << 25
    device, target = CudaDevice(), running_target()
    device.open((np.linspace(-1, 1, size, dtype=np.float32),), negation(size).output_types)
    with device.load(by_hand(GOOD, size)) as loaded:
        timing = collect(device.watch(loaded, QUICK), QUICK)
    # What is written last may still be in the cache when the sample ends.
    moved = 8 * size - target.l2_bytes
    assert moved / timing.median_us * 1e-3 < 1.1 * target.bandwidth
    copied = copy_us(device, 8 * size)
    assert 0.3 * target.bandwidth < 8 * size / copied * 1e-3
    assert moved / copied * 1e-3 < 1.1 * target.bandwidth


def test_emptying_the_cache_takes_what_reading_twice_as_much_takes() -> None:
    """So the loads are there, and nothing is written."""
    device, target = CudaDevice(), running_target()
    with device.stream:
        stall = partial(device.stall, 50.0)
        us = min(device.timed_us(stall, device.flush) for _ in range(10))
        assert not device.driver.download(device._flushed).any()
    rate = FLUSHED * target.l2_bytes / us * 1e-3
    assert 0.2 * target.bandwidth < rate < 4 * target.bandwidth


def test_calibration_is_plausible() -> None:
    found, target = GPU.calibrate(), running_target()
    assert 0.3 * target.bandwidth < found.gbytes_per_s < 1.1 * target.bandwidth
    assert found.cached_gbytes_per_s >= found.gbytes_per_s and 0 < found.launch_us < 50
