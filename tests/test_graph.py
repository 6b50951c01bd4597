"""Building, verifying, canonical form, digests, groups as graphs, and the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import spec, trace, xp
from autofuse.graph import (
    Graph,
    GraphBuilder,
    Noise,
    Value,
    canonical,
    digest,
    evaluate,
    group_digest,
    random_inputs,
    subgraph,
    text,
    verify,
)
from autofuse.ops import DType, GraphError, TensorType
from autofuse.ops.types import Literal

F32 = DType.F32


def diamond() -> Graph:
    """exp(x) * 2 + exp(x) * y with both factors dead-ended twice over."""
    b = GraphBuilder()
    x, y = b.input("x", (3, 4), F32), b.input("y", (3, 4), F32)
    e = b.add("exp", x)
    left = b.add("mul", e, b.constant(2.0, F32, (3, 4)))
    b.add("sin", left)
    right = b.add("mul", b.add("exp", x), y)
    return b.build([b.add("add", left, right)], ["z"])


def counted() -> Graph:
    """Five steps of state = state * gain + step, keeping every state."""
    inner = GraphBuilder()
    step = inner.input("t", (), DType.I32)
    state, gain = inner.input("s", (3,), F32), inner.input("g", (3,), F32)
    moved = inner.add("mul", state, gain)
    ticks = inner.add("broadcast", inner.add("cast", step, dtype="f32"), shape=(3,), dims=())
    new = inner.add("add", moved, ticks)
    body = inner.build([new, new])
    b = GraphBuilder()
    s, g = b.input("s", (3,), F32), b.input("g", (3,), F32)
    last, history = b.add_multi("loop", s, g, body=body, trip=5, carries=1)
    return b.build([last, history])


def test_errors_name_the_node_and_the_op() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (2,), F32), b.input("y", (3,), F32)
    with pytest.raises(GraphError) as caught:
        b.add("add", x, y, name="probs")
    assert str(caught.value) == "node 2 'probs' (add): operand shapes f32[2] and f32[3] differ"
    with pytest.raises(GraphError, match=r"node 2 \(frob\): unknown op 'frob'"):
        b.add("frob", x)
    with pytest.raises(GraphError, match="reads %9, which is not a node before it"):
        b.add("exp", Value(9))
    with pytest.raises(GraphError, match=r"reads %0\.1"):
        b.add("exp", Value(0, 1))
    with pytest.raises(GraphError, match="input 'x' is declared twice"):
        b.input("x", (2,), F32)
    with pytest.raises(GraphError, match="no outputs"):
        b.build([])
    with pytest.raises(GraphError, match="output names repeat"):
        b.build([x, x], ["a", "a"])
    with pytest.raises(GraphError, match="2 output names for 1 outputs"):
        b.build([x], ["a", "b"])


def test_a_refused_op_leaves_the_builder_usable() -> None:
    b = GraphBuilder()
    x = b.input("x", (2,), F32)
    with pytest.raises(GraphError):
        b.add("not", x)
    assert len(b.build([b.add("exp", x)]).nodes) == 2


def test_constants() -> None:
    b = GraphBuilder()
    assert b.constant(2, F32) == b.constant(2.0, F32)
    assert b.constant(2.0, F32) != b.constant(2, DType.I32)
    assert b.type_of(b.constant(1.0, F32, (2, 3))) == TensorType((2, 3), F32)
    assert b.type_of(b.constant(np.arange(6).reshape(2, 3), F32)) == TensorType((2, 3), F32)
    with pytest.raises(GraphError, match="does not fit in u8"):
        b.constant(256, DType.U8)
    with pytest.raises(GraphError, match="not a whole number"):
        b.constant(0.5, DType.I32)
    with pytest.raises(GraphError, match="does not have shape"):
        b.constant(np.arange(6), F32, (4,))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g: replace(g, nodes=g.nodes[::-1]), "is not a node before it"),
        (lambda g: replace(g, outputs=(Value(99),)), "output 0 reads %99"),
        (lambda g: replace(g, outputs=()), "no outputs"),
        (lambda g: replace(g, inputs=(1,)), "inputs are listed"),
        (lambda g: replace(g, inputs=(1, 0)), "has position 1, but is listed at 0"),
        (
            lambda g: replace(
                g,
                nodes=(*g.nodes[:2], replace(g.nodes[2], types=(TensorType((), F32),)),
                       *g.nodes[3:]),
            ),
            r"node 2 \(exp\) is declared f32\[\], but computes f32\[3,4\]",
        ),
    ],
)  # fmt: skip
def test_verify_refuses_damaged_graphs(damage: Callable[[Graph], Graph], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        verify(damage(diamond()))


def test_verify_looks_into_loop_bodies() -> None:
    g = counted()
    (at,) = (i for i, n in enumerate(g.nodes) if n.op == "loop")
    attrs = dict(g[at].attrs)
    body = attrs["body"]
    broken = replace(body.nodes[3], types=(TensorType((9,), F32),))
    attrs["body"] = replace(body, nodes=(*body.nodes[:3], broken, *body.nodes[4:]))
    node = replace(g[at], attrs=tuple(attrs.items()))
    with pytest.raises(GraphError, match=r"node 2 \(loop\), loop body: node 3 \(mul\) is declared"):
        verify(replace(g, nodes=(*g.nodes[:at], node)))


def test_canonical_merges_drops_and_orders() -> None:
    g = canonical(diamond())
    assert " ".join(n.op for n in g.nodes) == "input input exp constant broadcast mul mul add"
    assert g.output_names == ("z",) and g.input_names == ("x", "y")
    assert canonical(g) == g
    verify(g)


def shuffled(graph: Graph, seed: int) -> Graph:
    """The same graph with its nodes in another topological order and without names."""
    rng = random.Random(seed)
    order: list[int] = []
    waiting = list(range(len(graph.nodes)))
    while waiting:
        ready = [i for i in waiting if all(v.node in order for v in graph[i].inputs)]
        order.append(rng.choice(ready))
        waiting.remove(order[-1])
    where = {old: new for new, old in enumerate(order)}

    def moved(v: Value) -> Value:
        return Value(where[v.node], v.index)

    nodes = tuple(
        replace(graph[i], inputs=tuple(map(moved, graph[i].inputs)), name="") for i in order
    )
    inputs = tuple(where[i] for i in graph.inputs)
    return Graph(nodes, inputs, tuple(map(moved, graph.outputs)))


@st.composite
def dags(draw: st.DrawFn) -> Graph:
    b = GraphBuilder()
    values = [b.input(f"x{i}", (2, 3), F32) for i in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(["add", "mul", "sub", "exp", "tanh"]))
        count = 1 if op in ("exp", "tanh") else 2
        values.append(b.add(op, *(draw(st.sampled_from(values)) for _ in range(count))))
    return b.build(draw(st.lists(st.sampled_from(values), min_size=1, max_size=3)))


@settings(max_examples=60, deadline=None)
@given(dags(), st.integers(0, 99))
def test_digest_ignores_order_and_names(graph: Graph, seed: int) -> None:
    other = verify(shuffled(graph, seed))
    assert digest(other) == digest(graph)
    assert canonical(other) == canonical(graph)
    assert canonical(canonical(graph)) == canonical(graph)
    inputs = random_inputs(graph, seed)
    for a, b in zip(evaluate(graph, inputs), evaluate(canonical(graph), inputs), strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=120, deadline=None)
@given(dags(), st.integers(0, 99))
def test_group_digest_ignores_numbering(graph: Graph, seed: int) -> None:
    rng = random.Random(seed)
    inner = [i for i, n in enumerate(graph.nodes) if n.op != "input"]
    chosen = sorted(rng.sample(inner, rng.randint(1, len(inner))))
    outputs = [Value(i) for i in chosen]
    tagged = replace(graph, outputs=tuple(outputs))
    other = shuffled(tagged, seed)
    moved = [v.node for v in other.outputs]
    assert group_digest(graph, chosen, outputs) == group_digest(other, moved, sorted(other.outputs))
    marks = {group_digest(graph, [i], [Value(i)]) for i in chosen}
    assert {group_digest(other, [i], [Value(i)]) for i in moved} == marks


def test_digest_tells_graphs_apart() -> None:
    def build(op: str, value: float, axis: int) -> str:
        b = GraphBuilder()
        x = b.input("x", (3, 3), F32)
        y = b.add(op, x, b.constant(value, F32, (3, 3)))
        return digest(b.build([b.add("reduce_sum", y, axes=(axis,))]))

    base = build("add", 1.0, 0)
    assert base == build("add", 1.0, 0) and len(base) == 32
    found = {base, build("sub", 1.0, 0), build("add", 2.0, 0), build("add", 1.0, 1),
             build("add", 0.0, 0), build("add", -0.0, 0)}  # fmt: skip
    assert len(found) == 6


def test_text_shows_loop_bodies_and_hides_names() -> None:
    lines = text(counted()).splitlines()
    assert lines[2] == "%2 = loop(%0, %1) {carries=1, trip=5} : f32[3], f32[5,3]"
    assert lines[3:5] == ["  body:", "    %0 = input() {dtype='i32', position=0, shape=[]} : i32[]"]
    assert lines[-1] == "return %2, %2.1"


def test_long_chains_do_not_overflow() -> None:
    b = GraphBuilder()
    v = b.input("x", (2,), F32)
    for _ in range(5_000):
        v = b.add("neg", v)
    g = b.build([v])
    assert canonical(g) == g
    assert len(digest(g)) == 32 and len(group_digest(g, range(1, 5_001), [v])) == 32
    assert evaluate(g, [np.ones(2, np.float32)])[0].tolist() == [1.0, 1.0]


def test_subgraph_copies_constants_and_names_what_it_reads() -> None:
    g = canonical(diamond())
    sub, reads = subgraph(g, [5, 4, 7], [Value(7)])
    assert [n.op for n in sub.nodes] == ["input", "input", "constant", "broadcast", "mul", "add"]
    assert reads == (Value(2), Value(6))
    verify(sub)
    x, y = random_inputs(g, 0)
    exp = np.exp(x.astype(np.float64))
    outer = evaluate(replace(g, outputs=(*g.outputs, *reads)), [x, y])
    (inner,) = evaluate(sub, outer[1:])
    np.testing.assert_allclose(inner, 2 * exp + exp * y, rtol=1e-6)


def test_what_test_values_are_drawn_from_is_no_part_of_a_digest() -> None:
    def build(constant: bool = False, **ranges: float) -> str:
        b = GraphBuilder()
        x = b.input("x", (4,), F32, constant=constant, **ranges)
        return digest(b.build([b.add("exp", x)]))

    assert build() == build(low=0.25) == build(low=-3.5, high=2.0)
    assert build() != build(constant=True)


def test_equal_groups_in_different_places_share_a_digest() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (4,), F32), b.input("y", (4,), F32)
    first = [b.add("mul", x, y), b.add("exp", x)]
    second = [b.add("exp", first[0]), b.add("mul", first[0], first[1])]
    g = b.build([*first, *second])
    a = group_digest(g, [v.node for v in first], first)
    assert a == group_digest(g, [v.node for v in second], second)
    assert a != group_digest(g, [first[0].node], first[:1])
    assert a != group_digest(g, [first[0].node, second[0].node], [first[0], second[0]])


def test_evaluate_promotes_declared_dtypes_and_checks_inputs() -> None:
    b = GraphBuilder()
    x = b.input("x", (2,), DType.F16)
    g = b.build([b.add("add", x, x), b.add("cast", x, dtype="i32")])
    total, whole = evaluate(g, [np.array([0.1, 2.7])])
    assert total.dtype == np.float64 and whole.dtype == np.int32
    assert total[0] == 2 * float(np.float16(0.1)) and whole.tolist() == [0, 2]
    with pytest.raises(GraphError, match=r"input 'x' is f16\[2\], got shape \[3\]"):
        evaluate(g, [np.zeros(3)])
    with pytest.raises(GraphError, match="takes 1 inputs, got 0"):
        evaluate(g, [])


def test_evaluate_runs_loops() -> None:
    g = counted()
    s, k = np.array([1.0, 2.0, 3.0]), np.array([0.5, 1.0, 2.0])
    last, history = evaluate(g, [s, k])
    for t in range(5):
        s = s * k + t
        np.testing.assert_allclose(history[t], s)
    np.testing.assert_allclose(last, s)


def test_noise_shows_cancellation_and_spares_exact_ops() -> None:
    b = GraphBuilder()
    x = b.input("x", (64,), F32, low=1.0, high=2.0)
    shifted = b.add("add", x, b.constant(1e4, F32, (64,)))
    lost = b.add("sub", shifted, b.constant(1e4, F32, (64,)))
    g = b.build([lost, b.add("exp", x), b.add("floor", x)])
    inputs = random_inputs(g, 3)
    assert all(v.min() >= 1.0 and v.max() <= 2.0 for v in inputs)
    plain, noisy = evaluate(g, inputs), evaluate(g, inputs, Noise(1))
    errors = [np.abs(n - p).max() for p, n in zip(plain, noisy, strict=True)]
    assert errors[0] > 1e-4 and 0 < errors[1] < 1e-5 and errors[2] == 0
    again = evaluate(g, inputs, Noise(1))
    assert all(np.array_equal(a, n) for a, n in zip(again, noisy, strict=True))


def test_random_inputs_have_the_declared_types() -> None:
    b = GraphBuilder()
    for dtype in DType:
        b.input(str(dtype), (40,), dtype)
    index = b.input("index", (40,), DType.I32, low=2, high=5)
    g = b.build([index])
    made = random_inputs(g, 0)
    assert [m.dtype for m in made] == [t.dtype.numpy for t in g.input_types]
    assert set(made[-1].tolist()) == {2, 3, 4, 5}
    by_name = dict(zip(g.input_names, made, strict=True))
    assert by_name["u32"].max() > 2**31 and set(by_name["i8"].tolist()) == set(range(-4, 5))
    assert all(np.array_equal(a, b) for a, b in zip(made, random_inputs(g, 0), strict=True))
    assert not np.array_equal(made[0], random_inputs(g, 1)[0])


def test_literals_are_compared_by_bits() -> None:
    b = GraphBuilder()
    array = np.arange(4.0)
    first, second = b.constant(array, F32), b.constant(array, F32)
    g = canonical(b.build([b.add("add", first, second)]))
    assert [n.op for n in g.nodes] == ["constant", "add"]
    assert "sha256:" in text(g)
    assert Literal.of(np.asarray(0.0), F32) != Literal.of(np.asarray(-0.0), F32)


def test_equal_canonical_graphs_are_one_object() -> None:
    """Graphs key caches, which compare what is not the same object node by node."""

    def program(x: Any) -> Any:
        def step(k: Any, state: Any) -> Any:
            return xp.tanh(state) + 1.0

        return xp.fori_loop(3, step, xp.fori_loop(3, step, x) * 2.0)

    found = canonical(trace(program, spec((4,))))
    again = canonical(trace(program, spec((4,))))
    bodies = [v for node in found.nodes for _, v in node.attrs if isinstance(v, Graph)]
    assert found is again and len(bodies) == 2 and bodies[0] is bodies[1]


def test_equal_graphs_keep_their_own_names() -> None:
    graph = trace(lambda x: {"y": x + 1.0}, spec((4,)))
    other = replace(
        graph, nodes=tuple(replace(n, name="z") if n.op == "input" else n for n in graph.nodes)
    )
    assert canonical(graph) == canonical(other)
    assert canonical(other)[0].name == "z" != canonical(graph)[0].name
