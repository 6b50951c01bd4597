"""On a GPU: every op, every kind of kernel and every baseline gives the reference result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pytest

from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.driver import running_target
from autofuse.backends.cuda.geometry import UnsupportedKernel
from autofuse.backends.cuda.program import cuda_program
from autofuse.baselines import BASELINES
from autofuse.devices import device_named
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.measure.cuda import CudaDevice
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import fused_candidate, plan_named
from autofuse.zoo import ZOO, zoo_graph
from benchmarks.handwritten import VARIANTS, cartpole_program
from search_spaces import FusionSpace
from search_spaces.launch import first_option
from tests.support.kind_cases import CASES as KINDS
from tests.support.moved_products import moved_product
from tests.support.op_cases import CHUNK, expected, one_kernel_each, together, whole
from tests.support.op_cases import KERNELS as OPS

pytestmark = pytest.mark.gpu
OP_CHUNKS = [list(OPS)[k : k + CHUNK] for k in range(0, len(OPS), CHUNK)]


@pytest.fixture(scope="module")
def device() -> CudaDevice:
    return CudaDevice()


def run(
    device: CudaDevice, graph: Graph, candidate: Candidate, inputs: Sequence[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """The outputs of one run into poisoned memory; inputs and what is around outputs must stay."""
    built = build_cuda(cuda_program(graph, candidate, running_target()))
    device.open(tuple(inputs), graph.output_types)
    with device.load(built.artifact) as plan:
        after, outputs, intact = device.run(plan)
    assert intact, "the program wrote outside its outputs"
    for before, now in zip(inputs, after, strict=True):
        assert np.ascontiguousarray(before).tobytes() == now.tobytes()
    return tuple(output.copy() for output in outputs)


def wrong(device: CudaDevice, graph: Graph, candidate: Candidate) -> str:
    """What is wrong with a plan on random inputs; "" for nothing."""
    inputs = random_inputs(graph, 0)
    return check(run(device, graph, candidate, inputs), reference_of(graph, inputs)).message


@pytest.mark.parametrize("chunk", range(len(OP_CHUNKS)))
def test_ops_give_their_reference_results(chunk: int, device: CudaDevice) -> None:
    graph, counts = together(OP_CHUNKS[chunk])
    wanted = {name: expected(name) for name in counts}
    inputs = [array for name in counts for array in wanted[name][0]]
    outputs = iter(run(device, graph, one_kernel_each(graph, LaunchConfig()), inputs))
    results = {
        name: check(tuple(islice(outputs, count)), wanted[name][1])
        for name, count in counts.items()
    }
    assert {name: r.message for name, r in results.items() if not r.ok} == {}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_kernel_is_right(name: str, device: CudaDevice) -> None:
    graph, launch = KINDS[name]
    if launch.get("reduce", "") == "cluster" and not running_target().clusters:
        with pytest.raises(UnsupportedKernel, match="has no clusters"):
            wrong(device, graph, whole(graph, launch))
        return
    assert wrong(device, graph, whole(graph, launch)) == ""


@pytest.mark.parametrize("math", ["strict", "relaxed"])
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_products_read_operands_where_they_lie(dtype: str, math: str, device: CudaDevice) -> None:
    """Transposed, sliced and repeated ones, by cuBLAS wherever it can. TF32 need only be near."""
    for seed in range(16):
        graph = moved_product(seed, dtype)
        plan = FusionSpace(graph).choose(first_option)
        candidate = Candidate(plan, (LaunchConfig.of(math=math),) * len(plan.groups))
        inputs = random_inputs(graph, seed)
        (found,) = run(device, graph, candidate, inputs)
        (wanted,) = evaluate(graph, inputs)
        error = np.linalg.norm(found.astype(np.float64) - wanted)
        assert error <= 0.02 * np.linalg.norm(wanted), seed
        if (dtype, math) != ("f32", "relaxed"):
            result = check((found,), reference_of(graph, inputs))
            assert result.ok, f"{seed}: {result.message}"


@pytest.mark.parametrize("name", list(ZOO))
def test_every_baseline_of_the_zoo_is_right(name: str, device: CudaDevice) -> None:
    graph = normal_form(zoo_graph(name, "small"))
    plans = {n: plan_named(graph, n, device_named("cuda")) for n in BASELINES}
    plans["fused"] = fused_candidate(graph, device_named("cuda").space)
    different = {plan.digest: (n, plan) for n, plan in plans.items()}
    found = {n: wrong(device, graph, plan) for n, plan in different.values()}
    assert {n: message for n, message in found.items() if message} == {}


def test_the_kernel_by_hand_is_right(device: CudaDevice) -> None:
    graph = zoo_graph("cartpole_naive", "small")
    steps = ZOO["cartpole_naive"].parameters["small"][1]
    assert isinstance(steps, int)
    inputs = random_inputs(graph, 0)
    reference = reference_of(graph, inputs)
    device.open(inputs, graph.output_types)
    for variant in VARIANTS:
        made = build_cuda(cartpole_program(graph, steps, variant, running_target()))
        with device.load(made.artifact) as plan:
            _, outputs, intact = device.run(plan)
        result = check(outputs, reference)
        assert intact and result.ok, f"{variant}: {result.message}"
