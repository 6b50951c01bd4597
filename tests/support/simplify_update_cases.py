"""As simplify_cases, of windows at computed places and of loops that write them."""

from __future__ import annotations

from typing import Any

from autofuse.graph.types import Value
from tests.support.simplify_cases import Case, Writer
from tests.support.simplify_loop_cases import loop

A, PLACE = "f32[5,3]", "i32[]"
ROW = "f32[1,3]"


def window(w: Writer, x: Value, *starts: Value, sizes: tuple[int, ...], axes: Any = (0,)) -> Value:
    return w.dynamic_slice(x, *starts, axes=axes, sizes=sizes)


def update(w: Writer, x: Value, new: Value, *starts: Value, axes: Any = (0,)) -> Value:
    return w.dynamic_update_slice(x, new, *starts, axes=axes)


def _recurrence(b: Writer, i: Value, s: Value, x: Value) -> Value:
    """s[i + 1] = x[i + 1] - tanh(s[i])"""
    at = b.add(i, 1)
    before, own = b.gather(s, i, axis=0), b.gather(x, at, axis=0)
    row = b.sub(own, b.tanh(before))
    return update(b, s, b.reshape(row, shape=(1, 3)), at)


def _carried(b: Writer, i: Value, before: Value, x: Value) -> tuple[Value, Value]:
    row = b.sub(b.gather(x, b.add(i, 1), axis=0), b.tanh(before))
    return row, row


def _first(w: Writer, x: Value) -> Value:
    return w.reshape(w.cut(x, 0, 0, 1), shape=(3,))


UPDATES = [
    Case("nothing-made", "f32[0,3]", lambda w, x: w.exp(x), lambda w, x: w.fill(0.0, 0, 3)),
    Case("nothing-folded", "f32[0,3]", lambda w, x: w.reduce_sum(x, axes=(0,)),
         lambda w, x: w.fill(0.0, 3)),
    Case("nothing-folded", "f32[2,0] f32[0,3]", lambda w, x, y: w.dot_general(
             x, y, lhs_contract=(1,), rhs_contract=(0,), lhs_batch=(), rhs_batch=()),
         lambda w, x, y: w.fill(0.0, 2, 3)),
    Case("nothing-written", "f32[5,3] i32[0,1] f32[0,1,3]",
         lambda w, x, i, u: w.neg(w.scatter_add(x, i, u, axes=(0,), batch=0, drop=True)),
         lambda w, x, i, u: w.neg(x)),
    Case("known-window", f"{A} {PLACE}",
         lambda w, x, i: window(w, x, w.number(9, "i32"), i, sizes=(2, 2), axes=(0, 1)),
         lambda w, x, i: window(w, w.cut(x, 0, 3, 5), i, sizes=(2,), axes=(1,))),
    Case("window-of-one-row", f"{A} {PLACE}", lambda w, x, i: window(w, x, i, sizes=(1,)),
         lambda w, x, i: w.reshape(w.gather(x, i, axis=0), shape=(1, 3))),
    Case("known-update", f"{A} f32[2,3]",
         lambda w, x, u: update(w, x, u, w.number(1, "i32")),
         lambda w, x, u: w.concat(w.cut(x, 0, 0, 1), u, w.cut(x, 0, 3, 5), axis=0)),
    Case("known-update", f"{A} f32[5,2] {PLACE} {PLACE}",  # no place to go along the first axis
         lambda w, x, u, i, j: update(w, x, u, i, j, axes=(0, 1)),
         lambda w, x, u, i, j: update(w, x, u, j, axes=(1,))),
    Case("update-again", f"{A} {ROW} {ROW} {PLACE}",
         lambda w, x, u, v, i: update(w, update(w, x, u, i), v, i),
         lambda w, x, u, v, i: update(w, x, v, i)),
    Case("update-again", f"{A} {PLACE}",
         lambda w, x, i: w.neg(update(w, x, window(w, x, i, sizes=(2,)), i)),
         lambda w, x, i: w.neg(x)),
    Case("read-of-update", f"{A} {ROW} {PLACE}",
         lambda w, x, u, i: w.neg(w.gather(update(w, x, u, i), i, axis=0)),
         lambda w, x, u, i: w.neg(w.reshape(u, shape=(3,)))),
    Case("read-of-update", f"{A} {A}",  # elsewhere, in range: what was there
         lambda w, x, y: loop(w, f"{A} {A}", lambda b, i, s, t: b.add(s, b.broadcast(b.gather(
             update(b, t, b.cut(b.sin(s), 0, 0, 1), i), b.add(i, 1), axis=0), shape=(5, 3),
             dims=(1,))), x, y, trip=4, carries=1),
         lambda w, x, y: loop(w, f"{A} {A}", lambda b, i, s, t: b.add(s, b.broadcast(b.gather(
             t, b.add(i, 1), axis=0), shape=(5, 3), dims=(1,))), x, y, trip=4, carries=1)),
    Case("select-as-update", f"{A} {A}",
         lambda w, x, y: loop(w, f"{A} {A}", lambda b, i, s, t: b.tanh(b.select(
             b.eq(b.at(5, 3), b.broadcast(i, shape=(5, 3), dims=())), t, s)), x, y, trip=5,
             carries=1),
         lambda w, x, y: loop(w, f"{A} {A}", lambda b, i, s, t: b.tanh(update(
             b, s, b.reshape(b.gather(t, i, axis=0), shape=(1, 3)), i)), x, y, trip=5,
             carries=1)),
    Case("carried-row", f"{A} {A}",
         lambda w, s, x: loop(w, f"{A} {A}", _recurrence, s, x, trip=4, carries=1),
         lambda w, s, x: w.concat(w.cut(s, 0, 0, 1), loop(
             w, f"f32[3] {A}", _carried, _first(w, s), x, trip=4, carries=1)[1], axis=0)),
    Case("carried-row", A,  # rows that are not written yet
         lambda w, s: loop(w, A, lambda b, i, s: update(b, s, b.reshape(b.sin(
             b.gather(s, b.add(i, 1), axis=0)), shape=(1, 3)), i), s, trip=4, carries=1),
         lambda w, s: w.concat(loop(w, A, lambda b, i, s: b.sin(
             b.gather(s, b.add(i, 1), axis=0)), s, trip=4, carries=0)[0],
             w.cut(s, 0, 4, 5), axis=0)),
    Case("stacked-output", f"{A} f32[8,3]",  # several rows an iteration
         lambda w, x, m: loop(w, f"{A} f32[8,3]", lambda b, i, s, t: (b.sin(s), update(
             b, t, b.cut(s, 0, 1, 3), b.mul(i, 2))), x, m, trip=4, carries=2)[1],
         lambda w, x, m: w.reshape(loop(w, A, lambda b, i, s: (b.sin(s), b.cut(s, 0, 1, 3)), x,
                                        trip=4, carries=1)[1], shape=(8, 3))),
]  # fmt: skip
