"""Checks whether a compiled plan computes what its graph says."""

from __future__ import annotations

from autofuse.graph.canonical import canonical
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.runtime.compiled import CompiledPlan


def is_right(plan: CompiledPlan, graph: Graph, seed: int) -> bool:
    """One call on random inputs, against the float64 reference."""
    graph = canonical(graph)
    inputs = random_inputs(graph, seed)
    return check(plan(*inputs), reference_of(graph, inputs)).ok
