"""Kernels of small graphs on the CUDA emulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.program import Unit, unit_of
from autofuse.backends.emulator.emulator import (
    ORDERS,
    Argument,
    Emulated,
    Guarded,
    LaunchCounts,
    Order,
)
from autofuse.backends.emulator.maps import as_argument, encoded
from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.types import Param
from autofuse.kernel.lower import extract
from autofuse.measure.check.compare import poison
from autofuse.plan.fusion.groups import group_of, is_source, reads
from autofuse.plan.program.schedule import Ref, Run
from autofuse.plan.types import LaunchConfig

# Two warps: enough for a missing barrier to show, and few enough for small shapes.
SMALL = LaunchConfig.of(threads=64, items=2)


@dataclass(frozen=True)
class OneKernel:
    """A whole graph as one kernel; `reads` are the inputs that it takes, in its order."""

    graph: Graph
    unit: Unit
    reads: tuple[Value, ...]

    @property
    def text(self) -> str:
        """What NVRTC would get."""
        return self.unit.source.text


def one_kernel(graph: Graph, launch: LaunchConfig = SMALL) -> OneKernel:
    """Everything that is computed, in one kernel. Equal kernels have equal texts and names."""
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group = group_of(graph, nodes)
    # Every array starts where an allocation does.
    needs = tuple(Ref("in", k) for k in range(len(reads(graph, group.nodes))))
    makes = tuple(Ref("out", k) for k in range(len(group.outputs)))
    unit = unit_of(Run(graph, group, launch, needs, makes), DEFAULT_TARGET)
    return OneKernel(graph, unit, tuple(extract(graph, group)[1]))


def library_of(made: Sequence[OneKernel]) -> Emulated:
    """All kernels in one library; those that are the same, once."""
    return Emulated(*dict.fromkeys(one.text for one in made))


def run_kernel(
    library: Emulated,
    made: OneKernel,
    inputs: Sequence[np.ndarray],
    orders: Sequence[Order] = ORDERS,
) -> list[np.ndarray]:
    """The graph's outputs, from poisoned buffers between guard zones."""
    return counted(library, made, inputs, orders)[0]


def counted(
    library: Emulated,
    made: OneKernel,
    inputs: Sequence[np.ndarray],
    orders: Sequence[Order] = ORDERS,
) -> tuple[list[np.ndarray], LaunchCounts]:
    """As `run_kernel`, with what the launch did."""
    given = dict(zip(made.graph.inputs, inputs, strict=True))
    params = made.unit.params
    arrays = {
        p.name: Guarded(p.name, given[v.node]) for p, v in zip(params, made.reads, strict=False)
    }
    outputs = sorted(set(made.graph.outputs))
    for param in params[len(arrays) :]:
        values = np.zeros(param.size, param.dtype.numpy)
        if param.role == "out":
            poison(values)
        arrays[param.name] = Guarded(param.name, values)
    arguments = [argument(param, arrays) for param in params]
    shape = made.unit.geometry
    counts = library.launch(
        made.unit.source.name, shape.grid, shape.block, arguments, shape.shared, orders,
        shape.cooperative,
    )  # fmt: skip
    found = dict(zip(outputs, list(arrays.values())[len(made.reads) :], strict=False))
    outs = [found[v].array.reshape(made.graph.type_of(v).shape) for v in made.graph.outputs]
    return outs, counts


def argument(param: Param, arrays: Mapping[str, Guarded]) -> Argument:
    """What a launch is given for a parameter: an array, or a map of one."""
    if param.map is None:
        return arrays[param.name]
    return as_argument(encoded(param.map, arrays[param.source].array.ctypes.data))
