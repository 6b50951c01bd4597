"""As simplify_cases, of transposes between channels first and channels last."""

from __future__ import annotations

from typing import Any

from autofuse.graph.types import Value
from autofuse.ops.window_reduction import window_attrs
from tests.support.simplify_cases import Case, Writer

# Permutations to channels last and to channels first.
LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def first(w: Writer, x: Value) -> Value:
    return w.transpose(x, perm=FIRST)


def last(w: Writer, x: Value) -> Value:
    return w.transpose(x, perm=LAST)


def pooled(w: Writer, x: Value, axes: tuple[int, int], **given: Any) -> Value:
    """The largest of windows of 2 x 3 along two axes, the second of them padded."""
    sizes = {axes[0]: (2, 2, 0), axes[1]: (3, 1, 1)}
    window, stride, low = zip(*(sizes.get(a, (1, 1, 0)) for a in range(4)), strict=True)
    return w.reduce_window_max(x, **window_attrs(window, stride=stride, low=low))


def cut(w: Writer, x: Value, axis: int) -> tuple[Value, Value]:
    n = w.kind(x).shape[axis]
    return w.cut(x, axis, 0, 2), w.cut(x, axis, 2, n)


def enlarged(w: Writer, x: Value, rows: int) -> Value:
    """Rows, on this axis, are repeated twice."""
    shape = w.kind(x).shape
    wide = (*shape[: rows + 1], 2, *shape[rows + 1 :])
    dims = tuple(a for a in range(len(wide)) if a != rows + 1)
    target = tuple(2 * n if a == rows else n for a, n in enumerate(shape))
    return w.reshape(w.broadcast(x, shape=wide, dims=dims), shape=target)


def shuffled(w: Writer, x: Value) -> Value:
    """Channels of a channels-first image in two groups, taken in turns."""
    apart = w.transpose(w.reshape(x, shape=(1, 2, 3, 4, 5)), perm=(0, 2, 1, 3, 4))
    return w.reshape(apart, shape=(1, 6, 4, 5))


LAYOUTS = [
    Case("channels-first-later", "f32[1,4,3,2] f32[2]",
         lambda w, x, b: w.max(w.add(first(w, x), w.broadcast(b, shape=(1, 2, 4, 3), dims=(1,))),
                               0.0),
         lambda w, x, b: first(
             w, w.max(w.add(x, w.broadcast(b, shape=(1, 4, 3, 2), dims=(3,))), 0.0))),
    Case("channels-first-later", "f32[1,4,3,2] f32[1,2,4,3]",
         lambda w, x, y: (w.add(first(w, x), y), w.exp(last(w, y))),
         lambda w, x, y: (first(w, w.add(x, last(w, y))), w.exp(last(w, y)))),
    # An activation reads its argument twice, and what it makes is summed and scaled.
    Case("channels-first-later", "f32[1,4,3,2]",
         lambda w, x: w.mul(first(w, x), w.logistic(first(w, x))),
         lambda w, x: first(w, w.mul(x, w.logistic(x)))),
    Case("channels-first-later", "f32[1,4,3,2]",
         lambda w, x: (w.exp(first(w, x)), w.reduce_sum(w.exp(first(w, x)), axes=(2, 3))),
         lambda w, x: (first(w, w.exp(x)), w.reduce_sum(w.exp(x), axes=(1, 2)))),
    # What something else needs channels first stays.
    Case("channels-first-later", "f32[1,4,3,2] f32[1,2,4,3]",
         lambda w, x, y: (w.add(first(w, x), y), w.exp(w.neg(w.neg(first(w, x))))),
         lambda w, x, y: (w.add(first(w, x), y), first(w, w.exp(x)))),
    Case("pooled-channels-last", "f32[1,6,5,2]", lambda w, x: pooled(w, first(w, x), (2, 3)),
         lambda w, x: first(w, pooled(w, x, (1, 2)))),
    Case("joined-channels-last", "f32[1,4,3,2] f32[1,4,3,5]",
         lambda w, x, y: w.concat(first(w, x), first(w, y), axis=1),
         lambda w, x, y: first(w, w.concat(x, y, axis=3))),
    Case("cut-channels-last", "f32[1,4,3,5]", lambda w, x: cut(w, first(w, x), 1),
         lambda w, x: tuple(first(w, part) for part in cut(w, x, 3))),
    Case("padded-channels-last", "f32[1,4,3,2] f32[]",
         lambda w, x, v: w.pad(first(w, x), v, low=(0, 0, 1, 2), high=(0, 3, 0, 0)),
         lambda w, x, v: first(w, w.pad(x, v, low=(0, 1, 2, 0), high=(0, 0, 0, 3)))),
    Case("transpose-of-repeated", "f32[2,5,4,3]",
         lambda w, x: last(w, enlarged(w, enlarged(w, x, 2), 3)),
         lambda w, x: enlarged(w, enlarged(w, last(w, x), 1), 2)),
    Case("transposes-around-reshape", "f32[1,4,5,6]",
         lambda w, x: last(w, shuffled(w, first(w, x))),
         lambda w, x: w.reshape(
             w.transpose(w.reshape(x, shape=(1, 4, 5, 2, 3)), perm=(0, 1, 2, 4, 3)),
             shape=(1, 4, 5, 6))),
    Case("transposes-around-reshape", "f32[2,3,4,5]",
         lambda w, x: w.transpose(w.reshape(w.transpose(x, perm=(2, 0, 1, 3)), shape=(4, 6, 5)),
                                  perm=(2, 0, 1)),
         lambda w, x: w.transpose(w.reshape(x, shape=(6, 4, 5)), perm=(2, 1, 0))),
]  # fmt: skip
