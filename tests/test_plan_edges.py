"""Plans at the edges: empty arrays, one trip, states that swap, outputs that are inputs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from batching import Case, failures
from random_plans import random_candidate

from autofuse.baselines import BASELINES
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate, LaunchConfig


def empty() -> Graph:
    """No rows to compute, their sum, and something else beside them."""
    b = GraphBuilder()
    x, z = b.input("x", (0, 3), "f32"), b.input("z", (4,), "f32")
    y = b.add("exp", b.add("sin", x))
    total = b.add("reduce_sum", y, axes=(0,))
    return b.build([y, total, b.add("tanh", b.add("cos", z))])


def one_trip() -> Graph:
    """A loop that runs once and leaves a stack of one."""
    inner = GraphBuilder()
    inner.input("t", (), "i32")
    new = inner.add("sin", inner.input("s", (1, 1), "f32"))
    body = inner.build([new, inner.add("cos", new)])
    b = GraphBuilder()
    return b.build(b.add_multi("loop", b.input("x", (1, 1), "f32"), body=body, trip=1, carries=1))


def swap() -> Graph:
    """States that change places every trip: outputs of the body are its inputs."""
    inner = GraphBuilder()
    inner.input("t", (), "i32")
    s, u = inner.input("s", (5,), "f32"), inner.input("u", (5,), "f32")
    body = inner.build([u, s, s])
    b = GraphBuilder()
    x, y = b.input("x", (5,), "f32"), b.input("y", (5,), "f32")
    return b.build(b.add_multi("loop", x, y, body=body, trip=3, carries=2))


def passed_through() -> Graph:
    """Outputs that are an input, a constant, and one value twice."""
    b = GraphBuilder()
    x = b.input("x", (5,), "f32")
    y = b.add("sin", x)
    return b.build([x, y, y, b.constant(2.0, DType.F32)])


def unfused(graph: Graph) -> Candidate:
    """One kernel per node, loop bodies re-issued."""
    plan, launch = BASELINES["unfused"](graph).plan, LaunchConfig()
    bodies = tuple((launch,) * len(g.body.groups) if g.body else () for g in plan.groups)
    return Candidate(plan, (launch,) * len(plan.groups), bodies)


@pytest.mark.parametrize("make", [empty, one_trip, swap, passed_through])
def test_edge_plans_give_the_reference_result(make: Callable[[], Graph]) -> None:
    graph = canonical(make())
    cases = [Case(graph, unfused(graph), "unfused")]
    cases += [Case(graph, random_candidate(graph, seed, 10), f"walk {seed}") for seed in range(4)]
    assert not failures(cases)
