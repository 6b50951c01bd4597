"""Plans at the edges: empty arrays, one iteration, states that swap, outputs that are inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from autofuse.baselines import BASELINES
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from benchmarks.fuzz.random_plans import random_candidate
from tests.support.batching import Case, failures
from tests.support.seeds import seeds


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
    """States that change places every iteration: outputs of the body are its inputs."""
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


def nested(stacked: bool) -> Graph:
    """A loop in a loop, whose stack may be stacked once more."""
    deep = GraphBuilder()
    deep.input("t", (), "i32")
    s = deep.input("s", (4, 3), "f32")
    total = deep.add("reduce_sum", s, axes=(0,))
    new = deep.add("sin", deep.add("sub", s, deep.add("broadcast", total, shape=(4, 3), dims=(1,))))
    step = deep.build([new, deep.add("cos", new)])
    inner = GraphBuilder()
    inner.input("t", (), "i32")
    start = inner.input("s", (4, 3), "f32")
    state, stack = inner.add_multi("loop", start, body=step, trip=2, carries=1)
    body = inner.build([inner.add("tanh", state), *([stack] if stacked else [])])
    b = GraphBuilder()
    return b.build(b.add_multi("loop", b.input("x", (4, 3), "f32"), body=body, trip=3, carries=1))


def unfused(graph: Graph) -> Candidate:
    """One kernel per node, loop bodies run by the host."""
    plan, launch = BASELINES["unfused"](graph).plan, LaunchConfig()
    launches = (
        LaunchConfig((), (launch,) * len(g.body.groups)) if g.body else launch for g in plan.groups
    )
    return Candidate(plan, tuple(launches))


MAKERS = [empty, one_trip, swap, passed_through, partial(nested, False), partial(nested, True)]


@pytest.mark.parametrize("make", MAKERS)
def test_edge_plans_give_the_reference_result(make: Callable[[], Graph]) -> None:
    graph = canonical(make())
    cases = [Case(graph, unfused(graph), "unfused")]
    cases += [Case(graph, random_candidate(graph, seed, 10), f"walk {seed}") for seed in seeds(4)]
    assert not failures(cases)


def test_a_value_written_again_after_its_last_reader_keeps_its_place() -> None:
    """Kernels may both write a value; the second must not write where another one lives by then."""
    b = GraphBuilder()
    x = b.input("x", (8, 8), DType.F32)
    a = b.add("exp", x)
    s = b.add("sin", a)
    t = b.add("cos", x)
    y = b.add("neg", a)
    graph = canonical(b.build([s, b.add("mul", b.add("tanh", t), y)]))
    number = {node.op: n for n, node in enumerate(graph.nodes)}

    def group(ops: str, outputs: str) -> FusionGroup:
        nodes = tuple(sorted(number[op] for op in ops.split()))
        return FusionGroup(
            nodes, tuple(Value(n) for n in sorted(number[o] for o in outputs.split()))
        )

    groups = (group("exp", "exp"), group("sin", "sin"), group("cos", "cos"),
              group("exp neg", "exp neg"), group("tanh mul", "mul"))  # fmt: skip
    launches = (LaunchConfig(),) * len(groups)
    candidate = Candidate(FusionPlan(groups), launches, ((),) * len(groups))
    assert not failures([Case(graph, candidate, "written twice")])
