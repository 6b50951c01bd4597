"""Every sample of the op table as a kernel of its own, many in one library."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph, Value
from autofuse.measure.check.compare import WorkloadReference, reference_of
from autofuse.ops.spec import Family, OpSpec, Sample, all_specs
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from tests.support.expr_eval import draw

CASES = {
    f"{spec.name}-{n}-{','.join(map(str, sample.ins))}": (spec, sample)
    for spec in all_specs()
    for n, sample in enumerate(spec.samples())
    if spec.family is not Family.SOURCE or spec.name == "iota"
}

# Those that kernels of ours compute; the others are a library's.
KERNELS = {name: case for name, case in CASES.items() if case[0].family is not Family.SOLVER}

CHUNK = 60

LAUNCHES = (
    LaunchConfig.of(tile=64, impl="loops"),
    LaunchConfig.of(tile=7, stage=False, threads=2, math="relaxed"),
)


def one_op(spec: OpSpec, sample: Sample) -> Graph:
    """A graph of this op alone."""
    b = GraphBuilder()
    operands = [b.input(f"x{k}", t.shape, t.dtype) for k, t in enumerate(sample.ins)]
    return b.build(b.add_multi(spec.name, *operands, **sample.attrs))


def whole(graph: Graph, launch: LaunchConfig) -> Candidate:
    """Everything in one kernel."""
    nodes = tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    outputs = tuple(sorted(set(graph.outputs)))
    return Candidate(FusionPlan((FusionGroup(nodes, outputs),)), (launch,))


def together(names: Sequence[str]) -> tuple[Graph, dict[str, int]]:
    """A graph with an op per name, none reading another, and how many outputs each has."""
    b = GraphBuilder()
    outputs: list[Value] = []
    counts: dict[str, int] = {}
    for name in names:
        spec, sample = CASES[name]
        operands = [b.input(f"{name} {k}", t.shape, t.dtype) for k, t in enumerate(sample.ins)]
        made = b.add_multi(spec.name, *operands, **sample.attrs)
        counts[name] = len(made)
        outputs += made
    return b.build(outputs), counts


def one_kernel_each(graph: Graph, launch: LaunchConfig) -> Candidate:
    groups = [group_of(graph, [n]) for n in range(len(graph.nodes)) if not is_source(graph, n)]
    return Candidate(FusionPlan(tuple(groups)), (launch,) * len(groups))


def expected(name: str) -> tuple[tuple[np.ndarray, ...], WorkloadReference]:
    inputs = draw(CASES[name][1])
    return inputs, reference_of(one_op(*CASES[name]), inputs)
