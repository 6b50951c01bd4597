"""Rules for ONNX operators that resize by sizes known while importing: weights are constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.graph.composites import moves
from autofuse.graph.composites.resample import pick_along, weigh_along
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import normal_axes
from autofuse.ops.dtypes import DType


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis that changes: `count` places of `extent` elements, `scale` times as many as said
    (which need not be whole), and the part of the operand that is looked at."""

    axis: int
    extent: int
    count: int
    scale: float
    start: float = 0.0
    end: float = 1.0

    @property
    def unchanged(self) -> bool:
        same = math.isclose(self.scale, 1.0) and self.count == self.extent
        return same and (self.start, self.end) == (0.0, 1.0)


# Where the places of a result lie among the elements


def _pixel(a: _Axis, at: np.ndarray) -> np.ndarray:
    return (at + 0.5) / a.scale - 0.5


def _torch_pixel(a: _Axis, at: np.ndarray) -> np.ndarray:
    return np.full_like(at, -0.5) if a.scale * a.extent == 1 else _pixel(a, at)


def _symmetric(a: _Axis, at: np.ndarray) -> np.ndarray:
    """The middle of the operand lies in the middle of the result."""
    return a.extent / 2 * (1 - a.count / (a.scale * a.extent)) + _pixel(a, at)


def _corners(a: _Axis, at: np.ndarray) -> np.ndarray:
    width = a.scale * a.extent
    return np.zeros_like(at) if width == 1 else at * (a.extent - 1) / (width - 1)


def _crop(a: _Axis, at: np.ndarray) -> np.ndarray:
    """Corners of the part from `start` to `end`."""
    width, part = a.scale * a.extent, (a.end - a.start) * (a.extent - 1)
    inner = np.full_like(at, part / 2) if width == 1 else at * part / (width - 1)
    return inner + a.start * (a.extent - 1)


_PLACES: dict[str, Callable[[_Axis, np.ndarray], np.ndarray]] = {
    "align_corners": _corners,
    "asymmetric": lambda a, at: at / a.scale,
    "half_pixel": _pixel,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": _torch_pixel,
    "tf_crop_and_resize": _crop,
}
_ROUND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
}


# Weights by the distance of an element


def _linear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1.0 - x, 0.0)


def _cubic(a: float) -> Callable[[np.ndarray], np.ndarray]:
    """Keys, Cubic Convolution Interpolation (1981)."""

    def weight(x: np.ndarray) -> np.ndarray:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return weight


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Weights of elements up to `radius` from a place: wider where the result is smaller and
    `antialias` says so, and none for what lies outside where `inside`."""

    weight: Callable[[np.ndarray], np.ndarray]
    radius: int
    antialias: bool
    inside: bool

    def taps(self, a: _Axis, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Elements [count, taps], those outside the nearest inside, and their weights."""
        scale = min(a.scale, 1.0) if self.antialias else 1.0
        reach = math.ceil(self.radius / scale)
        affordable(len(at), 2 * reach)
        places = np.floor(at)[:, None] + np.arange(1 - reach, reach + 1)
        weights = self.weight(np.abs(places - at[:, None]) * scale)
        if self.inside:
            weights = np.where((places >= 0) & (places < a.extent), weights, 0.0)
        if self.antialias or self.inside:
            total = weights.sum(axis=1, keepdims=True)
            weights = weights / np.where(total == 0, 1.0, total)
        return np.clip(places, 0, a.extent - 1).astype(np.int64), weights


# The operators


def _computing(dtype: DType) -> DType:
    return dtype.compute if dtype.is_float else DType.F32


def _made(shape: Sequence[int], axes: Sequence[_Axis]) -> list[int]:
    counts = {a.axis: a.count for a in axes}
    return [counts.get(k, n) for k, n in enumerate(shape)]


def _resize(c: OnnxCall) -> Value:
    """One axis after another, in the order of the axes."""
    w, own = c.w, c.dtype(0)
    axes = [a for a in _axes(c) if not a.unchanged]
    if not axes:
        return c.value(0)
    if 0 in (*c.shape(0), *(a.count for a in axes)):
        return w.full(0, _made(c.shape(0), axes), own)
    way = str(c.attr("coordinate_transformation_mode", "half_pixel"))
    if way not in _PLACES:
        raise FrontendError(f"coordinate_transformation_mode '{way}' is not known")
    mode = str(c.attr("mode", "nearest"))
    kind = own if mode == "nearest" else _computing(own)
    found = c.value(0, kind)
    for each in axes:
        affordable(each.count)
        at = _PLACES[way](each, np.arange(each.count, dtype=np.float64))
        found = _resized(c, found, each, at, mode)
        if way == "tf_crop_and_resize":
            found = _outside(c, found, each, (at < 0) | (at > each.extent - 1))
    return w.cast(found, own)


def _resized(c: OnnxCall, v: Value, a: _Axis, at: np.ndarray, mode: str) -> Value:
    if mode == "nearest":
        rounding = str(c.attr("nearest_mode", "round_prefer_floor"))
        if rounding not in _ROUND or c.attr("antialias", 0):
            raise FrontendError(
                f"nearest_mode '{rounding}' is not known, or antialias is asked for"
            )
        place = np.clip(_ROUND[rounding](at), 0, a.extent - 1).astype(np.int64)
        return pick_along(c.w, v, a.axis, place)
    if mode not in ("linear", "cubic"):
        raise FrontendError(f"mode '{mode}' is not known")
    coefficient = float(c.attr("cubic_coeff_a", -0.75))
    weight, radius = (_linear, 1) if mode == "linear" else (_cubic(coefficient), 2)
    kernel = _Kernel(
        weight, radius, bool(c.attr("antialias", 0)), bool(c.attr("exclude_outside", 0))
    )
    return weigh_along(c.w, v, a.axis, *kernel.taps(a, at))


def _outside(c: OnnxCall, v: Value, a: _Axis, mask: np.ndarray) -> Value:
    """The extrapolation value at places that the operand does not reach."""
    if not mask.any():
        return v
    w = c.w
    around = [-1 if k == a.axis else 1 for k in range(len(w.shape(v)))]
    number = float(c.attr("extrapolation_value", 0.0))
    return w.select(w.constant(mask.reshape(around)), w.scalar(number, v), v)


def _regions(c: OnnxCall, count: int) -> list[tuple[float, float]]:
    """Where each axis is cropped, from 0 to 1."""
    roi = _given(c, 1, "the region") if c.version >= 11 and _crops(c) else None
    if roi is None:
        return [(0.0, 1.0)] * count
    return list(zip(map(float, roi[:count]), map(float, roi[count:]), strict=True))


def _axes(c: OnnxCall) -> list[_Axis]:
    """The axes, in order, from sizes or scales, whichever is given."""
    shape = c.shape(0)
    rank = len(shape)
    named = c.attr("axes")
    axes = tuple(range(rank)) if named is None else tuple(int(a) % rank for a in named)
    normal_axes(axes, rank)
    scales = _given(c, 1 if c.version < 11 else 2, "the scales")
    sizes = _given(c, 3, "the sizes")
    extents = [shape[a] for a in axes]
    if sizes is not None:
        counts, factors = _from_sizes(c, extents, list(map(int, sizes)))
    elif scales is not None:
        factors = [float(s) for s in scales]
        counts = [int(s * n) for s, n in zip(factors, extents, strict=True)]
    else:
        raise FrontendError("it says neither scales nor sizes")
    numbers = zip(axes, extents, counts, factors, _regions(c, len(axes)), strict=True)
    return [_Axis(a, n, count, factor, *pair) for a, n, count, factor, pair in numbers]


def _crops(c: OnnxCall) -> bool:
    return str(c.attr("coordinate_transformation_mode", "")) == "tf_crop_and_resize"


def _given(c: OnnxCall, k: int, what: str) -> np.ndarray | None:
    if not c.has(k) or 0 in c.shape(k):
        return None
    return c.needs(k, what).reshape(-1)


def _from_sizes(
    c: OnnxCall, extents: Sequence[int], sizes: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Counts and scales; with a policy one scale for all axes, which it makes fit."""
    scales = [m / n if n else 1.0 for m, n in zip(sizes, extents, strict=True)]
    policy = str(c.attr("keep_aspect_ratio_policy", "stretch"))
    if policy == "stretch":
        return list(sizes), scales
    if policy not in ("not_larger", "not_smaller"):
        raise FrontendError(f"keep_aspect_ratio_policy '{policy}' is not known")
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [int(scale * n + 0.5) for n in extents], [scale] * len(extents)


def _asymmetric(c: OnnxCall) -> Value:
    """As Resize at first and Upsample did it: places times the scale, the nearest below."""
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    mode = str(c.attr("mode", "nearest")).replace("bilinear", "linear")
    return _resize(OnnxCall(c.holder, 10, c.operands, {**attrs, "mode": mode}))


def _upsample_by_attribute(c: OnnxCall) -> Value:
    scales = np.asarray(c["scales"], np.float32)
    return _asymmetric(OnnxCall(c.holder, 10, (c.datum(0), scales), dict(c.attrs)))


def _center_crop_pad(c: OnnxCall) -> Value:
    """The middle of axes that become shorter; zeros around those that become longer."""
    w, x, shape = c.w, c.value(0), c.shape(0)
    named = c.attr("axes")
    axes = range(len(shape)) if named is None else [int(a) % len(shape) for a in named]
    low, high = [0] * len(shape), [0] * len(shape)
    for axis, wanted in zip(axes, c.ints(1, "the shape"), strict=True):
        more = wanted - shape[axis]
        low[axis] = more // 2 if more > 0 else -(-more // 2)
        high[axis] = more - low[axis]
    return moves.pad(w, x, w.constant(0, w.dtype(x)), low, high)


ONNX_RESIZE: OnnxRules = {
    (STANDARD, "CenterCropPad", 18): _center_crop_pad,
    (STANDARD, "Resize", 10): _asymmetric,
    (STANDARD, "Resize", 11): _resize,
    (STANDARD, "Upsample", 7): _upsample_by_attribute,
    (STANDARD, "Upsample", 9): _asymmetric,
}
