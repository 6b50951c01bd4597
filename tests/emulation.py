"""Kernels of small graphs on the CUDA emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.emulator.emulator import ORDERS, Emulated, Guarded, Order
from autofuse.graph.types import Graph, Value
from autofuse.kernel.dialects import CUDA
from autofuse.kernel.ir import Kernel
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render_cuda import render_cuda
from autofuse.measure.check import poison
from autofuse.plan.groups import group_of, is_source
from autofuse.plan.types import LaunchConfig


@dataclass(frozen=True)
class OneKernel:
    """A whole graph as one kernel; `reads` are the inputs that it takes, in its order."""

    graph: Graph
    kernel: Kernel
    reads: tuple[Value, ...]

    @property
    def text(self) -> str:
        """What NVRTC would get."""
        return f"{CUDA.prelude}\n{render_cuda(self.kernel)}"


def one_kernel(graph: Graph, name: str, launch: LaunchConfig | None = None) -> OneKernel:
    """Everything that is computed, in one kernel."""
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group, reads = extract(graph, group_of(graph, nodes))
    return OneKernel(graph, lower(group, launch or LaunchConfig(), name), tuple(reads))


def run_kernel(
    library: Emulated,
    made: OneKernel,
    inputs: Sequence[np.ndarray],
    grid: int = 3,
    block: int = 64,
    orders: Sequence[Order] = ORDERS,
) -> list[np.ndarray]:
    """The graph's outputs, from poisoned buffers between guard zones."""
    given: Mapping[int, np.ndarray] = dict(zip(made.graph.inputs, inputs, strict=True))
    outputs = sorted(set(made.graph.outputs))
    arrays = [Guarded(f"in{k}", given[v.node]) for k, v in enumerate(made.reads)]
    for k, value in enumerate(outputs):
        type_ = made.graph.type_of(value)
        values = np.empty(type_.shape, type_.dtype.numpy)
        poison(values)
        arrays.append(Guarded(f"out{k}", values))
    library.launch(made.kernel.name, grid, block, arrays, orders=orders)
    found = {v: a.array for v, a in zip(outputs, arrays[len(made.reads) :], strict=True)}
    return [found[value] for value in made.graph.outputs]
