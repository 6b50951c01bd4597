"""Rules for aten overloads that pool: windows that slide, and bins of the extent they divide."""

from __future__ import annotations

import math

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import windows
from autofuse.graph.composites.pooling import PoolSpec, mean_pool, mean_pool_grad
from autofuse.graph.composites.resample import along
from autofuse.graph.types import Value
from autofuse.graph.writer import Shape
from autofuse.ops.dtypes import DType


def _spec(c: TorchCall, shape: Shape, spatial: int) -> PoolSpec:
    """The windows along the last `spatial` axes of `shape`."""

    def each(name: str, plain: int) -> tuple[int, ...]:
        found = tuple(map(int, c.given.get(name) or (plain,)))
        return found * spatial if len(found) == 1 else found

    divisor = c.given.get("divisor_override")
    return PoolSpec(
        each("kernel_size", 1), each("stride", 1) if c["stride"] else None, each("padding", 0),
        each("dilation", 1), bool(c["ceil_mode"]), bool(c.given.get("count_include_pad")),
        None if divisor is None else int(divisor), spatial=range(len(shape) - spatial, len(shape)),
    )  # fmt: skip


def _max_pool(spatial: int) -> TorchRule:
    """The largest elements, and where they were in the image laid out flat."""

    def rule(c: TorchCall) -> tuple[Value, Value]:
        w, x = c.w, c.value("self")
        shape = w.shape(x)
        attrs = windows.attrs_of(_spec(c, shape, spatial).over(shape))
        inner = shape[len(shape) - spatial :]
        numbers = w.reshape(w.iota((math.prod(inner),), DType.I32, 0), inner)
        at = windows.picked(w, w.spread(numbers, shape), x, attrs)
        return w.op("reduce_window_max", x, **attrs), w.cast(at, DType.I64)

    return rule


def _max_pool_backward(c: TorchCall) -> Value:
    """Where the largest elements were is found again, so that it need not be kept."""
    w, g, x = c.w, c.value("grad_output"), c.value("self")
    axes = _spec(c, w.shape(x), 2).over(w.shape(x))
    return windows.extremum_windows_grad(w, g, x, windows.attrs_of(axes))


def _avg_pool(spatial: int) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        x = c.value("self", c.out.dtype.compute)
        return c.w.cast(mean_pool(c.w, x, _spec(c, c.w.shape(x), spatial)), c.out.dtype)

    return rule


def _avg_pool_backward(spatial: int) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        g, shape = c.value("grad_output", c.out.dtype.compute), c.shape("self")
        found = mean_pool_grad(c.w, g, _spec(c, shape, spatial), shape)
        return c.w.cast(found, c.out.dtype)

    return rule


# Bins


def _bins(extent: int, count: int) -> np.ndarray:
    """[count, extent]: the share that each element has in the mean of each bin, which runs from
    floor(k extent / count) to ceil((k + 1) extent / count)."""
    made = np.zeros((count, extent))
    for k in range(count):
        first, last = k * extent // count, -(-(k + 1) * extent // count)
        made[k, first:last] = 1.0 / (last - first)
    return made


def _adaptive(spatial: int) -> TorchRule:
    """Means of bins, along one axis after another."""

    def rule(c: TorchCall) -> Value:
        w, x = c.w, c.value("self", c.out.dtype.compute)
        for axis in range(len(c.out.shape) - spatial, len(c.out.shape)):
            extent, count = w.shape(x)[axis], c.out.shape[axis]
            if not extent:
                raise FrontendError("means of no elements are not supported")
            if count and extent % count == 0:
                shape = w.shape(x)
                apart = (*shape[:axis], count, extent // count, *shape[axis + 1 :])
                x = composites.mean(w, w.reshape(x, apart), axis + 1)
            else:
                x = along(w, x, axis, _bins(extent, count))
        return w.cast(x, c.out.dtype)

    return rule


def _adaptive_backward(spatial: int) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        w, g = c.w, c.value("grad_output", c.out.dtype.compute)
        rank = len(c.out.shape)
        for axis in range(rank - spatial, rank):
            extent, shape = c.out.shape[axis], w.shape(g)
            count = shape[axis]
            if not count or not extent:
                raise FrontendError("means of no elements are not supported")
            if extent % count == 0:
                each = extent // count
                apart = (*shape[: axis + 1], each, *shape[axis + 1 :])
                dims = [*range(axis + 1), *range(axis + 2, rank + 1)]
                g = w.mul(w.broadcast(g, apart, dims), 1.0 / each)
                g = w.reshape(g, (*shape[:axis], extent, *shape[axis + 1 :]))
            else:
                g = along(w, g, axis, _bins(extent, count).T)
        return w.cast(g, c.out.dtype)

    return rule


# Resampling


def _nearest(extent: int, count: int, scale: float | None) -> np.ndarray:
    """[count, extent]: the one element that each place takes. Places are computed in f32, as torch
    does."""
    step = np.float32(1.0 / scale if scale else extent / count)
    at = np.minimum((np.arange(count, dtype=np.float32) * step).astype(np.int64), extent - 1)
    return np.eye(extent)[at]


def _linear(extent: int, count: int, scale: float | None, corners: bool) -> np.ndarray:
    """[count, extent]: the two elements around each place, weighted."""
    places = np.arange(count)
    if corners:
        at = places * ((extent - 1) / (count - 1) if count > 1 else 0.0)
    else:
        step = 1.0 / scale if scale else extent / count
        at = np.maximum((places + 0.5) * step - 0.5, 0.0)
    low = np.minimum(at.astype(np.int64), extent - 1)
    high = np.minimum(low + 1, extent - 1)
    share = (at - low)[:, None]
    matrix: np.ndarray = (1.0 - share) * np.eye(extent)[low] + share * np.eye(extent)[high]
    return matrix


def _upsample_backward(linear: bool) -> TorchRule:
    """Each of the two axes is resampled by a matrix, so its gradient is by the transposed one."""

    def rule(c: TorchCall) -> Value:
        w, g = c.w, c.value("grad_output", c.out.dtype.compute)
        for axis, name in ((2, "scales_h"), (3, "scales_w")):
            extent, count, scale = c.out.shape[axis], w.shape(g)[axis], c[name]
            if linear:
                matrix = _linear(extent, count, scale, bool(c["align_corners"]))
            else:
                matrix = _nearest(extent, count, scale)
            g = along(w, g, axis, matrix.T)
        return w.cast(g, c.out.dtype)

    return rule


TORCH_WINDOWS: dict[str, TorchRule] = {
    "aten._adaptive_avg_pool2d.default": _adaptive(2),
    "aten._adaptive_avg_pool2d_backward.default": _adaptive_backward(2),
    "aten._adaptive_avg_pool3d.default": _adaptive(3),
    "aten._adaptive_avg_pool3d_backward.default": _adaptive_backward(3),
    "aten.avg_pool2d.default": _avg_pool(2),
    "aten.avg_pool2d_backward.default": _avg_pool_backward(2),
    "aten.avg_pool3d.default": _avg_pool(3),
    "aten.avg_pool3d_backward.default": _avg_pool_backward(3),
    "aten.max_pool2d_with_indices.default": _max_pool(2),
    "aten.max_pool2d_with_indices_backward.default": _max_pool_backward,
    "aten.max_pool3d_with_indices.default": _max_pool(3),
    "aten.upsample_bilinear2d_backward.default": _upsample_backward(True),
    "aten.upsample_nearest2d_backward.default": _upsample_backward(False),
}
