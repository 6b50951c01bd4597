"""As simplify_cases, of counted loops."""

from __future__ import annotations

from collections.abc import Callable
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


V, M = "f32[3]", "f32[4,3]"
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
]  # fmt: skip
