"""A window at computed places: read (`dynamic_slice`), or written into an array
(`dynamic_update_slice`).

Attribute `axes` names the axes along which the window is a part only; after the data operands comes
one () integer for each of them, where the window begins. As in JAX and XLA a window that does not
fit is moved to where it does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from autofuse.ops import checks
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.scalar import Expr, Lit, call, cast
from autofuse.ops.spec import AxisMap, Family, Motion, OpSpec, Sample, register, sampled
from autofuse.ops.types import GraphError, OpCall, TensorType
from autofuse.ops.views import WindowAt

Shape = tuple[int, ...]
Arrays = tuple[np.ndarray, ...]
# What holds any extent, and of which every number is an index.
START_DTYPES = (DType.I32, DType.I64, DType.U32)


def _starts(c: OpCall, data: int) -> Shape:
    """The axes, checked against the operands after `data` arrays."""
    axes = checks.sorted_axes_attr(c, c.ins[0].rank if c.ins else 0)
    checks.operands(c, data + len(axes))
    if not axes:
        raise GraphError("attribute 'axes' is empty: a window is a part along some axis")
    for start in c.ins[data:]:
        checks.dtype_in(start.dtype, START_DTYPES)
        if start.shape:
            raise GraphError(f"a window begins at scalars, got {start}")
    return axes


def _within(at: Expr, room: int) -> Expr:
    """The start of a window, moved so that it fits."""
    return ix.iclamp(cast(at, ix.lit(0).dtype), 0, room)


def _corner(c: OpCall, arrays: Arrays, window: Shape) -> tuple[slice, ...]:
    """Where the window lies."""
    found = [slice(None)] * c.ins[0].rank
    starts = arrays[len(arrays) - len(c["axes"]) :]
    for axis, start in zip(c["axes"], starts, strict=True):
        first = min(max(int(start), 0), c.ins[0].shape[axis] - window[axis])
        found[axis] = slice(first, first + window[axis])
    return tuple(found)


# dynamic_slice


def _slice_infer(c: OpCall) -> tuple[TensorType, ...]:
    axes, x = _starts(c, 1), c.ins[0]
    sizes = checks.ints_attr(c, "sizes")
    fits = len(sizes) == len(axes)
    if not fits or any(not 0 < n <= x.shape[a] for a, n in zip(axes, sizes, strict=True)):
        raise GraphError(f"a window of {sizes} along axes {axes} does not lie in {x}")
    where = dict(zip(axes, sizes, strict=True))
    return (TensorType(tuple(where.get(a, n) for a, n in enumerate(x.shape)), x.dtype),)


def _slice_reference(arrays: Arrays, c: OpCall) -> Arrays:
    return (arrays[0][_corner(c, arrays, c.out.shape)].copy(),)


def _slice_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    moved = list(index)
    for k, axis in enumerate(c["axes"]):
        first = pull.let(_within(pull(1 + k, ()), c.ins[0].shape[axis] - c.out.shape[axis]))
        moved[axis] = ix.iadd(index[axis], first)
    return (pull(0, tuple(moved)),)


def _slice_axes(c: OpCall) -> AxisMap:
    every = range(c.out.rank)
    kept = tuple(None if a in c["axes"] else a for a in every)
    return (kept, *((None,) * c.out.rank,) * len(c["axes"]))


def _slice_needed(c: OpCall, made: int) -> tuple[int, ...]:
    return (made, *(int(n > 1) for n in _rooms(c, c.out.shape)))


def _rooms(c: OpCall, window: Shape) -> Iterator[int]:
    """How many places there are for a window along each of its axes."""
    return (c.ins[0].shape[a] - window[a] + 1 for a in c["axes"])


# dynamic_update_slice


def _update_infer(c: OpCall) -> tuple[TensorType, ...]:
    axes = _starts(c, 2)
    x, update = c.ins[:2]
    if update.dtype is not x.dtype:
        raise GraphError(f"the update is {update.dtype}, the operand is {x.dtype}")
    fits = update.rank == x.rank
    for a, (n, m) in enumerate(zip(update.shape, x.shape, strict=False)):
        fits = fits and (0 < n <= m if a in axes else n == m)
    if not fits:
        raise GraphError(f"a window {update} along axes {axes} does not lie in {x}")
    return (x,)


def _update_reference(arrays: Arrays, c: OpCall) -> Arrays:
    out = np.array(arrays[0])
    out[_corner(c, arrays, c.ins[1].shape)] = arrays[1]
    return (out,)


def window_start(c: OpCall, pull: Pull) -> Index:
    """The first index of the window that an update writes."""
    found: list[Expr] = [ix.lit(0)] * c.ins[0].rank
    for k, axis in enumerate(c["axes"]):
        room = c.ins[0].shape[axis] - c.ins[1].shape[axis]
        found[axis] = pull.let(_within(pull(2 + k, ()), room))
    return tuple(found)


def _update_body(c: OpCall, index: Index, pull: Pull) -> tuple[Expr, ...]:
    inside: Expr = Lit(True, DType.BOOL)
    moved = list(index)
    first = window_start(c, pull)
    for axis in c["axes"]:
        size = c.ins[1].shape[axis]
        at = ix.isub(index[axis], first[axis])
        inside = ix.iand(inside, ix.iand(ix.ige(at, ix.lit(0)), ix.ilt(at, ix.lit(size))))
        moved[axis] = ix.iclamp(at, 0, size - 1)
    if isinstance(inside, Lit):
        return (pull(1, tuple(moved)) if inside.value else pull(0, index),)
    return (call("select", inside, pull(1, tuple(moved)), pull(0, index)),)


def _update_axes(c: OpCall) -> AxisMap:
    every = tuple(range(c.out.rank))
    kept = tuple(None if a in c["axes"] else a for a in every)
    return (every, kept, *((None,) * c.out.rank,) * len(c["axes"]))


def _update_needed(c: OpCall, made: int) -> tuple[int, ...]:
    outside = c.out.size - c.ins[1].size
    return (max(0, made - c.ins[1].size), max(0, made - outside), *(0,) * len(c["axes"]))


# rows


def _update_window(c: OpCall) -> WindowAt:
    return WindowAt(c["axes"], tuple(c.ins[1].shape[a] for a in c["axes"]), 2)


def _samples(update: bool) -> list[Sample]:
    def make(
        x: Shape, window: Shape, axes: Shape, dtype: DType = DType.F32, kind: DType = DType.I32
    ) -> Sample:
        starts = tuple(TensorType((), kind) for _ in axes)
        own = TensorType(x, dtype)
        if update:
            return Sample((own, TensorType(window, dtype), *starts), {"axes": axes}, -3, 8)
        sizes = tuple(window[a] for a in axes)
        return Sample((own, *starts), {"axes": axes, "sizes": sizes}, -3, 8)

    cases: Sequence[tuple[Shape, Shape, Shape]] = (
        ((7,), (1,), (0,)), ((7,), (3,), (0,)), ((6, 5), (1, 5), (0,)), ((6, 5), (6, 1), (1,)),
        ((6, 5), (2, 3), (0, 1)), ((3, 4, 5), (3, 2, 4), (1, 2)), ((4, 4), (4, 4), (1,)),
        ((3, 33), (3, 32), (1,)), ((40, 70), (40, 1), (1,)),
    )  # fmt: skip
    found = [make(*case) for case in cases]
    found += [make((7,), (2,), (0,), DType.F32, kind) for kind in START_DTYPES]
    return found + [make((5, 4), (2, 4), (0,), dtype) for dtype in sampled(DType)]


register(
    OpSpec(
        name="dynamic_slice",
        family=Family.MOVEMENT,
        infer=_slice_infer,
        reference=_slice_reference,
        flops=lambda c: 0.0,
        samples=lambda: _samples(update=False),
        body=_slice_body,
        axes=_slice_axes,
        needed=_slice_needed,
        motion=Motion.PICK,
        window=lambda c: WindowAt(c["axes"], c["sizes"], 1),
    ),
    OpSpec(
        name="dynamic_update_slice",
        family=Family.MOVEMENT,
        infer=_update_infer,
        reference=_update_reference,
        flops=lambda c: 0.0,
        samples=lambda: _samples(update=True),
        body=_update_body,
        axes=_update_axes,
        needed=_update_needed,
        motion=Motion.PICK,
        window=_update_window,
        overwrites=True,
    ),
)
