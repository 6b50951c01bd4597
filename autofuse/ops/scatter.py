"""Windows written into an array at computed places, or combined with what is there.

The operand has `batch` leading axes that the indices and the updates have too; then come the axes
that a window lies in. Indices are [batch..., K, V]: K windows a batch element, whose first place
along operand axis `axes[v]` is entry v, and 0 along the others. Updates are [batch..., K,
window...]. A window that does not fit is dropped with `drop`, else moved to where it fits. Windows
are written one after another, so the last of several at one place stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from autofuse.ops import checks
from autofuse.ops import index as ix
from autofuse.ops.dtypes import INDICES, DType
from autofuse.ops.pull import Index
from autofuse.ops.reduction import NUMBERS
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import (
    AxisMap,
    Family,
    OpSpec,
    Sample,
    always,
    never,
    register,
    sampled,
)
from autofuse.ops.types import GraphError, OpCall, TensorType

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]


def windows(c: OpCall) -> int:
    """How many windows a batch element gets."""
    return int(c.ins[1].shape[c["batch"]])


def window_shape(c: OpCall) -> Shape:
    """The extents of a window along the axes after those of the batch."""
    return c.ins[2].shape[c["batch"] + 1 :]


def first_places(c: OpCall, numbers: Index) -> tuple[Index, Expr]:
    """Where a window begins along each axis that is no batch axis, given its index vector: moved to
    where it fits, unless it would be dropped; and whether it was there."""
    fits: Expr = Lit(True, DType.BOOL)
    found: list[Expr] = [ix.lit(0)] * (c.out.rank - c["batch"])
    for axis, number in zip(c["axes"], numbers, strict=True):
        at = axis - c["batch"]
        room = c.out.shape[axis] - window_shape(c)[at]
        wide = cast(number, ix.lit(0).dtype)
        inside = call("and", call("ge", wide, ix.lit(0)), call("le", wide, ix.lit(room)))
        fits = inside if isinstance(fits, Lit) else call("and", fits, inside)
        moved = call("min", call("max", wide, ix.lit(0)), ix.lit(room))
        found[at] = wide if c["drop"] else moved
    return tuple(found), fits


def _infer(dtypes: tuple[DType, ...]) -> Callable[[OpCall], tuple[TensorType, ...]]:
    def infer(c: OpCall) -> tuple[TensorType, ...]:
        checks.operands(c, 3)
        x, indices, updates = c.ins
        checks.dtype_in(x.dtype, dtypes)
        checks.dtype_in(indices.dtype, INDICES)
        if updates.dtype is not x.dtype:
            raise GraphError(f"updates are {updates.dtype}, the operand is {x.dtype}")
        batch, axes = c["batch"], checks.ints_attr(c, "axes")
        if not isinstance(c["drop"], bool):
            raise GraphError(f"attribute 'drop' is {c['drop']!r}, not true or false")
        if type(batch) is not int or not 0 <= batch <= x.rank:
            raise GraphError(f"attribute 'batch' is {batch!r}: {x} has no such leading axes")
        outside = any(not batch <= a < x.rank for a in axes)
        if not axes or len(set(axes)) != len(axes) or outside:
            raise GraphError(f"attribute 'axes' is {axes}: need different axes after the batch")
        count = indices.shape[batch : batch + 1]
        if indices.shape != (*x.shape[:batch], *count, len(axes)) or not count:
            raise GraphError(f"indices {indices} are not [batch, windows, {len(axes)}] of {x}")
        window = updates.shape[batch + 1 :]
        fits = len(window) == x.rank - batch
        fits = fits and all(n <= m for n, m in zip(window, x.shape[batch:], strict=True))
        if updates.shape[: batch + 1] != (*x.shape[:batch], *count) or not fits:
            raise GraphError(f"updates {updates} are not [batch, windows, window] within {x}")
        return (x,)

    return infer


def _flat_places(c: OpCall, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each element of the updates its place in the flat operand, and whether it is written."""
    batch, shape, window = c["batch"], c.out.shape, window_shape(c)
    strides = [math.prod(shape[a + 1 :]) for a in range(len(shape))]
    lead = (*shape[:batch], windows(c))
    written = np.ones(lead, bool)
    at = np.zeros(lead, np.int64)
    for a in range(batch):
        at += (np.arange(shape[a]) * strides[a]).reshape(-1, *(1,) * (batch - a))
    for v, axis in enumerate(c["axes"]):
        numbers, room = indices[..., v].astype(np.int64), shape[axis] - window[axis - batch]
        written &= (numbers >= 0) & (numbers <= room)
        at += np.clip(numbers, 0, room) * strides[axis]
    places = at.reshape(*lead, *(1,) * len(window))
    for a, extent in enumerate(window):
        steps = np.arange(extent) * strides[batch + a]
        places = places + steps.reshape(-1, *(1,) * (len(window) - a - 1))
    shown = written.reshape(*lead, *(1,) * len(window)) | (not c["drop"])
    return places, np.broadcast_to(shown, places.shape)


def _reference(fn: np.ufunc | None) -> Callable[[Arrays, OpCall], Arrays]:
    def reference(arrays: Arrays, c: OpCall) -> Arrays:
        x, indices, updates = arrays
        places, written = _flat_places(c, indices)
        out = np.array(x).reshape(-1)
        at, values = places[written], np.broadcast_to(updates, places.shape)[written]
        if fn is not None:
            fn.at(out, at, values)
        else:
            out[at] = values
        return (out.reshape(x.shape),)

    return reference


def _axes(c: OpCall) -> AxisMap:
    every, batch = tuple(range(c.out.rank)), c["batch"]
    shared = tuple(a if a < batch else None for a in every)
    return (every, shared, shared)


def _needed(overwrites: bool) -> Callable[[OpCall, int], tuple[int, ...]]:
    def needed(c: OpCall, made: int) -> tuple[int, ...]:
        """Places may all be one, out of range, or those of the results asked for."""
        kept = max(0, made - c.ins[2].size) if overwrites else made
        return (kept, c.ins[1].size if made >= c.out.size else 0, 0)

    return needed


def _samples(dtypes: tuple[DType, ...]) -> Callable[[], list[Sample]]:
    def make(
        x: Shape, count: int, window: Shape, axes: Shape, batch: int, drop: bool,
        dtype: DType = DType.F32, kind: DType = DType.I32,
    ) -> Sample:  # fmt: skip
        indices = TensorType((*x[:batch], count, len(axes)), kind)
        updates = TensorType((*x[:batch], count, *window), dtype)
        attrs = {"axes": axes, "batch": batch, "drop": drop}
        return Sample((TensorType(x, dtype), indices, updates), attrs, -3, 8)

    def samples() -> list[Sample]:
        cases: list[tuple[Shape, int, Shape, Shape, int, bool]] = [
            ((7,), 3, (1,), (0,), 0, True), ((7,), 5, (2,), (0,), 0, False),
            ((6, 5), 4, (1, 5), (0,), 0, True), ((6, 5), 9, (1, 1), (0, 1), 0, True),
            ((6, 5), 3, (2, 3), (1, 0), 0, False), ((3, 4, 5), 2, (4, 2), (2,), 1, True),
            ((2, 3, 6), 40, (1,), (2,), 2, False), ((4, 4), 2, (4, 4), (1,), 0, True),
            ((3, 33), 6, (1, 33), (0,), 0, True),
        ]  # fmt: skip
        found = [make(*case) for case in cases]
        return found + [make((5, 4), 6, (1, 4), (0,), 0, True, dtype) for dtype in sampled(dtypes)]

    return samples


def _row(
    name: str, joins: Callable[[Expr, Expr], Expr], fn: np.ufunc | None,
    dtypes: tuple[DType, ...] = NUMBERS, exact: bool = False,
) -> OpSpec:  # fmt: skip
    return OpSpec(
        name=name,
        family=Family.SCATTER,
        infer=_infer(dtypes),
        reference=_reference(fn),
        flops=lambda c: float(c.ins[2].size),
        samples=_samples(dtypes),
        joins=joins,
        axes=_axes,
        needed=_needed(fn is None),
        exact=always if exact else never,
        terms=lambda c: 1 if exact else 1 + windows(c),
    )


register(
    _row("scatter", lambda there, new: new, None, tuple(DType), exact=True),
    _row("scatter_add", partial(call, "add"), np.add),
    _row("scatter_mul", partial(call, "mul"), np.multiply),
    _row("scatter_max", partial(call, "max"), np.maximum, exact=True),
    _row("scatter_min", partial(call, "min"), np.minimum, exact=True),
)
