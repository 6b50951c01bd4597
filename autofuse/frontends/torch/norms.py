"""Rules for aten overloads that normalise."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule
from autofuse.graph.composites import layers as composites
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType


def _moments(w: GraphWriter, x: Value, axes: Sequence[int], eps: float) -> tuple[Value, Value]:
    """Mean and 1 / sqrt(variance + eps) over `axes`, which stay with extent 1."""
    mean = composites.mean(w, x, axes, keepdims=True)
    centred = w.sub(x, mean)
    spread = composites.mean(w, w.mul(centred, centred), axes, keepdims=True)
    return mean, w.map("rsqrt", w.add(spread, eps))


def _shaped(w: GraphWriter, v: Value, result: TensorType | None) -> Value | None:
    """A statistic as torch has it; one that it leaves empty is."""
    if result is None:
        return None
    if result.size == 0:
        return w.full(0, result.shape, result.dtype)
    return w.cast(w.reshape(v, result.shape), result.dtype)


def _parameter(c: TorchCall, name: str, shape: Sequence[int], dtype: DType) -> Value | None:
    """A scale or bias laid out along the axes of `shape`."""
    found = c.optional(name, dtype)
    return None if found is None else c.w.reshape(found, shape)


def _layer_norm(c: TorchCall) -> tuple[Value | None, ...]:
    w, eps = c.w, float(c["eps"])
    x = c.value("input", c.out.dtype.compute)
    rank, dtype = len(w.shape(x)), w.dtype(x)
    axes = tuple(range(rank - len(c["normalized_shape"]), rank))
    scale, bias = (c.optional(name, dtype) for name in ("weight", "bias"))
    if 0 in w.shape(x):
        return _nothing(c)
    found = composites.layer_norm(w, x, scale, bias, eps, axes)
    mean, inverse = _moments(w, x, axes, eps)
    rest = (_shaped(w, v, t) for v, t in zip((mean, inverse), c.results[1:], strict=True))
    return (w.cast(found, c.out.dtype), *rest)


def _nothing(c: TorchCall) -> tuple[Value | None, ...]:
    """Of no elements: no results but empty ones, and statistics that torch leaves open."""
    return tuple(None if t is None else c.w.full(0, t.shape, t.dtype) for t in c.results)


def _group_norm(c: TorchCall) -> tuple[Value | None, ...]:
    """Statistics of each group of neighbouring channels of each sample."""
    w, eps, groups = c.w, float(c["eps"]), int(c["group"])
    x = c.value("input", c.out.dtype.compute)
    shape: Shape = w.shape(x)
    if 0 in shape:
        return _nothing(c)
    scale, bias = (c.optional(name, w.dtype(x)) for name in ("weight", "bias"))
    found = composites.group_norm(w, x, groups, scale, bias, eps)
    mean, inverse = _moments(w, w.reshape(x, (shape[0], groups, -1)), (2,), eps)
    rest = (_shaped(w, v, t) for v, t in zip((mean, inverse), c.results[1:], strict=True))
    return (w.cast(found, c.out.dtype), *rest)


def _batch_norm(c: TorchCall) -> tuple[Value | None, ...]:
    """With the running statistics; the batch's own are empty results."""
    w, x = c.w, c.value("input", c.out.dtype.compute)
    mean = c.value("running_mean")
    return (_with_running_statistics(c, x), *(_shaped(w, mean, t) for t in c.results[1:]))


def _with_running_statistics(c: TorchCall, x: Value) -> Value:
    mean, var = c.value("running_mean"), c.value("running_var")
    scale, bias = (c.optional(name) for name in ("weight", "bias"))
    found = composites.batch_norm(c.w, x, mean, var, scale, bias, float(c["eps"]))
    return c.w.cast(found, c.out.dtype)


def _scaled(w: GraphWriter, x: Value, scale: Value | None, bias: Value | None) -> Value:
    x = x if scale is None else w.mul(x, scale)
    return x if bias is None else w.add(x, bias)


def _batch_norm_training(c: TorchCall) -> tuple[Value | None, ...]:
    """With the batch's own statistics, which come out."""
    w, x = c.w, c.value("input", c.out.dtype.compute)
    if "training" in c.given and not c["training"]:
        return _batch_norm_unmoved(c)
    if c.given.get("running_mean") is not None:
        raise FrontendError("running statistics would be changed in place")
    shape = w.shape(x)
    axes = tuple(a for a in range(len(shape)) if a != 1)
    count = math.prod(shape[a] for a in axes)
    if not count:
        raise FrontendError("statistics of no elements are not supported")
    mean, inverse = _moments(w, x, axes, float(c["eps"]))
    found = composites.layer_norm(w, x, eps=float(c["eps"]), axes=axes)
    around = (1, -1, *[1] * len(shape[2:]))
    scale, bias = (_parameter(c, name, around, w.dtype(x)) for name in ("weight", "bias"))
    found = _scaled(w, found, scale, bias)
    rest = (_shaped(w, v, t) for v, t in zip((mean, inverse), c.results[1:], strict=True))
    return (w.cast(found, c.out.dtype), *rest)


def _batch_norm_unmoved(c: TorchCall) -> tuple[Value | None, ...]:
    if c.given.get("running_mean") is None:
        raise FrontendError("a batch norm that does not train needs running statistics")
    return _batch_norm(c)


def _instance_norm(c: TorchCall) -> Value:
    """With statistics of each channel of each sample, or the running ones."""
    w, x = c.w, c.value("input", c.out.dtype.compute)
    if not c["use_input_stats"]:
        return _with_running_statistics(c, x)
    if c["running_mean"] is not None:
        raise FrontendError("running statistics would be changed in place")
    axes = range(2, len(w.shape(x)))
    around = (-1, *(1 for _ in axes))
    scale, bias = (_parameter(c, name, around, w.dtype(x)) for name in ("weight", "bias"))
    return w.cast(composites.layer_norm(w, x, scale, bias, float(c["eps"]), axes), c.out.dtype)


def _weight_norm_gradients(c: TorchCall) -> tuple[Value, Value]:
    """Of g v / |v|, the length taken over all axes but `dim` (Salimans and Kingma 2016, eq. 3)."""
    w, dim = c.w, int(c["dim"])
    kind = c.out.dtype.compute
    up, v, g = (c.value(name, kind) for name in ("grad_w", "saved_v", "saved_g"))
    norms = c.value("saved_norms", kind)
    rest = tuple(a for a in range(len(w.shape(v))) if a != dim % len(w.shape(v)))
    along = w.div(w.reduce("reduce_sum", w.mul(up, v), rest, keepdims=True), norms)
    across = w.sub(up, w.mul(v, w.div(along, norms)))
    found = (w.mul(w.div(g, norms), across), along)
    return (w.cast(found[0], c.out.dtype), w.cast(found[1], c.w.dtype(c.value("saved_g"))))


TORCH_NORMS: dict[str, TorchRule] = {
    "aten._native_batch_norm_legit.no_stats": _batch_norm_training,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._weight_norm_interface_backward.default": _weight_norm_gradients,
    "aten.instance_norm.default": _instance_norm,
    "aten.native_batch_norm.default": _batch_norm_training,
    "aten.native_group_norm.default": _group_norm,
    "aten.native_layer_norm.default": _layer_norm,
}
