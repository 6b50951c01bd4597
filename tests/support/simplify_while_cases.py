"""As simplify_cases, of loops that end by what they compute, and of branches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.graph.types import Value
from autofuse.ops.control import MAX_TRIP
from tests.support.simplify_cases import Case, Writer
from tests.support.simplify_loop_cases import body_of


def until(
    w: Writer, inputs: str, write: Callable[..., Any], *operands: Value, carries: int,
    most: int = MAX_TRIP,
) -> tuple[Value, ...]:  # fmt: skip
    body = body_of(inputs, write)
    return w.many("while", *operands, body=body, carries=carries, max_trips=most)


def _no(b: Writer) -> Value:
    return b.number(False, "bool")


def _wide(b: Writer, flag: Value, n: int = 3) -> Value:
    return b.broadcast(flag, shape=(n,), dims=())


def _together(b: Writer, i: Value, go: Value, s: Value) -> tuple[Value, Value]:
    """Doubled where it is positive and below 8, as long as it is anywhere, 20 times at most."""
    new = b.select(_inside(b, s), b.add(s, s), s)
    return b.and_(b.reduce_any(_inside(b, new), axes=(0,)), b.lt(i, 19)), new


def _alone(b: Writer, i: Value, go: Value, s: Value) -> tuple[Value, Value]:
    new = b.add(s, s)
    return b.and_(_inside(b, new), _wide(b, b.lt(i, 19))), new


def _inside(b: Writer, s: Value) -> Value:
    return b.and_(b.gt(s, b.fill(0.0, 3)), b.lt(s, b.fill(8.0, 3)))


def _sine_twice(b: Writer, i: Value, go: Value, s: Value) -> tuple[Value, Value]:
    new = b.neg(b.sin(s))
    return b.gt(b.sin(new), b.fill(0.1, 3)), new


def _sine_once(b: Writer, i: Value, go: Value, s: Value, sine: Value) -> tuple[Value, ...]:
    new = b.neg(sine)
    later = b.sin(new)
    return b.gt(later, b.fill(0.1, 3)), new, later


P, V, S = "bool[]", "f32[3]", "bool[3]"
WHILES = [
    Case("never-begun", V,
         lambda w, x: until(w, f"{P} {V}", lambda b, i, p, s: (b.lt(i, 3), b.sin(s)),
                            _no(w), x, carries=2)[1],
         lambda w, x: x),
    Case("branch-taken", V,
         lambda w, x: until(w, f"{P} {V}", lambda b, i, p, s: (_no(b), b.cumsum(s, axis=0)),
                            w.number(True, "bool"), x, carries=2, most=1)[1],
         lambda w, x: w.cumsum(x, axis=0)),
    Case("branch-as-select", f"{P} {V}",
         lambda w, p, x: until(w, f"{P} {V}", lambda b, i, p, s: (_no(b), b.sin(s)),
                               p, x, carries=2, most=1)[1],
         lambda w, p, x: w.select(_wide(w, p), w.sin(x), x)),
    Case("counting-state", V,
         lambda w, x: until(w, f"{P} {V} i32[]",
                            lambda b, i, p, s, n: (b.lt(b.add(n, 1), 4), b.sin(s), b.add(n, 1)),
                            w.gt(w.reduce_sum(x, axes=(0,)), w.number(0.0)), x, w.number(0, "i32"),
                            carries=3)[1],
         lambda w, x: until(w, f"{P} {V}", lambda b, i, p, s: (b.lt(i, 3), b.sin(s)),
                            w.gt(w.reduce_sum(x, axes=(0,)), w.number(0.0)), x, carries=2)[1]),
    Case("own-ends", V,
         lambda w, x: until(w, f"{P} {V}", _together, w.reduce_any(_inside(w, x), axes=(0,)), x,
                            carries=2)[1],
         lambda w, x: until(w, f"{S} {V}", _alone,
                            w.and_(_wide(w, w.reduce_any(_inside(w, x), axes=(0,))),
                                   _inside(w, x)), x, carries=2)[1]),
    Case("recurring-value", V,
         lambda w, x: until(w, f"{S} {V}", _sine_twice, w.gt(w.sin(x), w.fill(0.1, 3)), x,
                            carries=2)[1],
         lambda w, x: until(w, f"{S} {V} {V}", _sine_once, w.gt(w.sin(x), w.fill(0.1, 3)), x,
                            w.sin(x), carries=3)[1]),
    Case("bool-regained", f"{P} {P}",
         lambda w, p, q: (w.ge(w.cast(p, dtype="i32"), 1), w.lt(w.cast(q, dtype="f32"), 0.5),
                          w.gt(w.cast(q, dtype="i32"), 1)),
         lambda w, p, q: (p, w.not_(q), _no(w))),
]  # fmt: skip
