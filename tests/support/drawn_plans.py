"""Random graphs with random plans."""

from __future__ import annotations

from autofuse.graph.canonical import canonical
from benchmarks.fuzz.random_plans import random_candidate
from tests.support.batching import Case
from tests.support.random_graphs import ALL_MOVES, WIDE_SHAPES, random_graph


def made(seed: int, nodes: int, steps: int, rich: bool = False) -> Case:
    """A random graph of about `nodes` ops and the plan after `steps` attempted moves; a rich one
    has longer axes, and matrix products, half types and loops too."""
    graph = random_graph(seed, nodes, WIDE_SHAPES, ALL_MOVES) if rich else random_graph(seed, nodes)
    graph = canonical(graph)
    label = f"made(seed={seed}, nodes={nodes}, steps={steps}, rich={rich})"
    return Case(graph, random_candidate(graph, seed, steps), label)
