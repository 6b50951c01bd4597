"""Reductions over windows that slide along axes: pooling, and what gradients of pooling need.

The attributes are those of XLA's reduce-window, one number for each axis of the operand: `window`,
`stride`, `low` and `high` (places at the ends, which count for nothing; negative numbers cut),
`base_dilation` and `window_dilation`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from autofuse.ops import checks
from autofuse.ops import index as ix
from autofuse.ops.dtypes import DType
from autofuse.ops.pull import Index, Pull
from autofuse.ops.reduction import MAX, MIN, NUMBERS, PROD, SUM
from autofuse.ops.scalar import Expr, Lit, call
from autofuse.ops.sliding import Sliding, census, check_sliding, spread_out
from autofuse.ops.spec import (
    AxisMap,
    Family,
    Fold,
    OpSpec,
    Sample,
    always,
    never,
    register,
    sampled,
)
from autofuse.ops.terms import FoldOver
from autofuse.ops.types import GraphError, OpCall, TensorType

Arrays = tuple[np.ndarray, ...]
_KEYS = ("window", "stride", "low", "high", "base_dilation", "window_dilation")


def sliding_axes(c: OpCall) -> tuple[Sliding, ...]:
    """The windows along each axis of the operand."""
    numbers = zip(c.ins[0].shape, *(c[key] for key in _KEYS), strict=True)
    return tuple(Sliding(*each) for each in numbers)


def _infer(c: OpCall) -> tuple[TensorType, ...]:
    checks.operands(c, 1)
    x = c.ins[0]
    checks.dtype_in(x.dtype, NUMBERS)
    for key in _KEYS:
        if len(checks.ints_attr(c, key)) != x.rank:
            raise GraphError(f"attribute '{key}' is {c[key]}: need one for each of {x.rank} axes")
    axes = sliding_axes(c)
    for k, axis in enumerate(axes):
        check_sliding(axis, f"axis {k} of {x}")
    return (TensorType(tuple(axis.count for axis in axes), x.dtype),)


def _term(fold: Fold) -> Callable[[OpCall, Index, Index, Pull], Expr]:
    """An element of the window, or what changes no result."""

    def term(c: OpCall, index: Index, at: Index, pull: Pull) -> Expr:
        inside: Expr = Lit(True, DType.BOOL)
        places: list[Expr] = []
        for axis, window, tap in zip(sliding_axes(c), index, at, strict=True):
            place, there = axis.at(window, tap)
            places.append(place)
            inside = ix.iand(inside, there)
        (nothing,) = fold.init(c)
        if isinstance(inside, Lit):
            return pull(0, tuple(places)) if inside.value else nothing
        return call("select", inside, pull(0, tuple(places)), nothing)

    return term


def _reference(fn: np.ufunc, fold: Fold) -> Callable[[Arrays, OpCall], Arrays]:
    """Axis by axis, a tap at a time: a window is the product of its axes."""

    def reference(arrays: Arrays, c: OpCall) -> Arrays:
        x = arrays[0]
        (start,) = fold.init(c)
        assert isinstance(start, Lit)
        for k, axis in enumerate(sliding_axes(c)):
            if axis.passes:
                continue
            plain = [Sliding(n) for n in x.shape]
            shape = (*x.shape[:k], axis.count, *x.shape[k + 1 :])
            made = np.full(shape, start.value, x.dtype)
            if axis.count:
                wide = spread_out(x, (*plain[:k], axis, *plain[k + 1 :]), start.value)
                for tap in range(0, axis.reach, axis.window_dilation):
                    stop = tap + (axis.count - 1) * axis.stride + 1
                    taken = (*(slice(None),) * k, slice(tap, stop, axis.stride))
                    made = fn(made, wide[taken])
            x = made
        return (np.array(x) if x is arrays[0] else x,)

    return reference


def _axes(c: OpCall) -> AxisMap:
    return (tuple(k if axis.passes else None for k, axis in enumerate(sliding_axes(c))),)


def _flops(c: OpCall) -> float:
    return float(math.prod(census(axis).pairs for axis in sliding_axes(c)))


def _needed(c: OpCall, made: int) -> tuple[int, ...]:
    """As of a convolution: by uses, or all that is in some window."""
    counts = [census(axis) for axis in sliding_axes(c)]
    if made >= c.out.size:
        return (math.prod(n.touched for n in counts),)
    uses = made * math.prod(n.fewest for n in counts)
    return (-(-uses // max(1, math.prod(n.most for n in counts))),)


def window_attrs(window: Sequence[int], **given: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The attributes of a reduction over windows, next to each other unless `given` otherwise."""
    ones, zeros = (1,) * len(window), (0,) * len(window)
    plain = {"stride": ones, "low": zeros, "high": zeros}
    plain |= {"base_dilation": ones, "window_dilation": ones, "window": tuple(window)}
    return plain | {key: tuple(value) for key, value in given.items()}


def _samples() -> list[Sample]:
    cases: list[tuple[tuple[int, ...], dict[str, tuple[int, ...]]]] = [
        ((7,), window_attrs((3,))),
        ((), window_attrs(())),
        ((3, 5), window_attrs((1, 2), stride=(1, 2), high=(0, 1))),
        ((2, 5, 6), window_attrs((1, 3, 3), stride=(1, 2, 1), low=(0, 1, 1), high=(0, 1, 1))),
        ((2, 9), window_attrs((1, 3), window_dilation=(1, 3), low=(0, 2))),
        ((5, 3), window_attrs((3, 1), base_dilation=(2, 1), low=(2, 0), high=(1, 0))),
        ((8,), window_attrs((3,), low=(-2,), high=(-1,))),
        ((4, 24), window_attrs((1, 20), stride=(1, 2))),
        ((3, 4), window_attrs((3, 4))),
        ((2, 3), window_attrs((2, 2), low=(3, 0), high=(0, 2))),
    ]
    found = [Sample((TensorType(shape, DType.F32),), dict(attrs)) for shape, attrs in cases]
    attrs = window_attrs((1, 3), low=(0, 1))
    return found + [Sample((TensorType((3, 5), d),), dict(attrs)) for d in sampled(NUMBERS)]


def _row(name: str, fold: Fold, fn: np.ufunc, exact: bool = False) -> OpSpec:
    return OpSpec(
        name=name,
        family=Family.WINDOW,
        infer=_infer,
        reference=_reference(fn, fold),
        flops=_flops,
        samples=_samples,
        fold=fold,
        over=FoldOver(lambda c: tuple(c["window"]), _term(fold)),
        axes=_axes,
        needed=_needed,
        exact=always if exact else never,
        terms=lambda c: math.prod(c["window"]),
    )


register(
    _row("reduce_window_sum", SUM, np.add),
    _row("reduce_window_prod", PROD, np.multiply),
    _row("reduce_window_max", MAX, np.maximum, exact=True),
    _row("reduce_window_min", MIN, np.minimum, exact=True),
)
