"""Every op, on every dtype it claims, through the C backend against its own reference."""

from __future__ import annotations

import pytest
from batching import Case, build, verdict
from expr_eval import draw

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Graph
from autofuse.measure.check import CheckResult, reference_of
from autofuse.ops.spec import Family, OpSpec, Sample, all_specs
from autofuse.plan.groups import is_source
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig

CASES = {
    f"{spec.name}-{n}-{','.join(map(str, sample.ins))}": (spec, sample)
    for spec in all_specs()
    for n, sample in enumerate(spec.samples())
    if spec.family is not Family.SOURCE or spec.name == "iota"
}
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


@pytest.fixture(scope="module")
def results() -> dict[str, CheckResult]:
    """All ops, built together and run once."""
    cases: list[Case] = []
    for name, (spec, sample) in CASES.items():
        graph = one_op(spec, sample)
        cases += [Case(graph, whole(graph, launch), name) for launch in LAUNCHES]
    found: dict[str, CheckResult] = {}
    for case, artifact in zip(cases, build(cases), strict=True):
        inputs = draw(CASES[case.label][1])
        result = verdict(artifact, inputs, reference_of(case.graph, inputs))
        if case.label not in found or found[case.label].ok:
            found[case.label] = result
    return found


@pytest.mark.parametrize("name", CASES)
def test_op_gives_its_reference_result(name: str, results: dict[str, CheckResult]) -> None:
    result = results[name]
    assert result.ok, result.message
