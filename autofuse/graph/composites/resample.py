"""Elements at places between elements: at places known now, and at computed ones.

Each function appends to a GraphWriter and returns a value. Axes count from the front.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import math as composites_math
from autofuse.graph.composites.order import take_along
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError

I32 = DType.I32
# Weighted elements that are added one by one; of more a matrix is made.
MOST_TAPS = 16
# Runs of neighbours that are put together as slices.
MOST_RUNS = 3
# Keys' constant as images are resized with (PyTorch, ONNX's GridSample).
CUBIC = -0.75


# At places known now


def along(w: GraphWriter, v: Value, axis: int, matrix: np.ndarray) -> Value:
    """`matrix` [made, extent] times `v` along an axis."""
    found = composites.dot(w, v, w.constant(matrix, w.dtype(v)), ((axis,), (1,)))
    rank = len(w.shape(v))
    return w.transpose(found, [*range(axis), rank - 1, *range(axis, rank - 1)])


def repeat_each(w: GraphWriter, v: Value, axis: int, count: int) -> Value:
    """Every element along `axis` `count` times in a row."""
    shape = w.shape(v)
    wide = (*shape[: axis + 1], count, *shape[axis + 1 :])
    apart = w.broadcast(v, wide, [a for a in range(len(wide)) if a != axis + 1])
    return w.reshape(apart, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))


def pick_along(w: GraphWriter, v: Value, axis: int, places: np.ndarray) -> Value:
    """The elements of `v` at known `places` [made] along `axis`: repeats, steps, or a few runs of
    neighbours where they are such, so that nothing is looked up."""
    shape = w.shape(v)
    made, extent = len(places), shape[axis]
    if not made:
        return w.part(v, axis, 0, 0)
    if made % extent == 0 and _is_repeat(places, extent):
        return v if made == extent else repeat_each(w, v, axis, made // extent)
    steps = np.diff(places)
    if made > 1 and steps[0] > 0 and (steps == steps[0]).all():
        start = [int(places[0]) if a == axis else 0 for a in range(len(shape))]
        stop = [int(places[-1]) + 1 if a == axis else n for a, n in enumerate(shape)]
        stride = [int(steps[0]) if a == axis else 1 for a in range(len(shape))]
        return w.slice(v, start, stop, stride)
    runs = np.split(places, np.flatnonzero(steps != 1) + 1)
    if len(runs) <= MOST_RUNS:
        return w.concat([w.part(v, axis, int(r[0]), int(r[-1]) + 1) for r in runs], axis)
    return w.op("gather", v, w.constant(places.astype(np.int32)), axis=axis)


def _is_repeat(places: np.ndarray, extent: int) -> bool:
    return np.array_equal(places, np.repeat(np.arange(extent), len(places) // extent))


def weigh_along(
    w: GraphWriter, v: Value, axis: int, places: np.ndarray, weights: np.ndarray
) -> Value:
    """Sums of the elements at known `places` [made, taps] along `axis`, times `weights` of the same
    shape; places are in range."""
    extent, (made, taps) = w.shape(v)[axis], places.shape
    if taps > min(MOST_TAPS, extent):
        affordable(made, extent)
        matrix = np.zeros((made, extent))
        np.add.at(matrix, (np.arange(made)[:, None], places), weights)
        return along(w, v, axis, matrix)
    around = [made if a == axis else 1 for a in range(len(w.shape(v)))]
    total: Value | None = None
    for k in range(taps):
        if not weights[:, k].any():
            continue
        part = pick_along(w, v, axis, places[:, k])
        if not (weights[:, k] == 1).all():
            part = w.mul(part, w.constant(weights[:, k].reshape(around), w.dtype(v)))
        total = part if total is None else w.add(total, part)
    if total is None:
        shape = w.shape(v)
        return w.full(0, (*shape[:axis], made, *shape[axis + 1 :]), w.dtype(v))
    return total


# At computed places


@dataclass(frozen=True, slots=True)
class Resampling:
    """How an element at a computed place is made: of the `nearest` one, or of those around it by
    `linear` or `cubic` weights. `outside` is what lies beyond the image: `zeros`, its `border`, or
    its `reflection`, about the centres of its last elements where `corners`, else their edges."""

    mode: str = "linear"
    outside: str = "zeros"
    corners: bool = False


@dataclass(frozen=True, slots=True)
class _Tap:
    """An element along one axis: its place (i32, in range) and its weight; None is 1."""

    place: Value
    weight: Value | None


def _tapped(w: GraphWriter, image: Value, combination: Sequence[_Tap]) -> Value:
    """The elements at one tap of each axis, by their weights."""
    part = taken_flat(w, image, [tap.place for tap in combination])
    for tap in combination:
        if tap.weight is not None:
            part = w.mul(part, _beside_features(w, w.cast(tap.weight, w.dtype(part))))
    return part


def sample_at(w: GraphWriter, image: Value, at: Sequence[Value], how: Resampling) -> Value:
    """[batch, feature, made...]: `image` [batch, feature, spatial...] at places `at`, [batch,
    made...] for each spatial axis, counted in elements (PyTorch's grid_sample).

    Raises GraphError for an unknown mode or `outside`."""
    if how.mode not in _TAPS or how.outside not in ("zeros", "border", "reflection"):
        raise GraphError(f"sampling by '{how.mode}' with '{how.outside}' outside is not known")
    spatial = w.shape(image)[2:]
    taps = [_axis_taps(w, x, n, how) for x, n in zip(at, spatial, strict=True)]
    total: Value | None = None
    for combination in product(*taps):
        part = _tapped(w, image, combination)
        total = part if total is None else w.add(total, part)
    assert total is not None
    return total


def taken_flat(w: GraphWriter, image: Value, places: Sequence[Value]) -> Value:
    """[batch, feature, made...]: the elements of `image` at `places` (i32, in range), [batch,
    made...] for each spatial axis."""
    batch, features, *spatial = w.shape(image)
    flat = places[0]
    for place, n in zip(places[1:], spatial[1:], strict=True):
        flat = w.add(w.mul(flat, n), place)
    made: Shape = w.shape(flat)[1:]
    index = w.reshape(flat, (batch, 1, -1))
    count = w.shape(index)[2]
    index = w.spread(index, (batch, features, count))
    found = take_along(w, w.reshape(image, (batch, features, -1)), index, 2)
    return w.reshape(found, (batch, features, *made))


def _beside_features(w: GraphWriter, v: Value) -> Value:
    batch, *made = w.shape(v)
    return w.reshape(v, (batch, 1, *made))


def _axis_taps(w: GraphWriter, x: Value, extent: int, how: Resampling) -> list[_Tap]:
    if how.mode == "nearest":
        x = w.map("round", x)
    if how.outside == "border":
        x = w.map("clamp", x, 0, extent - 1)
    elif how.outside == "reflection":
        x = _reflected(w, x, extent, how.corners)
    first = w.map("floor", x)
    offsets = _TAPS[how.mode]
    weights = _weights(w, w.sub(x, first), how.mode)
    return [
        _tap(w, w.add(first, float(k)), weight, extent, how)
        for k, weight in zip(offsets, weights, strict=True)
    ]


_TAPS = {"nearest": (0,), "linear": (0, 1), "cubic": (-1, 0, 1, 2)}


def _weights(w: GraphWriter, part: Value, mode: str) -> list[Value | None]:
    """The weights of the taps of an element `part` of the way to the next one."""
    if mode == "nearest":
        return [None]
    if mode == "linear":
        return [w.sub(1.0, part), part]
    rest = w.sub(1.0, part)
    return [_far(w, w.add(part, 1.0)), _near(w, part), _near(w, rest), _far(w, w.add(rest, 1.0))]


def _near(w: GraphWriter, x: Value) -> Value:
    """Keys' cubic convolution (1981) for 0 <= x <= 1."""
    inner = w.sub(w.mul(x, CUBIC + 2), CUBIC + 3)
    return w.add(w.mul(w.mul(inner, x), x), 1.0)


def _far(w: GraphWriter, x: Value) -> Value:
    """Keys' cubic convolution for 1 <= x <= 2."""
    inner = w.add(w.mul(w.sub(w.mul(x, CUBIC), 5 * CUBIC), x), 8 * CUBIC)
    return w.sub(w.mul(inner, x), 4 * CUBIC)


def _tap(w: GraphWriter, x: Value, weight: Value | None, extent: int, how: Resampling) -> _Tap:
    """The tap at `x`, a whole number that may lie outside."""
    if how.outside == "reflection":
        x = _reflected(w, x, extent, how.corners)
    place = w.cast(w.map("clamp", x, 0, extent - 1), I32)
    if how.outside != "zeros":
        return _Tap(place, weight)
    inside = w.map("and", w.map("ge", x, 0), w.map("le", x, extent - 1))
    one = w.full(1, w.shape(x), w.dtype(x)) if weight is None else weight
    return _Tap(place, w.select(inside, one, 0))


def _reflected(w: GraphWriter, x: Value, extent: int, corners: bool) -> Value:
    """`x` thrown back by both ends as often as it takes."""
    low, high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)
    if high <= low:
        return w.full(0, w.shape(x), w.dtype(x))
    way = w.map("abs", w.sub(x, low))
    turns = w.map("floor", w.mul(way, 1.0 / (high - low)))
    rest = w.sub(way, w.mul(turns, high - low))
    odd = w.map("eq", composites_math.remainder(w, turns, w.scalar(2, turns)), 1)
    return w.select(odd, w.sub(high, rest), w.add(rest, low))
