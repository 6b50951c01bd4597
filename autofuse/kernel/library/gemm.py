"""When a group is a library call."""

from __future__ import annotations

from autofuse.graph.types import Graph, Value
from autofuse.kernel.library.onednn import dnnl_group
from autofuse.kernel.text.dialects import Dialect
from autofuse.ops.library_forms import Solver, Transform
from autofuse.plan.fusion.epilogues import epilogue_of
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.products import Product, product_of
from autofuse.plan.parameters import BLAS, BLASLT, FFT, IMPL, LAPACK, LAUNCH_TABLES, ONEDNN, PREPACK
from autofuse.plan.types import FusionGroup, LaunchConfig


def library_product(graph: Graph, group: FusionGroup, dialect: Dialect) -> Product | None:
    """The product that the library of a dialect could compute for this group, or None."""
    found = product_of(graph, group.nodes)
    if found is None or group.outputs != (found.output,):
        return None
    return found if graph.type_of(found.output).dtype in dialect.products else None


def library_transform(graph: Graph, group: FusionGroup) -> Transform | None:
    """The Fourier transforms that a library could do for this group, or None."""
    node = group.nodes[0]
    row = graph[node].spec.transforms
    if row is None or len(group.nodes) > 1 or group.outputs != (Value(node),):
        return None
    return None if is_inline(graph, graph[node].inputs[0].node) else row(graph.call(node))


def library_solver(graph: Graph, group: FusionGroup) -> Solver | None:
    """The factorisations that this group is, which only a library does, or None."""
    node = group.nodes[0]
    solves = graph[node].spec.solves
    return None if solves is None else solves(graph.call(node))


def could_be_epilogue(graph: Graph, group: FusionGroup, dialect: Dialect) -> bool:
    """Whether cuBLASLt could compute this group: a product and what it does after one."""
    return dialect.epilogues and epilogue_of(graph, group) is not None


def could_be_library(graph: Graph, group: FusionGroup, dialect: Dialect) -> bool:
    """Whether some library could compute this group on some machine."""
    if library_product(graph, group, dialect) is not None or library_transform(graph, group):
        return True
    if could_be_epilogue(graph, group, dialect):
        return True
    if dialect.lapack and library_solver(graph, group) is not None:
        return True
    return dialect.onednn and dnnl_group(graph, group) is not None


def library_of(graph: Graph, group: FusionGroup, launch: LaunchConfig, dialect: Dialect) -> str:
    """The library (BLAS, BLASLT, ONEDNN, FFT or LAPACK) that computes this group under this launch
    configuration; "" where a kernel does."""
    if dialect.lapack and library_solver(graph, group) is not None:
        return LAPACK
    if PREPACK.of(launch):  # whose panels no library reads
        return ""
    asked: str = LAUNCH_TABLES[dialect.name][IMPL.name].of(launch)
    if asked == BLAS and library_product(graph, group, dialect) is not None:
        return BLAS
    if asked == BLASLT and could_be_epilogue(graph, group, dialect):
        return BLASLT
    if asked == FFT and library_transform(graph, group) is not None:
        return FFT
    return ONEDNN if asked == ONEDNN and dnnl_group(graph, group) is not None else ""
