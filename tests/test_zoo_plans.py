"""Workloads around products, convolutions, stencils, scatters and sorting, planned by rules, on the
CPU and as emulated CUDA."""

from __future__ import annotations

from functools import cache

import numpy as np

from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import WorkloadReference, check, reference_of
from autofuse.plan.types import Candidate
from autofuse.tuning.plans import baseline_candidate, fused_candidate
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace
from search_spaces.cuda import CudaLaunchSpace
from tests.support.batching import Case, build, poisoned_run
from tests.support.emulated_plans import failures

NAMES = (
    "convnet_block", "depthwise_block", "attention_grouped", "attention_window", "attention_bias",
    "decode_step", "vocabulary_loss", "gated_mlp", "int8_product", "batched_products", "jacobi",
    "gray_scott", "shallow_water", "lattice_boltzmann", "life", "gravity", "deposit", "thomas",
    "sparse_product", "kepler", "batched_sort", "expert_routing", "beam_step",
)  # fmt: skip
RULES = ("unfused", "xla-2022", "tensorrt")


@cache
def graph_of(name: str) -> Graph:
    return canonical(zoo_graph(name, "small"))


@cache
def wanted(name: str) -> tuple[tuple[np.ndarray, ...], WorkloadReference]:
    inputs = random_inputs(graph_of(name), 0)
    return inputs, reference_of(graph_of(name), inputs)


def candidates(name: str) -> dict[str, Candidate]:
    graph, space = graph_of(name), CpuLaunchSpace()
    found = {rules: baseline_candidate(graph, rules, space)[0] for rules in RULES}
    return {**found, "fused": fused_candidate(graph, space)}


def test_rule_plans_are_right_on_the_cpu() -> None:
    cases = [
        Case(graph_of(name), candidate, f"{name} {rules}")
        for name in NAMES
        for rules, candidate in candidates(name).items()
    ]
    for case, artifact in zip(cases, build(cases), strict=True):
        inputs, reference = wanted(case.label.split()[0])
        result = check(tuple(poisoned_run(artifact, list(inputs))), reference)
        assert result.ok, f"{case.label}: {result.message}"


def test_the_most_fused_plans_are_right_as_cuda() -> None:
    space = CudaLaunchSpace()
    cases = [Case(graph_of(n), fused_candidate(graph_of(n), space), n) for n in NAMES]
    assert failures(cases) == []
