"""Launch settings of CUDA kernels: every way to launch gives the reference result, on the emulator
with its checks, and compiles without a word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from cuda_settings_cases import cases

from autofuse.backends.emulator.emulator import ORDERS, Emulated, Guarded
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.kernel.cuda_shape import (
    block_threads,
    blocks_wanted,
    is_cooperative,
    scratch_params,
    shared_bytes,
)
from autofuse.graph.types import Graph, Value
from autofuse.kernel.dialects import CUDA
from autofuse.kernel.ir import Kernel
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render_cuda import render_cuda
from autofuse.measure.check import Reference, check, poison, reference_of
from autofuse.plan.groups import group_of, is_source
from autofuse.plan.types import LaunchConfig


@dataclass(frozen=True)
class OneKernel:
    graph: Graph
    kernel: Kernel
    reads: tuple[Value, ...]

    @property
    def text(self) -> str:
        return f"{CUDA.prelude}\n{render_cuda(self.kernel)}"


def one_kernel(graph: Graph, name: str, launch: LaunchConfig) -> OneKernel:
    """Everything that is computed, in one kernel."""
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group, reads = extract(graph, group_of(graph, nodes))
    return OneKernel(graph, lower(group, launch, name), tuple(reads))


CASES = {name: (canonical(graph), launch) for name, graph, launch in cases()}
MADE = {name: one_kernel(graph, name, launch) for name, (graph, launch) in CASES.items()}


@pytest.fixture(scope="module")
def library() -> Emulated:
    return Emulated(*(made.text for made in MADE.values()))


@pytest.fixture(scope="module")
def references() -> dict[int, tuple[tuple[np.ndarray, ...], Reference]]:
    return {}


@pytest.mark.parametrize("name", CASES)
def test_every_launch_gives_the_reference_result(name, library, references) -> None:
    made = MADE[name]
    graph, kernel = made.graph, made.kernel
    if id(graph) not in references:
        inputs = random_inputs(graph, 5)
        references[id(graph)] = inputs, reference_of(graph, inputs)
    inputs, reference = references[id(graph)]
    given = dict(zip(graph.inputs, inputs, strict=True))
    arrays = [Guarded(f"in{k}", given[v.node]) for k, v in enumerate(made.reads)]
    outputs = sorted(set(graph.outputs))
    outs = []
    for k, value in enumerate(outputs):
        values = np.empty(graph.type_of(value).shape, graph.type_of(value).dtype.numpy)
        poison(values)
        outs.append(Guarded(f"out{k}", values))
    work = [Guarded(p.name, np.zeros(p.size, p.dtype.numpy)) for p in scratch_params(kernel)]
    blocks = blocks_wanted(kernel)
    if dict(kernel.facts).get("grid", "stride") == "stride" and not is_cooperative(kernel):
        blocks = min(blocks, 5)
    library.launch(
        name, blocks, block_threads(kernel), [*arrays, *outs, *work],
        shared_bytes=shared_bytes(kernel), orders=(ORDERS[0], ORDERS[2]),
        cooperative=is_cooperative(kernel),
    )
    found = {v: a.array for v, a in zip(outputs, outs, strict=True)}
    result = check(tuple(found[v] for v in graph.outputs), reference)
    assert result.ok, result.message
