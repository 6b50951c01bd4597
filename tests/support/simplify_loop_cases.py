"""As simplify_cases, of counted loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.graph.types import Graph, Value
from tests.support.simplify_cases import Case, Writer, types_of


def body_of(inputs: str, write: Callable[..., Any]) -> Graph:
    """A loop's body: `write` takes a Writer, the counter, and the inputs."""
    w = Writer()
    values = [w.builder.input("", t.shape, t.dtype) for t in types_of(f"i32[] {inputs}")]
    made = write(w, *values)
    return w.builder.build((made,) if isinstance(made, Value) else made)


def loop(
    w: Writer, inputs: str, write: Callable[..., Any], *operands: Value, trip: int, carries: int
) -> tuple[Value, ...]:
    return w.many("loop", *operands, body=body_of(inputs, write), trip=trip, carries=carries)


def _row(w: Writer, value: Value) -> Value:
    return w.broadcast(value, shape=(4, 3), dims=(1,))


def _lanes(w: Writer, array: Value) -> tuple[Value, ...]:
    """The numbers of a row, or the columns of a matrix."""
    *rows, count = w.kind(array).shape
    axis = len(rows)
    return tuple(w.reshape(w.cut(array, axis, k, k + 1), shape=rows) for k in range(count))


def _side_by_side(w: Writer, values: Sequence[Value]) -> Value:
    shape = (*w.kind(values[0]).shape, 1)
    return w.concat(*(w.reshape(v, shape=shape) for v in values), axis=len(shape) - 1)


V, M = "f32[3]", "f32[4,3]"
EIGHT, NUMBERS = range(8), " ".join(["f32[]"] * 8)
LOOPS = [
    Case("loop-body", V,
         lambda w, x: loop(w, V, lambda b, i, s: b.mul(b.sin(s), 1.0), x, trip=3, carries=1),
         lambda w, x: loop(w, V, lambda b, i, s: b.sin(s), x, trip=3, carries=1)),
    Case("loop-body", V,  # the counter is below the trip count
         lambda w, x: loop(w, V, lambda b, i, s: b.select(
             b.broadcast(b.lt(i, 3), shape=(3,), dims=()), b.sin(s), b.cos(s)), x,
                          trip=3, carries=1),
         lambda w, x: loop(w, V, lambda b, i, s: b.sin(s), x, trip=3, carries=1)),
    Case("one-trip", V,
         lambda w, x: loop(w, V, lambda b, i, s: (b.sin(s), b.cos(s)), x, trip=1, carries=1),
         lambda w, x: (w.sin(x), w.reshape(w.cos(x), shape=(1, 3)))),
    Case("unused-state", f"{V} {V}",
         lambda w, x, y: loop(w, f"{V} {V}", lambda b, i, s, t: (b.sin(s), b.cos(t), b.exp(s)),
                              x, y, trip=3, carries=2)[0],
         lambda w, x, y: loop(w, V, lambda b, i, s: b.sin(s), x, trip=3, carries=1)),
    Case("unchanged-state", f"{V} {V}",
         lambda w, x, y: loop(w, f"{V} {V}",
         lambda b, i, s, t: (b.add(b.sin(s), t), t), x, y, trip=3,
                              carries=2),
         lambda w, x, y: (*loop(w, f"{V} {V}", lambda b, i, s, t: b.add(b.sin(s), t), x, y, trip=3,
                                carries=1), y)),
    Case("unchanged-state", V,
         lambda w, x: loop(w, f"{V} {V}",
         lambda b, i, s, t: (b.mul(b.sin(s), t), b.fill(2.0, 3)), x,
                           w.fill(2.0, 3), trip=3, carries=2)[0],
         lambda w, x: loop(w, V, lambda b, i, s: b.mul(b.sin(s), 2.0), x, trip=3, carries=1)),
    Case("settled-output", f"{V} {V}",
         lambda w, x, y: loop(w, f"{V} {V}", lambda b, i, s, t: (b.sin(s), t, i), x, y, trip=4,
                              carries=1),
         lambda w, x, y: (*loop(w, V, lambda b, i, s: b.sin(s), x, trip=4, carries=1),
                          w.broadcast(y, shape=(4, 3), dims=(1,)), w.at(4))),
    Case("constant-sunk", V,
         lambda w, x: loop(w, f"{V} f32[3]",
         lambda b, i, s, t: b.mul(b.sin(s), t), x, w.fill(3.0, 3),
                           trip=3, carries=1),
         lambda w, x: loop(w, V, lambda b, i, s: b.mul(b.sin(s), 3.0), x, trip=3, carries=1)),
    Case("invariant-hoisted", f"{V} {V}",
         lambda w, x, y: loop(w, f"{V} {V}", lambda b, i, s, t: b.add(b.sin(s), b.exp(t)), x, y,
                              trip=3, carries=1),
         lambda w, x, y: loop(w, f"{V} {V}", lambda b, i, s, t: b.add(b.sin(s), t), x, w.exp(y),
                              trip=3, carries=1)),
    Case("stacked-output", f"{V} {M}",
         lambda w, x, m: loop(w, f"{V} {M}", lambda b, i, s, t: (b.sin(s), b.select(
             b.eq(b.at(4, 3), b.broadcast(i, shape=(4, 3), dims=())), _row(b, s), t)), x, m, trip=4,
             carries=2)[1],
         lambda w, x, m: loop(w, V, lambda b, i, s: (b.sin(s), s), x, trip=4, carries=1)[1]),
    Case("stacked-output", f"{V} {M}",  # backwards, and only some of the places
         lambda w, x, m: loop(w, f"{V} {M}", lambda b, i, s, t: (b.sin(s), b.select(
             b.eq(b.at(4, 3), b.broadcast(b.sub(b.number(2, "i32"), i), shape=(4, 3), dims=())),
             _row(b, s), t)), x, m, trip=2, carries=2)[1],
         lambda w, x, m: w.concat(w.cut(m, 0, 0, 1), w.reverse(
             loop(w, V, lambda b, i, s: (b.sin(s), s), x, trip=2, carries=1)[1], axes=(0,)),
             w.cut(m, 0, 3, 4), axis=0)),
    Case("alike-states", NUMBERS,
         lambda w, *x: loop(w, NUMBERS, lambda b, i, *s: [
             b.sin(b.add(s[(k + 1) % 8], s[k])) for k in EIGHT], *x, trip=3, carries=8),
         lambda w, *x: _lanes(w, loop(w, "f32[8]", lambda b, i, s: b.sin(b.add(
             b.concat(b.cut(s, 0, 1, 8), b.cut(s, 0, 0, 1), axis=0), s)), _side_by_side(w, x),
             trip=3, carries=1)[0])),
    Case("alike-states", f"{NUMBERS} {' '.join([V] * 8)} f32[]",  # tables, literals, rows, another
         lambda w, *x: loop(w, f"{NUMBERS} f32[] {' '.join([V] * 8)}", lambda b, i, *s: [
             *(b.add(b.mul(b.sin(s[k]), 1.5 + k), b.gather(s[9 + k], i, axis=0)) for k in EIGHT),
             b.mul(s[8], s[2]), *(b.exp(s[k]) for k in EIGHT)],
             *x[:8], x[16], *x[8:16], trip=3, carries=9),
         lambda w, *x: (lambda state, other, rows: (*_lanes(w, state), other, *_lanes(w, rows)))(
             *loop(w, "f32[8] f32[] f32[3,8]", lambda b, i, s, t, r: (
                 b.add(b.mul(b.sin(s), b.array([1.5 + k for k in EIGHT])), b.gather(r, i, axis=0)),
                 b.mul(t, b.reshape(b.cut(s, 0, 2, 3), shape=())), b.exp(s)),
                 _side_by_side(w, x[:8]), x[16], _side_by_side(w, x[8:16]), trip=3, carries=2))),
    Case("row-folded-outside", "f32[20] f32[5,20]",
         lambda w, x, m: loop(w, "f32[20] f32[5,20]", lambda b, i, s, t: (
             b.add(b.sin(s), b.gather(t, i, axis=0)), b.exp(b.mul(b.reduce_sum(s, axes=(0,)), 0.1)),
             b.cos(s)), x, m, trip=5, carries=1),
         lambda w, x, m: (lambda state, cosines, rows: (
             state, w.exp(w.mul(w.reduce_sum(rows, axes=(1,)), 0.1)), cosines))(
             *loop(w, "f32[20] f32[5,20]", lambda b, i, s, t: (
                 b.add(b.sin(s), b.gather(t, i, axis=0)), b.cos(s), s), x, m, trip=5, carries=1))),
]  # fmt: skip
