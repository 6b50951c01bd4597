"""Composites that write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

# How an element that is written meets the one that is there; "set": it takes its place.
COMBINE = ("set", "add", "mul", "min", "max")


def scatter_at(
    w: GraphWriter, v: Value, places: Value, updates: Value, axes: Sequence[int],
    combine: str = "set",
) -> Value:  # fmt: skip
    """`v` with each of `updates` written at one of `places`.

    `places` is [..., len(axes)]: positions along `axes` of `v`. `updates` is [..., rest], where
    rest are the other axes of `v`. What lies out of range is left out; of several "set" at one
    place the last stays. Raises GraphError for an unknown `combine`."""
    if combine not in COMBINE:
        raise GraphError(f"combine is {combine!r}, not one of {', '.join(COMBINE)}")
    shape, lead = w.shape(v), w.shape(places)[:-1]
    count = math.prod(lead)
    if 0 in (count, *shape):
        return v
    window = [1 if a in axes else n for a, n in enumerate(shape)]
    rest = [n for a, n in enumerate(shape) if a not in axes]
    written = w.reshape(w.spread(updates, (*lead, *rest)), (count, *window))
    op = "scatter" if combine == "set" else f"scatter_{combine}"
    at = w.reshape(places, (count, len(axes)))
    return w.op(op, v, at, written, axes=tuple(axes), batch=0, drop=True)


def scattered(
    w: GraphWriter, op: str, v: Value, at: Value, updates: Value, axes: tuple[int, ...], batch: int
) -> Value:
    """A scatter op as the op table has it; what lies out of range is left out. Truth values are
    combined as numbers."""
    if w.dtype(v) is DType.BOOL and op != "scatter":
        wide, parts = (w.cast(each, DType.U8) for each in (v, updates))
        kind = {"scatter_add": "scatter_max", "scatter_mul": "scatter_min"}.get(op, op)
        return w.cast(scattered(w, kind, wide, at, parts, axes, batch), DType.BOOL)
    return w.op(op, v, at, updates, axes=axes, batch=batch, drop=True)


def _along_last(
    w: GraphWriter, op: str, v: Value, at: Value, updates: Value, order: tuple[int, ...]
) -> Value:
    """Written along the last axis of an order, for each place along the others."""
    moved, where, parts = (w.transpose(each, order) for each in (v, at, updates))
    where, parts = (w.reshape(each, (*w.shape(each), 1)) for each in (where, parts))
    lead = len(order) - 1
    found = scattered(w, op, moved, where, parts, (lead,), lead)
    return w.transpose(found, sorted(range(len(order)), key=order.__getitem__))


def scatter_along(w: GraphWriter, op: str, v: Value, at: Value, updates: Value, axis: int) -> Value:
    """Each of `updates` written (by a scatter op) at its place `at` (i32, of the same shape) along
    one axis of `v`, whose other axes are as long or longer."""
    shape, places = w.shape(v), w.shape(at)
    others = [a for a in range(len(shape)) if a != axis]
    whole = all(shape[a] == places[a] for a in others)
    if whole and places[axis] == 1:
        return _one_each(w, op, v, at, updates, axis)
    if whole:
        return _along_last(w, op, v, at, updates, (*others, axis))
    count, every = math.prod(places), tuple(range(len(shape)))
    columns = [at if a == axis else w.iota(places, DType.I32, a) for a in every]
    where = w.concat([w.reshape(each, (count, 1)) for each in columns], 1)
    parts = w.reshape(updates, (count, *[1] * len(every)))
    return scattered(w, op, v, where, parts, every, 0)


_OF_NUMBERS = {"add": "add", "mul": "mul", "max": "max", "min": "min"}
_OF_BOOLS = {"add": "or", "mul": "and", "max": "or", "min": "and"}


def _one_each(w: GraphWriter, op: str, v: Value, at: Value, updates: Value, axis: int) -> Value:
    """One element of each row: elementwise, so that it is fused with what is around it."""
    shape = w.shape(v)
    here = w.map("eq", w.iota(shape, DType.I32, axis), w.spread(at, shape))
    wide = w.spread(updates, shape)
    if op != "scatter":
        table = _OF_BOOLS if w.dtype(v) is DType.BOOL else _OF_NUMBERS
        wide = w.map(table[op.removeprefix("scatter_")], v, wide)
    return w.select(here, wide, v)
