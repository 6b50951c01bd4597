"""Rules for ONNX operators that read between elements at places which are operands."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.layers import require_float
from autofuse.graph.composites.resample import Resampling, sample_at, taken_flat
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType

I32 = DType.I32
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def _coordinates(w: GraphWriter, grid: Value) -> list[Value]:
    """The columns of the last axis, in the order of the spatial axes, which is the other way
    round."""
    shape = w.shape(grid)
    last = len(shape) - 1
    parts = (w.part(grid, last, k, k + 1) for k in range(shape[last]))
    return [w.reshape(v, shape[:-1]) for v in parts][::-1]


def _grid_sample(c: OnnxCall) -> Value:
    """Places from -1 to 1 along each axis: about the centres of its ends, or their edges."""
    w, own = c.w, c.dtype(0)
    corners = bool(c.attr("align_corners", 0))
    mode = str(c.attr("mode", "linear"))
    how = Resampling(_MODES.get(mode, mode), str(c.attr("padding_mode", "zeros")), corners)
    image, grid = c.value(0), c.value(1, require_float(c.dtype(1)).compute)
    spatial = w.shape(image)[2:]
    if w.shape(grid)[-1] != len(spatial):
        raise FrontendError(f"places of {w.shape(grid)[-1]} numbers in {len(spatial)} axes")
    at = []
    for x, n in zip(_coordinates(w, grid), spatial, strict=True):
        moved = w.add(x, 1.0)
        inner = w.mul(moved, (n - 1) / 2) if corners else w.sub(w.mul(moved, n / 2), 0.5)
        at.append(inner)
    made = (*w.shape(image)[:2], *w.shape(grid)[1:-1])
    if 0 in made:
        return w.full(0, made, own)
    kind = own if how.mode == "nearest" else require_float(own).compute
    return w.cast(sample_at(w, w.cast(image, kind), at, how), own)


# Regions


def _roi_align(c: OnnxCall) -> Value:
    """The mean, or the largest weighted element, of `sampling_ratio` x `sampling_ratio` places in
    each bin of a region (He et al., Mask R-CNN, 2017)."""
    w, own, ratio = c.w, c.dtype(0), int(c.attr("sampling_ratio", 0))
    if ratio < 1:
        raise FrontendError("how many samples a bin has follows from the regions, unless "
                            "sampling_ratio says it")  # fmt: skip
    kind = require_float(own).compute
    image = w.op("gather", c.value(0, kind), c.value(2, I32), axis=0)
    rois = w.mul(c.value(1, kind), float(c.attr("spatial_scale", 1.0)))
    rows, columns = w.shape(image)[2:]
    counts = [int(c.attr(name, 1)) for name in ("output_height", "output_width")]
    ys, xs = (
        _axis_samples(c, rois, first, count, ratio, n)
        for first, count, n in zip((1, 0), counts, (rows, columns), strict=True)
    )
    parts = []
    for (y, weight_y), (x, weight_x) in ((a, b) for a in ys for b in xs):
        both = _crossed(w, y, x), _crossed(w, weight_y, weight_x)
        (place_y, place_x), (own_y, own_x) = both
        weight = w.mul(own_y, own_x)
        shape = w.shape(weight)
        part = taken_flat(w, image, [place_y, place_x])
        parts.append(w.mul(part, w.reshape(weight, (shape[0], 1, *shape[1:]))))
    return w.cast(_of_bins(c, parts, counts, ratio), own)


def _of_bins(c: OnnxCall, parts: Sequence[Value], counts: Sequence[int], ratio: int) -> Value:
    """Weighted elements [region, feature, row samples, column samples] of each place, by bin."""
    w, largest = c.w, str(c.attr("mode", "avg")) == "max"
    total = parts[0]
    for part in parts[1:]:
        total = w.map("max", total, part) if largest else w.add(total, part)
    shape = w.shape(total)
    bins = w.reshape(total, (*shape[:2], counts[0], ratio, counts[1], ratio))
    if largest:
        return w.reduce("reduce_max", bins, (3, 5))
    return composites.mean(w, bins, (3, 5))


def _axis_samples(
    c: OnnxCall, rois: Value, first: int, count: int, ratio: int, extent: int
) -> list[tuple[Value, Value]]:
    """The two elements [region, sample] around each sample along an axis, with their weights."""
    w = c.w
    half = str(c.attr("coordinate_transformation_mode", "output_half_pixel")) == "half_pixel"
    start, end = (w.part(rois, 1, k, k + 1) for k in (first, first + 2))
    size = w.sub(end, start)
    if half:
        start = w.sub(start, 0.5)
    else:
        size = w.map("max", size, 1.0)
    steps = w.add(w.iota((count * ratio,), w.dtype(rois), 0), 0.5)
    at = w.add(start, w.mul(w.mul(size, 1.0 / (count * ratio)), steps))
    inside = w.map("and", w.map("ge", at, -1.0), w.map("le", at, float(extent)))
    at = w.map("clamp", at, 0.0, float(extent - 1))
    low = w.map("floor", at)
    part = w.sub(at, low)
    high = w.map("min", w.add(low, 1.0), float(extent - 1))
    weights = (w.select(inside, v, 0.0) for v in (w.sub(1.0, part), part))
    return list(zip((w.cast(v, I32) for v in (low, high)), weights, strict=True))


def _crossed(w: GraphWriter, y: Value, x: Value) -> tuple[Value, Value]:
    """[region, row] and [region, column] both as [region, row, column]."""
    regions, rows = w.shape(y)
    columns = w.shape(x)[1]
    shape: Shape = (regions, rows, columns)
    return (
        w.broadcast(y, shape, (0, 1)), w.broadcast(x, shape, (0, 2))
    )  # fmt: skip


# Convolution at moved places


def _deform_conv(c: OnnxCall) -> Value:
    """A convolution that reads each tap where an operand moved it to (Dai et al., 2017; masked:
    Zhu et al., 2018)."""
    w, own = c.w, c.dtype(0)
    kind = require_float(own).compute
    x, kernel, groups = c.value(0, kind), c.value(1, kind), int(c.attr("group", 1))
    split = int(c.attr("offset_group", 1))
    batch, channels, *spatial = w.shape(x)
    outs, _, *sizes = w.shape(kernel)
    made, taps, axes = c.shape(2)[2:], math.prod(sizes), len(sizes)
    shifts = w.reshape(c.value(2, kind), (batch * split, taps, axes, *made))
    at = [
        w.add(w.reshape(w.part(shifts, 2, k, k + 1), (batch * split, taps, *made)), base)
        for k, base in enumerate(_tap_places(c, sizes, made, kind))
    ]
    image = w.reshape(x, (batch * split, channels // split, *spatial))
    found = sample_at(w, image, at, Resampling("linear", "zeros", True))
    if c.has(4):
        mask = w.reshape(c.value(4, kind), (batch * split, 1, taps, *made))
        found = w.mul(found, mask)
    terms = channels // groups * taps
    columns = w.reshape(found, (batch, groups, terms, math.prod(made)))
    rows = w.reshape(kernel, (groups, outs // groups, terms))
    product = composites.dot(w, rows, columns, ((2,), (2,)), ((0,), (1,)))
    total = w.reshape(w.transpose(product, (2, 0, 1, 3)), (batch, outs, *made))
    if c.has(3):
        total = w.add(total, w.reshape(c.value(3, kind), (-1, *(1 for _ in made))))
    return w.cast(total, own)


def _tap_places(c: OnnxCall, sizes: Sequence[int], made: Sequence[int], kind: DType) -> list[Value]:
    """Where [tap, made...] would be read along each axis without a move."""
    w, count = c.w, len(sizes)
    strides = c.attr("strides") or [1] * count
    apart, pads = c.attr("dilations") or [1] * count, c.attr("pads") or [0] * (2 * count)
    shape = (*sizes, *made)
    found = []
    for k in range(count):
        tap = w.mul(w.iota(shape, kind, k), float(apart[k]))
        window = w.mul(w.iota(shape, kind, count + k), float(strides[k]))
        place = w.sub(w.add(tap, window), float(pads[k]))
        found.append(w.reshape(place, (math.prod(sizes), *made)))
    return found


ONNX_SAMPLING: OnnxRules = {
    (STANDARD, "DeformConv", 19): _deform_conv,
    (STANDARD, "GridSample", 16): _grid_sample,
    (STANDARD, "RoiAlign", 10): _roi_align,
}
