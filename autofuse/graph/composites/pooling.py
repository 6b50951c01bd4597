"""Pooling: one description of its windows for every front end, and what is made of them.

Each function appends to a GraphWriter and returns a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.graph.composites.windows import (
    Padding,
    PerAxis,
    attrs_of,
    padding_of,
    per_axis,
    sum_windows_grad,
)
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.sliding import Sliding

Ends = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """Windows that slide over an image. Numbers are one for all of the axes along which they slide,
    or a sequence with one for each.

    * `window`: how many elements of an axis are in a window, `dilation` places apart.
    * `stride`: from one window to the next; None: they lie next to each other.
    * `padding`: places at both ends of an axis; (low, high) for each axis, "valid", "same" or
      "same_lower" (`windows.padding_of`).
    * `ceil_mode`: a last window may hang over the end, unless it would begin there.
    * `count_padding`: places of the padding are counted in means, what hangs over it is not.
    * `divisor`: means divide by it, however many places count.
    * `holes`: the image has so many places for each element, the others are empty.
    * `spatial`: the axes along which windows slide; None: all but the first two.
    """

    window: PerAxis
    stride: PerAxis | None = None
    padding: Padding = 0
    dilation: PerAxis = 1
    ceil_mode: bool = False
    count_padding: bool = False
    divisor: int | None = None
    holes: PerAxis = 1
    spatial: Sequence[int] | None = None

    def along(self, extents: Sequence[int]) -> list[Sliding]:
        """The windows along axes of `extents`. Raises GraphError for numbers that do not fit."""
        axes = self._padded(extents)
        return [_rounded_up(axis) for axis in axes] if self.ceil_mode else axes

    def over(self, shape: Sequence[int]) -> list[Sliding]:
        """The windows along every axis of `shape`, of single elements along those not spatial."""
        at = range(2, len(shape)) if self.spatial is None else self.spatial
        found = [Sliding(n) for n in shape]
        for axis, sliding in zip(at, self.along([shape[a] for a in at]), strict=True):
            found[axis] = sliding
        return found

    def counted(self, shape: Sequence[int]) -> Ends:
        """The (low, high) places around every axis that count in means."""
        plain = replace(self, ceil_mode=False)
        none = not self.count_padding
        return [(0, 0) if none else (a.low, a.high) for a in plain.over(shape)]

    def _padded(self, extents: Sequence[int]) -> list[Sliding]:
        count = len(extents)
        sizes = per_axis(self.window, count, "window")
        steps = sizes if self.stride is None else per_axis(self.stride, count, "stride")
        apart = per_axis(self.dilation, count, "dilation")
        holes = per_axis(self.holes, count, "holes")
        axes = [
            Sliding(extent, size, step, 0, 0, empty, between)
            for extent, size, step, empty, between in zip(
                extents, sizes, steps, holes, apart, strict=True
            )
        ]
        ends = padding_of(self.padding, axes)
        return [
            replace(axis, low=low, high=high) for axis, (low, high) in zip(axes, ends, strict=True)
        ]


def _rounded_up(axis: Sliding) -> Sliding:
    """With a last window that may hang over the end, unless it began there."""
    room = axis.extent + axis.low + axis.high - axis.reach
    count = max(0, -(-room // axis.stride) + 1)
    if (count - 1) * axis.stride >= axis.extent + axis.low:
        count -= 1
    high = (count - 1) * axis.stride + axis.reach - axis.extent - axis.low
    return replace(axis, high=max(high, axis.high))


def pool(w: GraphWriter, kind: str, x: Value, spec: PoolSpec) -> Value:
    """The sum, prod, max or min (`kind`) of each window."""
    return w.op(f"reduce_window_{kind}", x, **attrs_of(spec.over(w.shape(x))))


def mean_pool(w: GraphWriter, x: Value, spec: PoolSpec) -> Value:
    """The mean of each window: of its elements alone, or with zeros for padding that counts. Of
    whole numbers it is cut."""
    total = pool(w, "sum", w.cast(x, w.dtype(x).compute), spec)
    return w.cast(_pool_shares(w, total, spec, w.shape(x)), w.dtype(x))


def mean_pool_grad(w: GraphWriter, g: Value, spec: PoolSpec, shape: Sequence[int]) -> Value:
    """The gradient of `mean_pool` with respect to an operand of `shape`, from that of its result,
    both floats."""
    shares = _pool_shares(w, w.cast(g, w.dtype(g).compute), spec, shape)
    return w.cast(sum_windows_grad(w, shares, spec.over(shape)), w.dtype(g))


def _pool_shares(w: GraphWriter, v: Value, spec: PoolSpec, shape: Sequence[int]) -> Value:
    """Values of windows over an image of `shape` divided by how many places count in each."""
    if spec.divisor is not None:
        return _share(w, v, spec.divisor)
    axes = spec.over(shape)
    counts = [_counted(axis, *ends) for axis, ends in zip(axes, spec.counted(shape), strict=True)]
    if all((counted == axis.size).all() for counted, axis in zip(counts, axes, strict=True)):
        return _share(w, v, math.prod(axis.size for axis in axes))
    for k, (counted, axis) in enumerate(zip(counts, axes, strict=True)):
        along = [axis.count if a == k else 1 for a in range(len(axes))]
        if not (counted == 1).all():
            v = _share(w, v, np.maximum(counted, 1).reshape(along))
    return v


def _share(w: GraphWriter, v: Value, count: int | np.ndarray) -> Value:
    """`v` over whole numbers that are not 0. Whole numbers are cut, so that one such division after
    another gives what one by their product does."""
    if w.dtype(v).is_float:
        return w.mul(v, w.constant(1.0 / np.asarray(count), w.dtype(v)))
    return w.div(v, w.constant(np.asarray(count), w.dtype(v)))


def _counted(axis: Sliding, low: int, high: int) -> np.ndarray:
    """How many places of each window are elements, or among `low` and `high` around them."""
    affordable(axis.count, axis.size)
    places = np.arange(axis.count)[:, None] * axis.stride - axis.low
    places = places + np.arange(axis.size) * axis.window_dilation
    return np.asarray(((places >= -low) & (places < axis.extent + high)).sum(axis=1))
