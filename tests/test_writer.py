"""The graph writer: what it folds, merges, broadcasts, leaves out and refuses; loops."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autofuse.graph import Graph, GraphWriter, LoopWriter, Value, evaluate
from autofuse.graph.canonical import digest
from autofuse.graph.known import FOLD_SIZE
from autofuse.ops import DType, GraphError

F32, F64, I32 = DType.F32, DType.F64, DType.I32
RNG = np.random.default_rng(0)


def computed(graph: Graph) -> list[str]:
    return [node.op for node in graph.nodes if node.op not in ("input", "constant")]


def test_equal_ops_are_one_node() -> None:
    w = GraphWriter()
    x = w.input("x", (3,), F32)
    assert w.map("exp", x) == w.map("exp", x)
    assert w.constant(2.0, F32) == w.constant(2.0, F32)
    assert computed(w.build([w.add(w.map("exp", x), w.map("exp", x))])) == ["exp", "add"]


def test_ops_of_small_constants_are_computed_at_once() -> None:
    w = GraphWriter()
    x = w.input("x", (), F64)
    three = w.add(w.constant(1.0, F64), 2.0)
    assert w.known(three) == 3.0
    ends = w.op("slice", w.constant(np.arange(6.0)), start=(4,), stop=(6,), stride=(1,))
    assert w.known(ends) is not None and computed(w.build([w.add(x, three), ends])) == ["add"]
    large = w.constant(np.arange(FOLD_SIZE + 1.0))
    assert w.known(large) is None and w.known(w.mul(large, large)) is None


def test_folding_rounds_once_to_the_dtype() -> None:
    w = GraphWriter()
    third = w.div(w.constant(1.0, F32), 3.0)
    assert w.known(third) == np.float32(1 / 3)
    assert w.known(w.div(third, 0.0)) == np.inf


def test_constants_of_one_element_are_broadcast() -> None:
    w = GraphWriter()
    x = w.input("x", (2, 3), F32)
    ones = w.constant(np.ones((2, 1), np.float32))
    graph = w.build([w.mul(x, ones)])
    assert computed(graph) == ["broadcast", "mul"]
    assert [n.types[0].shape for n in graph.nodes if n.op == "constant"] == [()]


def test_numbers_must_fit_their_dtype() -> None:
    w = GraphWriter()
    with pytest.raises(GraphError, match="300 does not fit in i8"):
        w.constant(300, DType.I8)
    with pytest.raises(GraphError, match="not a whole number"):
        w.add(w.input("n", (3,), I32), 0.5)
    with pytest.raises(GraphError, match="numbers only"):
        w.map("add", 1.0, 2.0)


@pytest.mark.parametrize(
    ("source", "target"),
    [((), (2, 3)), ((3,), (2, 3)), ((1,), (4,)), ((2, 1), (2, 3)), ((1, 3, 1), (4, 2, 3, 5)),
     ((2, 3), (2, 3)), ((1, 1), (1, 1, 4)), ((5,), (1, 5)), ((), (1, 1))],
)  # fmt: skip
def test_spread_is_broadcast_to(source: tuple[int, ...], target: tuple[int, ...]) -> None:
    x, w = RNG.normal(size=source), GraphWriter()
    graph = w.build([w.spread(w.input("x", source, F64), target)])
    np.testing.assert_array_equal(evaluate(graph, [x])[0], np.broadcast_to(x, target))


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3, 1), (6,), (3, -1)])
def test_reshapes_of_a_filled_array_stay_one_broadcast(shape: tuple[int, ...]) -> None:
    w = GraphWriter()
    full = w.spread(w.input("x", (), F64), (3, 2))
    graph = w.build([w.reshape(full, shape)])
    assert computed(graph) == ["broadcast"]
    np.testing.assert_array_equal(
        evaluate(graph, [np.float64(7)])[0], np.full((3, 2), 7.0).reshape(shape)
    )


def test_a_filled_array_is_spread_from_its_element() -> None:
    w = GraphWriter()
    full = w.full(7.0, (3, 1), F64)
    graph = w.build([w.spread(full, (2, 3, 4))])
    assert computed(graph) == ["broadcast"]
    np.testing.assert_array_equal(evaluate(graph, [])[0], np.full((2, 3, 4), 7.0))


def test_moves_that_change_nothing_are_not_written() -> None:
    w = GraphWriter()
    x = w.input("x", (2, 3), F32)
    flat = w.reshape(x, (6,))
    assert w.reshape(flat, (2, 3)) == x and w.reshape(flat, (3, -1)) == w.reshape(x, (3, 2))
    assert w.transpose(x, (0, 1)) == x and w.cast(x, F32) == x and w.bitcast(x, F32) == x
    assert w.slice(x, (0, 0), (2, 3)) == x and w.part(x, 1, 0, 3) == x
    assert w.concat([x, w.part(x, 0, 0, 0)], 0) == x and w.reverse(x, ()) == x
    assert w.reduce("reduce_sum", x, ()) == x


def test_kept_axes_are_left_out_while_computing() -> None:
    w = GraphWriter()
    x = w.input("x", (4, 5), F64)
    total = w.reduce("reduce_sum", x, -1, keepdims=True)
    halves = w.mul(w.add(total, 1.0), 0.5)
    assert w.shape(halves) == (4, 1)
    graph = w.build([w.sub(x, halves)])
    assert "reshape" not in computed(graph)
    data = RNG.normal(size=(4, 5))
    wanted = data - (data.sum(-1, keepdims=True) + 1) * 0.5
    np.testing.assert_allclose(evaluate(graph, [data])[0], wanted)


def test_a_known_condition_chooses() -> None:
    w = GraphWriter()
    x, y = w.input("x", (3,), F32), w.input("y", (3,), F32)
    assert w.select(w.constant(True, DType.BOOL), x, y) == x
    assert w.select(w.constant(False, DType.BOOL), x, y) == y
    maybe = w.input("c", (3,), DType.BOOL)
    assert w.select(maybe, x, x) == x
    wide = w.select(w.input("d", (2, 3), DType.BOOL), x, x)
    assert w.shape(wide) == (2, 3)


def test_bounds_decide_comparisons_and_go_through_sums() -> None:
    w = GraphWriter()
    i = w.input("i", (), I32)
    w.bound(i, 0, 9)
    later = w.cast(w.add(w.sub(10, i), 5), DType.I64)
    assert w.span(later) == (6, 15)
    assert w.known(w.map("lt", later, 16)) == np.True_
    assert w.known(w.map("ge", later, 16)) == np.False_
    assert w.known(w.map("lt", later, 15)) is None
    assert w.span(w.add(i, w.input("j", (), I32))) is None
    assert w.span(w.add(i, np.iinfo(np.int32).max)) is None


BAD: list[tuple[Callable[[GraphWriter, Value], object], str]] = [
    (lambda w, x: w.spread(x, (2, 4)), r"shape \[2, 3\] does not broadcast to \[2, 4\]"),
    (lambda w, x: w.spread(x, (3,)), r"does not broadcast to \[3\]"),
    (lambda w, x: w.add(x, w.input("y", (4,), F32)), "do not broadcast"),
    (lambda w, x: w.reshape(x, (7,)), "reshape"),
    (lambda w, x: w.reduce("reduce_sum", x, 2), "axis 2 is out of range"),
    (lambda w, x: w.reverse(x, (0, -2)), "repeat"),
    (lambda w, x: w.op("nothing", x), "unknown op 'nothing'"),
    (lambda w, x: w.op("threefry2x32", *[w.input(n, (), DType.U32) for n in "abcd"]), "2 outputs"),
    (lambda w, x: LoopWriter(w, 0), "at least once"),
    (lambda w, x: LoopWriter(w, 2).finish([x]), "0 states, not 1"),
]


@pytest.mark.parametrize(("act", "message"), BAD)
def test_what_does_not_fit_is_refused(
    act: Callable[[GraphWriter, Value], object], message: str
) -> None:
    w = GraphWriter()
    with pytest.raises(GraphError, match=message):
        act(w, w.input("x", (2, 3), F32))


def test_a_loop_captures_constants_anew_and_values_once() -> None:
    w = GraphWriter()
    x, y = w.input("x", (3,), F64), w.input("y", (3,), F64)
    two = w.constant(2.0, F64)
    loop = LoopWriter(w, 4)
    state, body = loop.state(x), loop.body
    assert loop.capture(y) == loop.capture(y) and body.known(loop.capture(two)) == 2.0
    step = body.cast(loop.step, F64)
    new = body.add(body.mul(state, loop.capture(two)), body.add(loop.capture(y), step))
    last, rows = loop.finish([new], [body.reduce("reduce_sum", new)])
    graph = w.build([last, rows])
    assert [n.op for n in graph.nodes] == ["input", "input", "loop"]
    a, b = RNG.normal(size=3), RNG.normal(size=3)
    found, sums = evaluate(graph, [a, b])
    wanted = []
    for i in range(4):
        a = a * 2 + b + i
        wanted.append(a.sum())
    np.testing.assert_allclose(found, a)
    np.testing.assert_allclose(sums, wanted)
    assert loop.body.span(loop.step) == (0, 3)


def test_states_come_before_what_is_captured() -> None:
    w = GraphWriter()
    x = w.input("x", (3,), F64)
    loop = LoopWriter(w, 2)
    loop.capture(x)
    with pytest.raises(GraphError, match="names its states before"):
        loop.state(x)


def test_the_order_of_writing_does_not_change_the_digest() -> None:
    def graph(swap: bool) -> Graph:
        w = GraphWriter()
        x = w.input("x", (3,), F32)
        parts = [lambda: w.map("exp", x), lambda: w.map("sin", x)]
        made = [part() for part in (reversed(parts) if swap else parts)]
        first, second = reversed(made) if swap else made
        return w.build([w.add(first, second)])

    assert digest(graph(False)) == digest(graph(True))
