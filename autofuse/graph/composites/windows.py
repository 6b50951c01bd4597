"""Convolutions with the usual arguments, extrema of windows, and their gradients.

Each function appends to a GraphWriter and returns a value. Numbers for spatial axes are one for all
of them or a sequence; padding is such numbers, a sequence of (low, high), "valid", "same" (as many
windows as there are strides in the extent) or "same_lower" (the odd place comes first).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from autofuse.graph.composites import moves
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.convolution import conv_attrs
from autofuse.ops.dtypes import DType
from autofuse.ops.reduction import highest, lowest
from autofuse.ops.sliding import Sliding
from autofuse.ops.types import GraphError
from autofuse.ops.window_reduction import window_attrs

PerAxis = int | Sequence[int]
Padding = int | str | Sequence[int | Sequence[int]]
Windows = Mapping[str, Sequence[int]]
# Places of a window that are compared one after another, each with an op or two of its own.
MOST_COMPARED = 128


def per_axis(value: PerAxis, count: int, what: str) -> tuple[int, ...]:
    """One number for each of `count` axes; raises GraphError where there are more or fewer."""
    found = (value,) * count if isinstance(value, int | np.integer) else tuple(value)
    if len(found) != count:
        raise GraphError(f"{what} {value} is not one number for each of {count} axes")
    return tuple(int(n) for n in found)


def _named_padding(padding: str, axes: Sequence[Sliding]) -> tuple[tuple[int, int], ...]:
    if padding.lower() == "valid":
        return ((0, 0),) * len(axes)
    same = tuple(map(_same, axes))
    if padding.lower() == "same":
        return same
    if padding.lower() == "same_lower":
        return tuple((high, low) for low, high in same)
    raise GraphError(f"padding '{padding}' is neither numbers nor 'valid' nor 'same'")


def padding_of(padding: Padding, axes: Sequence[Sliding]) -> tuple[tuple[int, int], ...]:
    """(low, high) for each of `axes`, which have no padding yet."""
    if isinstance(padding, str):
        return _named_padding(padding, axes)
    each = [padding] * len(axes) if isinstance(padding, int) else list(padding)
    ends = [tuple(n) if isinstance(n, Sequence) else (n, n) for n in each]
    if len(ends) != len(axes) or any(len(pair) != 2 for pair in ends):
        raise GraphError(f"padding {padding} is not a number or pair for each of {len(axes)} axes")
    return tuple((int(low), int(high)) for low, high in ends)


def _same(axis: Sliding) -> tuple[int, int]:
    windows = -(-axis.spread // axis.stride)
    missing = max(0, (windows - 1) * axis.stride + axis.reach - axis.spread)
    return missing // 2, missing - missing // 2


# Convolution


def conv(
    w: GraphWriter,
    x: Value,
    kernel: Value,
    stride: PerAxis = 1,
    padding: Padding = 0,
    dilation: PerAxis = 1,
    groups: int = 1,
    *,
    image_dilation: PerAxis = 1,
    batch_groups: int = 1,
    layout: tuple[Shape, Shape, Shape] | None = None,
) -> Value:
    """Windows of `x` times `kernel`, added up: [batch, feature, spatial...] and [out feature,
    feature of a group, spatial...] give [batch, out feature, spatial...], or what `layout` says:
    the axes of x, kernel and result in these orders of roles. `dilation` is that of the kernel;
    `image_dilation` puts zeros between elements of x, as a transposed convolution does."""
    rank = len(w.shape(x))
    if len(w.shape(kernel)) != rank or rank < 3:
        raise GraphError(
            f"conv of {w.type_of(x)} and {w.type_of(kernel)}: both need batch or out feature, "
            "feature and the same spatial axes"
        )
    first = tuple(range(rank))
    image, weights, made = (tuple(map(int, axes)) for axes in layout or (first, first, first))
    numbers = [
        per_axis(value, rank - 2, what)
        for value, what in (
            (stride, "stride"), (image_dilation, "image dilation"), (dilation, "dilation"),
        )
    ]  # fmt: skip
    axes = [
        Sliding(w.shape(x)[a], w.shape(kernel)[b], step, 0, 0, holes, apart)
        for a, b, step, holes, apart in zip(image[2:], weights[2:], *numbers, strict=True)
    ]
    ends = padding_of(padding, axes)
    attrs = conv_attrs(
        rank - 2, lhs_axes=image, rhs_axes=weights, out_axes=made, stride=numbers[0],
        low=tuple(low for low, _ in ends), high=tuple(high for _, high in ends),
        lhs_dilation=numbers[1], rhs_dilation=numbers[2], groups=groups, batch_groups=batch_groups,
    )  # fmt: skip
    return w.op("conv", x, kernel, **attrs)


def _swapped(axes: Sequence[int]) -> tuple[int, ...]:
    return (axes[1], axes[0], *axes[2:])


def _regrouped(w: GraphWriter, v: Value, source: int, target: int, count: int) -> Value:
    """`count` groups of axis `source` as the slower part of axis `target`."""
    shape = w.shape(v)
    split = (*shape[:source], count, shape[source] // count, *shape[source + 1 :])
    rest = [a for a in range(len(split)) if a != source]
    rest.insert(target, source)
    moved = w.transpose(w.reshape(v, split), rest)
    wide = w.shape(moved)
    return w.reshape(moved, (*wide[:target], wide[target] * wide[target + 1], *wide[target + 2 :]))


def _ends_of_grad(axis: Sliding) -> tuple[int, int]:
    low = axis.reach - 1 - axis.low
    return low, axis.spread + axis.reach - 1 - ((axis.count - 1) * axis.stride + 1) - low


def conv_input_grad(
    w: GraphWriter, g: Value, kernel: Value, shape: Sequence[int], attrs: Mapping[str, Any]
) -> Value:
    """The gradient of a conv with respect to its image of `shape`, from that of its result, `g`:
    the conv of `g`, with holes for strides, and the kernel turned round, as in jax.lax."""
    lhs, rhs, out = (tuple(attrs[k]) for k in ("lhs_axes", "rhs_axes", "out_axes"))
    groups, batch_groups = attrs["groups"], attrs["batch_groups"]
    split = groups * batch_groups
    if split > 1:
        kernel = _regrouped(w, kernel, rhs[0], rhs[1], split)
    axes = _axes_of(attrs, [shape[a] for a in lhs[2:]], [w.shape(kernel)[a] for a in rhs[2:]])
    ends = [_ends_of_grad(axis) for axis in axes]
    found = conv(
        w, g, w.reverse(kernel, rhs[2:]), [a.base_dilation for a in axes],
        ends, [a.window_dilation for a in axes], split,
        image_dilation=[a.stride for a in axes], layout=(out, _swapped(rhs), lhs),
    )  # fmt: skip
    return _regrouped(w, found, lhs[1], lhs[0], batch_groups) if batch_groups > 1 else found


def conv_to_blocks(w: GraphWriter, x: Value, kernel: Value) -> Value:
    """The transposed convolution whose windows lie side by side: each point of `x` [batch, feature,
    spatial...], times the kernel [feature, out feature, spatial...], is a block of the result
    [batch, out feature, spatial...]. A product, then a move; no zeros between points."""
    (n, _, *image), (c, o, *sizes) = w.shape(x), w.shape(kernel)
    count = len(sizes)
    spatial = range(1, count + 1)
    points = w.reshape(w.transpose(kernel, (*range(2, count + 2), 1, 0)), (-1, c, *(1,) * count))
    made = w.transpose(conv(w, x, points), (0, *range(2, count + 2), 1))
    apart = w.reshape(made, (n, *image, *sizes, o))
    pairs = (a for axis in spatial for a in (axis, axis + count))
    blocks = w.transpose(apart, (0, *pairs, 2 * count + 1))
    whole = [a * b for a, b in zip(image, sizes, strict=True)]
    return w.transpose(w.reshape(blocks, (n, *whole, o)), (0, count + 1, *spatial))


def conv_kernel_grad(
    w: GraphWriter, x: Value, g: Value, shape: Sequence[int], attrs: Mapping[str, Any]
) -> Value:
    """The gradient of a conv with respect to its kernel of `shape`, from that of its result, `g`:
    the conv of the image by `g`, batch and features in each other's roles, as in jax.lax."""
    lhs, rhs, out = (_swapped(attrs[k]) for k in ("lhs_axes", "rhs_axes", "out_axes"))
    axes = _axes_of(attrs, [w.shape(x)[a] for a in lhs[2:]], [shape[a] for a in rhs[2:]])
    high = [(axis.count - 1) * axis.stride + axis.reach - axis.spread - axis.low for axis in axes]
    return conv(
        w, x, g, [a.window_dilation for a in axes],
        [(axis.low, after) for axis, after in zip(axes, high, strict=True)],
        [a.stride for a in axes], attrs["batch_groups"],
        image_dilation=[a.base_dilation for a in axes], batch_groups=attrs["groups"],
        layout=(lhs, out, rhs),
    )  # fmt: skip


def _axes_of(
    attrs: Mapping[str, Any], extents: Sequence[int], sizes: Sequence[int]
) -> list[Sliding]:
    keys = ("stride", "low", "high", "lhs_dilation", "rhs_dilation")
    return [Sliding(*n) for n in zip(extents, sizes, *(attrs[k] for k in keys), strict=True)]


# Windows


def _sliding(w: GraphWriter, x: Value, attrs: Windows) -> list[Sliding]:
    keys = ("window", "stride", "low", "high", "base_dilation", "window_dilation")
    return [Sliding(*n) for n in zip(w.shape(x), *(attrs[k] for k in keys), strict=True)]


def attrs_of(axes: Sequence[Sliding]) -> dict[str, Shape]:
    """The attributes of windows along every axis."""
    return window_attrs(
        [a.size for a in axes], stride=[a.stride for a in axes], low=[a.low for a in axes],
        high=[a.high for a in axes], base_dilation=[a.base_dilation for a in axes],
        window_dilation=[a.window_dilation for a in axes],
    )  # fmt: skip


def sum_windows_grad(w: GraphWriter, g: Value, axes: Sequence[Sliding]) -> Value:
    """The gradient of a sum over windows with respect to its operand: windows of the gradient with
    holes for strides. The operand itself had no holes."""
    low = [axis.reach - 1 - axis.low for axis in axes]
    high = [
        axis.extent + axis.reach - 2 - (axis.count - 1) * axis.stride - before
        for axis, before in zip(axes, low, strict=True)
    ]
    attrs = window_attrs(
        [axis.size for axis in axes], low=low, high=high,
        base_dilation=[axis.stride for axis in axes],
        window_dilation=[axis.window_dilation for axis in axes],
    )  # fmt: skip
    return w.op("reduce_window_sum", g, **attrs)


# What an extremum of windows picks


def _places(axes: Sequence[Sliding]) -> list[tuple[int, ...]]:
    """Every place of a window, row-major."""
    return list(product(*(range(axis.size) for axis in axes)))


def _taps(w: GraphWriter, v: Value, fill: Value, axes: Sequence[Sliding]) -> list[Value]:
    """What windows have at each of their places, one value for each place, `fill` outside."""
    padded = moves.pad(w, v, fill, [axis.low for axis in axes], [axis.high for axis in axes])
    found = []
    for place in _places(axes):
        start = [at * axis.window_dilation for at, axis in zip(place, axes, strict=True)]
        pairs = list(zip(start, axes, strict=True))
        stop = [first + (axis.count - 1) * axis.stride + 1 for first, axis in pairs]
        found.append(w.slice(padded, start, stop, [axis.stride for axis in axes]))
    return found


def _winners(w: GraphWriter, x: Value, axes: Sequence[Sliding], largest: bool) -> list[Value]:
    """For every place but the first, whether it beats those before it. As in XLA the first of equal
    elements wins, one before a NaN loses, and padding never wins."""
    size = math.prod(axis.size for axis in axes)
    if size > MOST_COMPARED:
        raise GraphError(f"windows of {size} elements are too large to compare (at most 128)")
    if any(axis.base_dilation > 1 for axis in axes):
        raise GraphError("what an extremum picks from an operand with holes is not supported")
    worst = (lowest if largest else highest)(w.dtype(x)).value
    elements = _taps(w, x, w.constant(worst, w.dtype(x)), axes)
    holds = _taps(w, w.full(True, w.shape(x), DType.BOOL), w.constant(False, DType.BOOL), axes)
    best, held, wins = elements[0], holds[0], []
    for element, there in zip(elements[1:], holds[1:], strict=True):
        loses = w.map("not", w.map("ge" if largest else "le", best, element))
        won = w.map("and", there, w.map("or", loses, w.map("not", held)))
        best, held = w.select(won, element, best), w.map("or", held, there)
        wins.append(won)
    return wins


def picked(w: GraphWriter, v: Value, x: Value, attrs: Windows, largest: bool = True) -> Value:
    """What `v` has where each window of `x` has its extremum."""
    axes = _sliding(w, x, attrs)
    values = _taps(w, v, w.constant(0, w.dtype(v)), axes)
    found = values[0]
    for value, won in zip(values[1:], _winners(w, x, axes, largest), strict=True):
        found = w.select(won, value, found)
    return found


def extremum_windows_grad(
    w: GraphWriter, g: Value, x: Value, attrs: Windows, largest: bool = True
) -> Value:
    """The gradient of the largest (or smallest) elements of windows with respect to `x`: each
    element of `g` added where its window has its extremum."""
    axes = _sliding(w, x, attrs)
    last = w.full(0, w.shape(g), DType.I32)
    for number, won in enumerate(_winners(w, x, axes, largest), start=1):
        last = w.select(won, number, last)
    shares = (
        w.select(w.map("eq", last, number), g, 0) for number in range(len(_places(axes)))
    )  # fmt: skip
    return put_back(w, shares, axes)


def put_back(w: GraphWriter, parts: Iterable[Value], axes: Sequence[Sliding]) -> Value:
    """An array along `axes` to whose elements the windows' `parts` are added: one value for each
    place of a window, row-major, with an element for each window."""
    total: Value | None = None
    for part, place in zip(parts, _places(axes), strict=True):
        low = [at * a.window_dilation - a.low for at, a in zip(place, axes, strict=True)]
        high = [
            axis.extent - before - (axis.count - 1) * axis.stride - 1
            for before, axis in zip(low, axes, strict=True)
        ]
        zero, holes = w.constant(0, w.dtype(part)), [a.stride - 1 for a in axes]
        moved = moves.pad(w, part, zero, low, high, holes)
        total = moved if total is None else w.add(total, moved)
    assert total is not None
    return total
