"""On a GPU: kernels that overlap, kernels that start early, graphs at new addresses, and graphs
beside calls without one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import autofuse
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.driver import running_target
from autofuse.backends.cuda.ordering import places, singles
from autofuse.backends.cuda.program import cuda_program
from autofuse.devices import device_named
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.measure.cuda import CudaDevice
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named
from autofuse.zoo import ZOO, zoo_graph

pytestmark = pytest.mark.gpu
CALLS = 50


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice()


def early(launch: LaunchConfig) -> LaunchConfig:
    return LaunchConfig.of(**{**dict(launch.settings), "early": True})


def many_kernels(graph: Graph, baseline: str) -> Candidate:
    """A plan whose kernels start early where they can."""
    found = plan_named(graph, baseline, device_named("cuda"))
    return replace(found, launches=tuple(one.changed(early) for one in found.launches))


def on_device(device: CudaDevice, arrays: Any) -> list[Any]:
    found = [device.driver.cupy.asarray(array) for array in arrays]
    device.driver.synchronize()
    return found


@pytest.mark.parametrize("baseline", ["unfused", "greedy-chains", "xla-2026"])
@pytest.mark.parametrize("name", ["softmax", "layer_norm_gelu", "mlp", "adam_16", "cartpole_naive"])
def test_calls_in_a_row_are_right(name: str, baseline: str, device: CudaDevice) -> None:
    graph = normal_form(zoo_graph(name, "small"))
    program = cuda_program(graph, many_kernels(graph, baseline), running_target())
    inputs = random_inputs(graph, 0)
    given = on_device(device, inputs)
    outputs = on_device(device, [np.zeros(t.shape, t.dtype.numpy) for t in graph.output_types])
    starts, ends = ([device.driver.pointer(a) for a in own] for own in (given, outputs))
    with device.load(build_cuda(program).artifact) as plan:
        plan.repeated(starts, ends, CALLS).launch(device.stream)
        device.stream.synchronize()
    result = check(tuple(array.get() for array in outputs), reference_of(graph, inputs))
    assert result.ok, result.message


@pytest.mark.parametrize("name", list(ZOO))
def test_graph_and_eager_give_the_same_bits(name: str) -> None:
    graph = zoo_graph(name, "small")
    inputs = random_inputs(graph, 1)
    plans = [
        autofuse.compile(graph, device="cuda", plan="xla-2022", mode=mode)
        for mode in ("graph", "eager")
    ]
    for _ in range(2):
        graphed, eager = (plan(*inputs) for plan in plans)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(graphed, eager, strict=True))


def test_some_kernels_do_start_early() -> None:
    graph = normal_form(zoo_graph("layer_norm_gelu", "small"))
    program = cuda_program(graph, many_kernels(graph, "unfused"), running_target())
    found = [place.early for place in places(tuple(singles(program.actions)))]
    assert any(found) is running_target().early


def test_every_call_has_arrays_of_its_own(device: CudaDevice) -> None:
    graph = normal_form(zoo_graph("mlp", "small"))
    program = cuda_program(graph, many_kernels(graph, "unfused"), running_target())
    with device.load(build_cuda(program).artifact) as plan:
        kept = []
        for seed in range(8):
            inputs = random_inputs(graph, seed)
            given = on_device(device, inputs)
            kept.append((inputs, given, plan.run(given)))
        for inputs, _, outputs in kept:
            result = check(tuple(array.get() for array in outputs), reference_of(graph, inputs))
            assert result.ok, result.message
