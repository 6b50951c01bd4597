"""Composites that write at computed places."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
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
