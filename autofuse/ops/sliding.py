"""Windows that slide along an axis: where they lie, and which elements are in them.

Convolutions and window reductions share this geometry, which is that of XLA's windows: the operand
is spread (`base_dilation` - 1 holes between neighbours), gets `low` and `high` places at its ends
(a negative number cuts places off), and a window of `size` taps, `window_dilation` apart, moves
along it in steps of `stride`. Holes and places added at the ends hold no element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=4096)
def census(axis: Sliding) -> Census:
    """The counts of one axis."""
    windows, taps = np.arange(axis.count)[:, None], np.arange(axis.size)
    places = windows * axis.stride + taps * axis.window_dilation - axis.low
    held = (places >= 0) & (places < axis.spread) & (places % axis.base_dilation == 0)
    uses = np.bincount(places[held] // axis.base_dilation, minlength=max(axis.extent, 1))
    return Census(
        pairs=int(held.sum()),
        touched=int((uses > 0).sum()),
        fewest=int(held.sum(axis=1).min(initial=axis.size)) if axis.count else 0,
        most=int(uses.max()),
        used=int(held.any(axis=0).sum()),
        busiest=int(held.sum(axis=0).max()),
    )


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
