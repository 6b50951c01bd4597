"""Kernels of the op table as CUDA text, many in one unit."""

from __future__ import annotations

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Kernel
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import LaunchConfig


def whole_kernel(graph: Graph, name: str) -> Kernel:
    """The whole graph as one kernel."""
    graph = canonical(graph)
    nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
    group, _ = extract(graph, group_of(graph, nodes))
    return lower(group, LaunchConfig(), name)


def pack() -> Graph:
    """Three unrelated updates of different sizes."""
    b = GraphBuilder()
    inputs = [b.input(f"x{k}", shape, "f32") for k, shape in enumerate(((1000,), (40, 50), (7,)))]
    return b.build([b.add("tanh", x) for x in inputs])
