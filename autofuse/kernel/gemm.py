"""When a contraction may be a library call."""

from __future__ import annotations

from autofuse.graph.types import Graph
from autofuse.ops.contraction import GemmForm, gemm_form
from autofuse.ops.dtypes import DType
from autofuse.plan.parameters import IMPL
from autofuse.plan.types import FusionGroup, LaunchConfig


def blas_form(graph: Graph, group: FusionGroup) -> GemmForm | None:
    """The GEMM that BLAS could compute for this group, or None."""
    if len(group.nodes) != 1 or graph[group.nodes[0]].op != "dot_general":
        return None
    call = graph.call(group.nodes[0])
    if call.out.dtype not in (DType.F32, DType.F64):
        return None
    form = gemm_form(call)
    return form if form is not None and min(form.m, form.n, form.k, form.batch) > 0 else None


def uses_blas(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> bool:
    """Whether this group is a library call under this launch configuration."""
    return blas_form(graph, group) is not None and IMPL.of(launch) == "blas"
