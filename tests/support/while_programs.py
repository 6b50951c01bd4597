"""Small programs with loops that end by what they compute, and with branches."""

from __future__ import annotations

import random
from collections.abc import Sequence

from autofuse.graph.canonical import canonical
from autofuse.graph.composites.layers import dot
from autofuse.graph.loops import BranchWriter, LoopWriter, WhileWriter
from autofuse.graph.types import Graph, Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.control import MAX_TRIP
from autofuse.ops.dtypes import DType

F32, I32 = DType.F32, DType.I32


def halved(length: int = 100, *, alone: bool = False, most: int = MAX_TRIP) -> Graph:
    """x halves and moves by y / 100 while it is above 1: anywhere, or (`alone`) each by itself.
    Gives x and how often it was halved."""
    w = GraphWriter()
    x, y = w.input("x", (length,), F32, low=0.0, high=50.0), w.input("y", (length,), F32)

    def more(w: GraphWriter, x: Value) -> Value:
        above = w.map("gt", x, 1.0)
        return above if alone else w.reduce("reduce_any", above)

    loop = WhileWriter(w, more(w, x), most)
    state, count = loop.state(x), loop.state(w.full(0, (length,), I32))
    b = loop.body
    new = b.add(b.mul(state, 0.5), b.mul(loop.capture(y), 0.01))
    return canonical(w.build(loop.end(more(b, new), [new, b.add(count, 1)])))


def vmapped(length: int = 100) -> Graph:
    """`halved` with places that end alone, as JAX batches it: any(..) and selects."""
    w = GraphWriter()
    x, y = w.input("x", (length,), F32, low=0.0, high=50.0), w.input("y", (length,), F32)
    loop = WhileWriter(w, w.reduce("reduce_any", w.map("gt", x, 1.0)))
    state, count = loop.state(x), loop.state(w.full(0, (length,), I32))
    b = loop.body
    going = b.map("gt", state, 1.0)
    new = b.add(b.mul(state, 0.5), b.mul(loop.capture(y), 0.01))
    state, count = b.select(going, new, state), b.select(going, b.add(count, 1), count)
    go = b.reduce("reduce_any", b.map("gt", state, 1.0))
    return canonical(w.build(loop.end(go, [state, count])))


def counted(most: int = MAX_TRIP) -> Graph:
    """x = x * 0.5 + t for t = 0 .. n - 1, with n an input: a fori_loop with a traced bound."""
    w = GraphWriter()
    x, n = w.input("x", (6, 5), F32), w.input("n", (), I32, low=0, high=7)
    loop = WhileWriter(w, w.map("lt", w.constant(0, I32), n), most)
    state = loop.state(x)
    b = loop.body
    new = b.add(b.mul(state, 0.5), b.cast(loop.step, F32))
    return canonical(w.build(loop.end(b.map("lt", b.add(loop.step, 1), loop.capture(n)), [new])))


def branched(size: int = 16) -> Graph:
    """A product with one of two matrices, whichever p says."""
    w = GraphWriter()
    p, x = w.input("p", (), DType.BOOL), w.input("x", (size, size), F32)
    a, b = (w.input(name, (size, size), F32) for name in "ab")
    found = w.full(0, (size, size), F32)
    for taken, matrix in ((p, a), (w.map("not", p), b)):
        branch = BranchWriter(w, taken, [found])
        operands = branch.capture(x), branch.capture(matrix)
        (found,) = branch.results([dot(branch.body, *operands, ((1,), (0,)))])
    return canonical(w.build([w.add(found, x)]))


def nested() -> Graph:
    """Each of three steps of a counted loop halves until all are below its threshold."""
    w = GraphWriter()
    x = w.input("x", (24,), F32, low=0.0, high=50.0)
    outer = LoopWriter(w, 3)
    state = outer.state(x)
    b = outer.body
    limit = b.sub(8.0, b.mul(b.cast(outer.step, F32), 3.0))
    inner = WhileWriter(b, b.reduce("reduce_any", b.map("gt", state, limit)))
    value = inner.state(state)
    new = inner.body.mul(value, 0.5)
    above = inner.body.map("gt", new, inner.capture(limit))
    (last,) = inner.end(inner.body.reduce("reduce_any", above), [new])
    return canonical(w.build(outer.finish([last], [b.reduce("reduce_sum", last)])))


def random_batch(seed: int) -> Graph:
    """Some states that change by random ops where a random condition on them holds, as long as it
    holds anywhere and for some trips at most."""
    rng, w = random.Random(seed), GraphWriter()
    shape = rng.choice([(7,), (3, 5)])
    begin = [w.input(f"x{k}", shape, F32) for k in range(rng.randint(1, 3))]
    limit = w.input("limit", shape, F32)
    plan = [rng.random() for _ in range(32)]

    def holds(w: GraphWriter, states: Sequence[Value], limit: Value) -> Value:
        one = w.map("lt", states[0], limit) if plan[0] < 0.5 else w.map("gt", states[-1], limit)
        return w.map("and", one, w.map("lt", w.map("abs", states[0]), 4.0))

    loop = WhileWriter(w, w.reduce("reduce_any", holds(w, begin, limit)))
    states, b = [loop.state(x) for x in begin], loop.body
    inside = loop.capture(limit)
    going = holds(b, states, inside)
    news = [b.select(going, _grown(b, states, inside, rng), s) for s in states]
    again = b.reduce("reduce_any", holds(b, news, inside))
    most = rng.randint(1, 9)
    return canonical(w.build(loop.end(b.map("and", again, b.map("lt", loop.step, most)), news)))


def _grown(b: GraphWriter, states: Sequence[Value], limit: Value, rng: random.Random) -> Value:
    """A random expression of the states, rarely far from them."""
    found = rng.choice(states)
    for _ in range(rng.randint(1, 4)):
        op = rng.choice(["add", "sub", "mul", "max", "min"])
        found = b.map(op, found, b.mul(rng.choice([*states, limit]), 0.5))
    return b.add(found, 0.25)
