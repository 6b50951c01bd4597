"""Windows that slide along an axis: where they lie, and which elements are in them.

Convolutions and window reductions share this geometry, which is that of XLA's windows: the operand
is spread (`base_dilation` - 1 holes between neighbours), gets `low` and `high` places at its ends
(a negative number cuts places off), and a window of `size` taps, `window_dilation` apart, moves
along it in steps of `stride`. Holes and places added at the ends hold no element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

import numpy as np

from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.scalar import Call, Expr, Lit
from autofuse.ops.types import GraphError


@dataclass(frozen=True, slots=True)
class Sliding:
    """The windows along one axis of `extent` elements."""

    extent: int
    size: int = 1
    stride: int = 1
    low: int = 0
    high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1

    @property
    def spread(self) -> int:
        """Places from the first element to the last, holes included."""
        return (self.extent - 1) * self.base_dilation + 1 if self.extent else 0

    @property
    def reach(self) -> int:
        """Places from the first tap of a window to its last."""
        return (self.size - 1) * self.window_dilation + 1

    @property
    def count(self) -> int:
        """How many windows there are: the extent of the result."""
        room = self.spread + self.low + self.high
        return (room - self.reach) // self.stride + 1 if room >= self.reach else 0

    @property
    def passes(self) -> bool:
        """Whether window i holds element i alone."""
        return self == Sliding(self.extent)

    @property
    def is_whole(self) -> bool:
        """Whether there is one window, which holds each element once."""
        return self.count == 1 and self == Sliding(self.extent, self.extent, self.stride)

    @property
    def overlaps(self) -> bool:
        """Whether an element may be in several windows."""
        return self.size > 1 and self.stride < self.reach

    def at(self, window: Expr, tap: Expr) -> tuple[Expr, Expr]:
        """The element at a tap of a window, brought into range, and whether there is one."""
        if self.extent == 0:
            return ix.lit(0), Lit(False, DType.BOOL)
        moved = ix.iadd(ix.imul(window, self.stride), ix.imul(tap, self.window_dilation))
        place = ix.isub(moved, ix.lit(self.low))
        inside = ix.iand(ix.ige(place, ix.lit(0)), ix.ilt(place, ix.lit(self.spread)))
        place = ix.iclamp(place, 0, self.spread - 1)
        if self.base_dilation > 1:
            hole = ix.imod(place, self.base_dilation)
            here = hole.value == 0 if isinstance(hole, Lit) else None
            whole = Call("eq", (hole, ix.lit(0)), DType.BOOL) if here is None else _bool(here)
            inside = ix.iand(inside, whole)
        return ix.idiv(place, self.base_dilation), inside


def _bool(value: bool) -> Lit:
    return Lit(value, DType.BOOL)


def check_sliding(axis: Sliding, name: str) -> None:
    """Raises GraphError, which calls the axis `name`, where the numbers make no windows."""
    for what in ("size", "stride", "base_dilation", "window_dilation"):
        if getattr(axis, what) < 1:
            said = what.replace("_", " ")
            raise GraphError(f"{name} has a {said} of {getattr(axis, what)}: it must be positive")


@dataclass(frozen=True, slots=True)
class Census:
    """Counts over all windows of an axis: `pairs` of a window and an element in it, `touched`
    elements in some window, the `fewest` elements of a window, the `most` windows of an element,
    the taps that some window has an element at (`used`), the `busiest` tap's windows."""

    pairs: int
    touched: int
    fewest: int
    most: int
    used: int
    busiest: int


# Windows of which each is looked at: of more, those far from both ends, which are all alike, are
# counted by periods.
LOOKED_AT = 1 << 14


@lru_cache(maxsize=4096)
def census(axis: Sliding) -> Census:
    """The counts of one axis, in time and memory that follow from its elements, not its ends."""
    windows = _meeting(-axis.low, axis.stride, axis.count, axis.reach, axis.spread)
    moved = (axis.count - 1) * axis.stride + 1
    taps = _meeting(-axis.low, axis.window_dilation, axis.size, moved, axis.spread)
    first = windows.start * axis.stride + taps.start * axis.window_dilation - axis.low
    near = _Near(first, len(windows), len(taps), axis.extent, axis)
    periods = near.spare_periods(LOOKED_AT)
    least = near.without(periods).counts()
    more = near.without(periods - 1).counts() if periods else least
    by_tap = least.by_tap + periods * (more.by_tap - least.by_tap)
    touched = (np.count_nonzero(c.by_element) for c in (least, more))
    fewest = int(least.by_window.min(initial=axis.size)) if axis.count else 0
    few, many = touched
    return Census(
        pairs=int(by_tap.sum()),
        touched=int(few + periods * (many - few)),
        fewest=fewest if len(windows) == axis.count else 0,
        most=int(least.by_element.max(initial=0)),
        used=int(np.count_nonzero(by_tap)),
        busiest=int(by_tap.max(initial=0)),
    )


def trimmed(axis: Sliding) -> Sliding:
    """The same windows without the taps at either side at which all of them are beyond the ends."""
    if axis.count == 0:
        return axis
    moved = (axis.count - 1) * axis.stride + 1
    taps = _meeting(-axis.low, axis.window_dilation, axis.size, moved, axis.spread)
    if len(taps) in (0, axis.size):
        return axis
    low = axis.low - taps.start * axis.window_dilation
    high = axis.high - (axis.size - taps.stop) * axis.window_dilation
    return replace(axis, size=len(taps), low=low, high=high)


def _meeting(first: int, step: int, count: int, reach: int, spread: int) -> range:
    """Which of `count` stretches of `reach` places, each `step` behind the one before, hold one of
    the places from 0 to `spread`."""
    start = max(0, -((first + reach - 1) // step))
    return range(start, max(start, min(count, -((first - spread) // step))))


@dataclass(frozen=True, slots=True)
class _Counts:
    """Elements of each window, windows of each tap and of each element."""

    by_window: np.ndarray
    by_tap: np.ndarray
    by_element: np.ndarray


@dataclass(frozen=True, slots=True)
class _Near:
    """Windows and taps of an axis, the first tap of the first window at place `first`, over
    `extent` elements."""

    first: int
    windows: int
    taps: int
    extent: int
    axis: Sliding

    def spare_periods(self, most: int) -> int:
        """How often the windows repeat each other, far from both ends, beyond `most` of them."""
        axis, spread = self.axis, replace(self.axis, extent=self.extent).spread
        period = axis.base_dilation // gcd(axis.stride, axis.base_dilation)
        inside = (spread - max(self.first, 0) - axis.reach) // axis.stride
        kept = max(most, 2 * (axis.reach // axis.stride) + 4 * period)
        return max(0, min(inside, self.windows) - kept) // period

    def without(self, periods: int) -> _Near:
        axis = self.axis
        step = periods * (axis.base_dilation // gcd(axis.stride, axis.base_dilation))
        elements = step * axis.stride // axis.base_dilation
        return replace(self, windows=self.windows - step, extent=self.extent - elements)

    def counts(self) -> _Counts:
        axis, spread = self.axis, replace(self.axis, extent=self.extent).spread
        stride, dilation, holes = axis.stride, axis.window_dilation, axis.base_dilation
        starts = self.first + stride * np.arange(self.windows)
        taps = self.first + dilation * np.arange(self.taps)
        reach = (self.taps - 1) * dilation
        elements = self.first + reach - holes * np.arange(self.extent)
        return _Counts(
            _met(starts, dilation, self.taps, spread, holes),
            _met(taps, stride, self.windows, spread, holes),
            _met(elements, stride, self.windows, reach + 1, dilation),
        )


def _met(first: np.ndarray, step: int, count: int, spread: int, holes: int) -> np.ndarray:
    """How many of the `count` places first, first + step, ... lie from 0 to `spread` and are
    multiples of `holes`, i64 of the shape of `first`: those that do are every m-th."""
    common = gcd(step, holes)
    m = holes // common
    low = np.maximum(0, -(first // step))
    high = np.minimum(count - 1, (spread - 1 - first) // step)
    residue = -(first // common) * pow(step // common, -1, m) % m
    found = (high - residue) // m - (low - 1 - residue) // m
    return np.where((first % common == 0) & (high >= low), found, 0)


def spread_out(array: np.ndarray, axes: tuple[Sliding, ...], fill: float) -> np.ndarray:
    """`array` with holes and ends of `fill`: what windows of these axes, one for each axis of the
    array, slide along. No axis may be cut to less than nothing."""
    shape, target, source = [], [], []
    for axis in axes:
        room, step = axis.spread + axis.low + axis.high, axis.base_dilation
        first = max(0, -(axis.low // step))
        stop = max(first, min(axis.extent, (room - 1 - axis.low) // step + 1))
        shape.append(room)
        start = first * step + axis.low
        target.append(slice(start, start + (stop - first) * step, step))
        source.append(slice(first, stop))
    if tuple(shape) == array.shape and all(axis.low == 0 for axis in axes):
        return array
    made = np.full(shape, fill, dtype=array.dtype)
    made[tuple(target)] = array[tuple(source)]
    return made
