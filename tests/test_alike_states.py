"""Numbers that a loop computes alike become lanes: random loops compute the same as before."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.simplify import simplify
from tests.support.seeds import examples

TRIP = 4


def lane(
    b: GraphBuilder, own: list[Value], k: int, form: list[tuple[str, int]], odd: bool
) -> Value:
    """One number's next value: operations of `form` with neighbours at these distances; a lane that
    is `odd` has another one first."""
    found = b.add("cos", own[k]) if odd else own[k]
    for op, away in form:
        if op in ("sin", "abs"):
            found = b.add(op, found)
        elif op == "literal":
            found = b.add("mul", found, b.constant(0.5 + 0.01 * k * away, DType.F32))
        else:
            found = b.add(op, found, own[(k + away) % len(own)])
    return b.add("tanh", found)


def random_loop(seed: int) -> Graph:
    """Lanes of one form or two, with rows of some of them, a table each, and what is shared."""
    draw = random.Random(seed)
    count = draw.randint(6, 20)
    ops = ("sin", "abs", "literal", "add", "mul", "sub")
    forms = [[(draw.choice(ops), draw.randint(-3, 3)) for _ in range(4)] for _ in range(2)]
    body = GraphBuilder()
    step = body.input("", (), DType.I32)
    own = [body.input("", (), DType.F32) for _ in range(count)]
    tables = [body.input("", (TRIP,), DType.F32) for _ in range(count)]
    shared = body.add("gather", tables[0], step, axis=0)
    news = []
    for k in range(count):
        odd, which = draw.random() < 0.15, int(draw.random() < 0.2)
        new = lane(body, own, k, forms[which], odd)
        new = body.add("add", new, shared if draw.random() < 0.2 else
                       body.add("gather", tables[k], step, axis=0))  # fmt: skip
        news.append(new)
    rows = [body.add("exp", v) for v in draw.sample(news, draw.randint(0, count))]
    rows += draw.sample(news, draw.randint(0, 3))
    graph = GraphBuilder()
    init = [graph.input(f"x{k}", (), DType.F32) for k in range(count)]
    outer = [graph.input(f"t{k}", (TRIP,), DType.F32) for k in range(count)]
    made = body.build([*news, *rows])
    results = graph.add_multi("loop", *init, *outer, body=made, trip=TRIP, carries=count)
    return graph.build(results)


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6))
def test_random_loops_compute_the_same(seed: int) -> None:
    graph = random_loop(seed)
    found = simplify(graph)
    inputs = random_inputs(graph, seed)
    for ours, theirs in zip(evaluate(found.graph, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_rule_is_used() -> None:
    rules = [{step.rule for step in simplify(random_loop(seed)).steps} for seed in range(40)]
    assert sum("alike-states" in used for used in rules) > 20
