"""Rules for ONNX operators that slide windows: convolution and pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import activations, moves, windows
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import math as composites_math
from autofuse.graph.composites import scatter as composites_scatter
from autofuse.graph.composites.layers import require_float
from autofuse.graph.composites.pooling import Ends, PoolSpec, mean_pool, pool
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.convolution import MOST_SPATIAL, conv_attrs
from autofuse.ops.dtypes import DType
from autofuse.ops.sliding import Sliding


def _each(c: OnnxCall, name: str, count: int, plain: int) -> tuple[int, ...]:
    """One number for each of `count` spatial axes, as attribute `name` says."""
    found = tuple(c.attr(name) or (plain,) * count)
    if len(found) != count:
        raise FrontendError(f"attribute '{name}' has {len(found)} numbers for {count} axes")
    return found


def _pads(c: OnnxCall, count: int) -> Ends:
    found = _each(c, "pads", 2 * count, 0)
    return list(zip(found[:count], found[count:], strict=True))


def _spec(c: OnnxCall, sizes: Sequence[int]) -> PoolSpec:
    """Windows of `sizes`, as the attributes say."""
    count, auto = len(sizes), str(c.attr("auto_pad", "NOTSET"))
    steps, apart = (_each(c, name, count, 1) for name in ("strides", "dilations"))
    return PoolSpec(
        sizes, steps, _AUTO_PAD.get(auto) or _pads(c, count), apart,
        bool(c.attr("ceil_mode", 0)), bool(c.attr("count_include_pad", 0)),
    )  # fmt: skip


_AUTO_PAD = {"SAME_UPPER": "same", "SAME_LOWER": "same_lower", "VALID": "valid"}


def _pool_spec(c: OnnxCall) -> PoolSpec:
    return _spec(c, _each(c, "kernel_shape", len(c.shape(0)) - 2, 1))


# Convolution


def convolved(c: OnnxCall, x: Value, kernel: Value) -> Value:
    """Operands of one dtype, which need not be the node's own."""
    w = c.w
    image, weights = w.shape(x), w.shape(kernel)
    spatial = len(image) - 2
    if not 1 <= spatial <= MOST_SPATIAL or len(weights) != len(image):
        raise FrontendError(f"a convolution over {spatial} spatial axes is not supported")
    axes = _spec(c, weights[2:]).along(image[2:])
    attrs = _conv_attrs(axes, int(c.attr("group", 1)))
    return w.op("conv", x, kernel, **attrs)


def _conv_attrs(axes: Sequence[Sliding], groups: int) -> dict[str, Any]:
    return conv_attrs(
        len(axes), stride=tuple(a.stride for a in axes), low=tuple(a.low for a in axes),
        high=tuple(a.high for a in axes), rhs_dilation=tuple(a.window_dilation for a in axes),
        groups=groups,
    )  # fmt: skip


def _with_bias(c: OnnxCall, found: Value) -> Value:
    bias = c.optional(2)
    if bias is None:
        return found
    return c.w.add(found, c.w.reshape(bias, (-1, *(1 for _ in c.w.shape(found)[2:]))))


def _conv(c: OnnxCall) -> Value:
    return _with_bias(c, convolved(c, c.value(0), c.value(1)))


def _conv_transpose(c: OnnxCall) -> Value:
    """The gradient, with respect to its image, of the convolution the other way round."""
    w, x, kernel = c.w, c.value(0), c.value(1)
    groups, image, sizes = int(c.attr("group", 1)), w.shape(x)[2:], w.shape(kernel)[2:]
    made, axes = _transposed_axes(c, image, sizes)
    shape = (w.shape(x)[0], w.shape(kernel)[1] * groups, *made)
    if not 1 <= len(made) <= MOST_SPATIAL:
        raise FrontendError(f"a convolution over {len(made)} spatial axes is not supported")
    if groups == 1 and all(map(_side_by_side, axes, image)):
        return _with_bias(c, windows.conv_to_blocks(w, x, kernel))
    attrs = _conv_attrs(axes, groups)
    return _with_bias(c, windows.conv_input_grad(w, x, kernel, shape, attrs))


def _side_by_side(axis: Sliding, count: int) -> bool:
    """Whether so many windows meet along an axis, and cover it."""
    plain = (axis.low, axis.high, axis.window_dilation) == (0, 0, 1)
    return plain and axis.stride == axis.size and axis.extent == count * axis.size


def _transposed_axes(
    c: OnnxCall, image: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[Sliding]]:
    """The spatial extents of the result, and the windows that would make `image` of it."""
    count = len(image)
    strides, apart = (_each(c, name, count, 1) for name in ("strides", "dilations"))
    more, auto = _each(c, "output_padding", count, 0), str(c.attr("auto_pad", "NOTSET"))
    axes = [
        Sliding(0, size, step, 0, 0, 1, between)
        for size, step, between in zip(sizes, strides, apart, strict=True)
    ]
    full = [(n - 1) * a.stride + a.reach for n, a in zip(image, axes, strict=True)]
    wanted = c.attr("output_shape")
    if wanted is None and auto.startswith("SAME"):
        wanted = [n * step for n, step in zip(image, strides, strict=True)]
    if wanted is None or c.attr("pads"):
        ends = _pads(c, count) if auto != "VALID" else [(0, 0)] * count
        sums = (n + extra - sum(pair) for n, extra, pair in zip(full, more, ends, strict=True))
        wanted = list(sums) if wanted is None else wanted
    else:
        gone = (n + extra - m for n, extra, m in zip(full, more, wanted, strict=True))
        ends = [(n // 2, n - n // 2) if auto == "SAME_UPPER" else (n - n // 2, n // 2)
                for n in gone]  # fmt: skip
    found = [
        replace(a, extent=int(m), low=low, high=n - int(m) - low)
        for a, m, n, (low, _) in zip(axes, wanted[-count:], full, ends, strict=True)
    ]
    return [a.extent for a in found], found


def _causal_conv(c: OnnxCall) -> tuple[Value, Value]:
    """Each channel by its own kernel over what came before, the end of which comes out again."""
    w, x, kernel, before = c.w, c.value(0), c.value(1), c.optional(3)
    batch, channels, length = w.shape(x)
    kept = w.shape(kernel)[2] - 1
    if before is None:
        before = w.full(0, (batch, channels, kept), w.dtype(x))
    whole = w.concat([before, x], 2)
    attrs = conv_attrs(1, stride=(1,), low=(0,), high=(0,), rhs_dilation=(1,), groups=channels)
    found = _with_bias(c, w.op("conv", whole, kernel, **attrs))
    if c.attr("activation", "none") != "none":
        found = activations.silu(w, found)
    return found, w.part(whole, 2, length, length + kept)


# Pooling


def _max_pool(c: OnnxCall) -> Value | tuple[Value, Value]:
    """The largest elements, and where asked for their places in the whole array laid out flat."""
    w, x = c.w, c.value(0)
    attrs = windows.attrs_of(_pool_spec(c).over(w.shape(x)))
    found = w.op("reduce_window_max", x, **attrs)
    if len(c.wanted) < 2 or not c.wanted[1]:
        return found
    numbers = _flat_places(w, w.shape(x), bool(c.attr("storage_order", 0)))
    return found, w.cast(windows.picked(w, numbers, x, attrs), DType.I64)


def _flat_places(w: GraphWriter, shape: Shape, columns_first: bool) -> Value:
    """The number of every element, batch and feature first; along the spatial axes rows or columns
    come first."""
    order = range(2, len(shape)) if columns_first else range(len(shape) - 1, 1, -1)
    steps, step = {}, 1
    for axis in (*order, 1, 0):
        steps[axis], step = step, step * shape[axis]
    found = w.full(0, shape, DType.I32)
    for axis in range(len(shape)):
        found = w.add(found, w.mul(w.iota(shape, DType.I32, axis), steps[axis]))
    return found


def _average_pool(c: OnnxCall) -> Value:
    x = c.value(0, require_float(c.dtype(0)).compute)
    return c.w.cast(mean_pool(c.w, x, _pool_spec(c)), c.dtype(0))


def _norm_pool(c: OnnxCall, whole: bool) -> Value:
    """The p-norm of each window, or of all that is spatial."""
    w, p = c.w, c.attr("p", 2)
    x = c.value(0, require_float(c.dtype(0)).compute)
    powers = composites_math.power(w, w.map("abs", x), p)
    if whole:
        total = w.reduce("reduce_sum", powers, range(2, len(w.shape(x))), keepdims=True)
    else:
        total = pool(w, "sum", powers, _pool_spec(c))
    return w.cast(composites_math.power(w, total, 1.0 / p), c.dtype(0))


def _global(op: str) -> OnnxRule:
    """A fold of all that is spatial, whose axes stay with extent 1."""

    def rule(c: OnnxCall) -> Value:
        w, x = c.w, c.value(0)
        axes = range(2, len(w.shape(x)))
        if op == "mean":
            return composites.mean(w, x, axes, keepdims=True)
        return w.reduce(op, x, axes, keepdims=True)

    return rule


def _max_unpool(c: OnnxCall) -> Value:
    """Elements written where a MaxPool found them; the places are those of the extents that the
    windows follow from, beyond which the result may go."""
    w, x, places = c.w, c.value(0), c.value(1)
    image = w.shape(x)
    count = len(image) - 2
    sizes, strides = _each(c, "kernel_shape", count, 1), _each(c, "strides", count, 1)
    numbers = zip(image[2:], sizes, strides, _pads(c, count), strict=True)
    inner = (*image[:2], *((n - 1) * step - sum(ends) + size for n, size, step, ends in numbers))
    flat = w.full(0, (math.prod(inner),), w.dtype(x))
    at = w.reshape(places, (-1, 1))
    made = composites_scatter.scatter_at(w, flat, at, w.reshape(x, (-1,)), (0,))
    found = w.reshape(made, inner)
    if not c.has(2):
        return found
    wanted = c.ints(2, "the shape of a MaxUnpool")
    high = [m - n for n, m in zip(inner, wanted, strict=True)]
    return moves.pad(w, found, w.constant(0, w.dtype(x)), [0] * len(inner), high)


# Windows put back


def _col2im(c: OnnxCall) -> Value:
    """[batch, feature times place of a window, window] added up where each place was."""
    w, x = c.w, c.value(0)
    image, sizes = (c.ints(k, what) for k, what in ((1, "the image"), (2, "the block")))
    axes = _spec(c, sizes).along(image)
    batch, wide, _ = w.shape(x)
    taps = math.prod(sizes)
    if taps > windows.MOST_COMPARED:
        raise FrontendError(f"windows of {taps} elements are too large to put back (at most 128)")
    shape = (batch, wide // taps, taps, *(a.count for a in axes))
    apart, features = w.reshape(x, shape), wide // taps
    parts = (w.reshape(w.part(apart, 2, k, k + 1), (batch, features, *shape[3:]))
             for k in range(taps))  # fmt: skip
    return windows.put_back(w, parts, [Sliding(batch), Sliding(features), *axes])


def _lrn(c: OnnxCall) -> Value:
    """Over the sum of squares of neighbouring channels (Krizhevsky et al., 2012)."""
    w, size = c.w, int(c["size"])
    x = c.value(0, require_float(c.dtype(0)).compute)
    low = (size - 1) // 2
    axes = [Sliding(n) for n in w.shape(x)]
    axes[1] = Sliding(w.shape(x)[1], size, 1, low, size - 1 - low)
    total = w.op("reduce_window_sum", w.mul(x, x), **windows.attrs_of(axes))
    scale = w.add(w.mul(total, float(c["alpha"]) / size), float(c["bias"]))
    power = w.map("pow", scale, float(np.float32(c["beta"])))
    return w.cast(w.div(x, power), c.dtype(0))


ONNX_WINDOWS: OnnxRules = {
    (STANDARD, "AveragePool", 1): _average_pool,
    (STANDARD, "CausalConvWithState", 1): _causal_conv,
    (STANDARD, "Col2Im", 1): _col2im,
    (STANDARD, "Conv", 1): _conv,
    (STANDARD, "ConvTranspose", 1): _conv_transpose,
    (STANDARD, "GlobalAveragePool", 1): _global("mean"),
    (STANDARD, "GlobalLpPool", 1): lambda c: _norm_pool(c, True),
    (STANDARD, "GlobalMaxPool", 1): _global("reduce_max"),
    (STANDARD, "LRN", 1): _lrn,
    (STANDARD, "LpPool", 1): lambda c: _norm_pool(c, False),
    (STANDARD, "MaxPool", 1): _max_pool,
    (STANDARD, "MaxUnpool", 1): _max_unpool,
}
