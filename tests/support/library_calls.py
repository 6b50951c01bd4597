"""Candidates whose groups are calls of a library."""

from __future__ import annotations

from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.convolution import conv_attrs
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig

LAST, KERNEL_LAST = (0, 3, 1, 2), (3, 2, 0, 1)
CALLED = LaunchConfig.of(impl="onednn", threads=2)


def product(m: int = 40, k: int = 24, n: int = 56, dtype: str = "f32") -> Graph:
    return canonical(trace(xp.matmul, spec((m, k), dtype), spec((k, n), dtype)))


def convolution(
    image: tuple[int, ...], kernel: tuple[int, ...], dtype: str = "f32", **attrs: object
) -> Graph:
    b = GraphBuilder()
    x, y = b.input("x", image, dtype), b.input("y", kernel, dtype)
    made = b.add("conv", x, y, **conv_attrs(len(image) - 2, **attrs))
    return canonical(b.build([made]))


def whole(graph: Graph) -> FusionGroup:
    return group_of(graph, [n for n in range(len(graph.nodes)) if not is_source(graph, n)])


def candidate(graph: Graph, launch: LaunchConfig = CALLED) -> Candidate:
    return Candidate(FusionPlan((whole(graph),)), (launch,))
