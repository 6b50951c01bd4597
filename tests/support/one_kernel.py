"""A whole graph as one kernel, launched on the emulator as its shape asks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.emulator.emulator import ORDERS, Emulated, Guarded, Order
from autofuse.graph.types import Graph, Value
from autofuse.kernel.cuda.shape import is_one_turn
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.launching import (
    block_threads,
    blocks_wanted,
    is_cooperative,
    scratch_params,
    shared_bytes,
)
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.render import render_cuda, shaped_cuda
from autofuse.kernel.text.dialects import CUDA
from autofuse.measure.check.compare import poison
from autofuse.plan.fusion.groups import group_of, is_source
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


# An order in which a missing barrier shows, and the one in which it would not.
TWO = (ORDERS[0], ORDERS[2])


def launched(
    library: Emulated,
    made: OneKernel,
    inputs: Sequence[np.ndarray],
    few: int = 5,
    orders: Sequence[Order] = TWO,
) -> list[np.ndarray]:
    """The graph's outputs, from a launch as `cuda_shape` asks for it; with grid="stride", of a few
    blocks."""
    graph, kernel = made.graph, made.kernel
    given = dict(zip(graph.inputs, inputs, strict=True))
    arrays = [Guarded(f"in{k}", given[v.node]) for k, v in enumerate(made.reads)]
    outputs = {v: np.empty(graph.type_of(v).shape, graph.type_of(v).dtype.numpy)
               for v in sorted(set(graph.outputs))}  # fmt: skip
    outs = []
    for k, values in enumerate(outputs.values()):
        poison(values)
        outs.append(Guarded(f"out{k}", values))
    work = [Guarded(p.name, np.zeros(p.size, p.dtype.numpy)) for p in scratch_params(kernel)]
    blocks, together = blocks_wanted(kernel), is_cooperative(kernel)
    if not is_one_turn(shaped_cuda(kernel)):
        blocks = min(blocks, few)
    library.launch(
        kernel.name, blocks, block_threads(kernel), [*arrays, *outs, *work],
        shared_bytes=shared_bytes(kernel), orders=orders, cooperative=together,
    )  # fmt: skip
    found = {v: a.array for v, a in zip(outputs, outs, strict=True)}
    return [found[v] for v in graph.outputs]
