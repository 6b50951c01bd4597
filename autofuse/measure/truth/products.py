"""Products of the reference on all cores, and convolutions as float64 products, tap by tap.

With the features of an image next to each other, all results of one tap are one product of images
and weights, shifted: with windows side by side on the padded image, rows that follow each other.
So nothing is laid out as patches, which took most of the time. What comes out is compared with the
op's own definition at drawn places, and as a whole by a projection on random weights.
"""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np

from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.measure.truth.threads import side_by_side
from autofuse.ops.contraction import matmul_operands
from autofuse.ops.convolution import ConvShape, conv_shape, image_windows
from autofuse.ops.sliding import Sliding, spread_out
from autofuse.ops.types import OpCall

# Fewer features are better copied with their taps.
_FEWEST = 8
# Rows of one product: what is summed stays in the cache.
_ROWS = 4096
_PLACES = 24
# Operations from which on a product is shared out among threads.
_SHARED = 5e7
# By how much a sum may differ, of the sum of the sizes of its terms.
_ROOM = 2.0**-42


def is_product(graph: Graph, i: int) -> bool:
    """Whether node `i` is one of those that are computed here."""
    return is_shared(graph, i) or is_by_taps(graph, i)


def is_shared(graph: Graph, i: int) -> bool:
    """Whether node `i` is a product of floats that is worth several threads."""
    node = graph[i]
    is_product = node.op == "dot_general" and node.types[0].dtype.is_float
    return is_product and node.spec.flops(graph.call(i)) >= _SHARED


def by_rows(operands: tuple[np.ndarray, ...], call: OpCall) -> np.ndarray:
    """A product of floats as NumPy defines it, some rows at a time."""
    left, right = matmul_operands(operands, call)
    if len(left) == 1:
        return _product(left[0], right[0]).reshape(call.out.shape)
    found = np.empty((len(left), left.shape[1], right.shape[2]), np.result_type(left, right))

    def multiply(part: slice) -> None:
        np.matmul(left[part], right[part], out=found[part])

    side_by_side(multiply, _spans(len(left)))
    return found.reshape(call.out.shape)


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Two matrices multiplied, on all cores where that pays."""
    found = np.empty((len(left), right.shape[1]), np.result_type(left, right))

    def multiply(part: slice) -> None:
        np.matmul(left[part], right, out=found[part])

    shared = 2.0 * left.size * right.shape[1] >= _SHARED
    side_by_side(multiply, _spans(len(left)) if shared else [slice(None)])
    return found


def _spans(count: int) -> list[slice]:
    """Equal parts of an axis, one for each core."""
    cuts = np.linspace(0, count, min(count, usable_cores()) + 1).astype(int)
    return [slice(a, b) for a, b in pairwise(map(int, cuts)) if b > a]


def is_by_taps(graph: Graph, i: int) -> bool:
    """Whether node `i` is a convolution that products of single taps compute."""
    if graph[i].op != "conv" or not graph[i].types[0].dtype.is_float:
        return False
    shape = conv_shape(graph.call(i))
    outputs = math.prod(graph[i].types[0].shape)
    return shape.batch_groups == 1 and shape.ins >= _FEWEST and outputs > 0


def by_taps(operands: tuple[np.ndarray, ...], call: OpCall) -> np.ndarray:
    """The result of a convolution of floats."""
    shape = conv_shape(call)
    image = operands[0].transpose(shape.lhs_axes)
    plain = (Sliding(image.shape[0]), Sliding(image.shape[1]))
    image = spread_out(image, (*plain, *shape.spatial), 0)
    counts = tuple(axis.count for axis in shape.spatial)
    kernel = operands[1].transpose(shape.rhs_axes)
    found = np.empty((shape.batch, *counts, shape.groups, shape.outs))
    for group in range(shape.groups):
        first = group * shape.ins
        part = np.moveaxis(image[:, first : first + shape.ins], 1, -1)
        weights = kernel[group * shape.outs : (group + 1) * shape.outs]
        weights = np.ascontiguousarray(np.moveaxis(weights, (0, 1), (-1, -2)))
        found[..., group, :] = _one_group(np.ascontiguousarray(part), weights, shape, counts)
    joined = found.reshape(shape.batch, *counts, shape.groups * shape.outs)
    return np.moveaxis(joined, -1, 1).transpose(np.argsort(shape.out_axes))


def _one_group(
    image: np.ndarray, weights: np.ndarray, shape: ConvShape, counts: tuple[int, ...]
) -> np.ndarray:
    """[images, windows..., features out] of an image with features last, padding in it."""
    if all(axis.stride == 1 for axis in shape.spatial):
        return _side_by_side(image, weights, shape, counts)
    found = np.zeros((shape.batch, *counts, shape.outs))
    for tap in product(*(range(axis.size) for axis in shape.spatial)):
        at = [slice(None)]
        for axis, k in zip(shape.spatial, tap, strict=True):
            begin = k * axis.window_dilation
            at.append(slice(begin, begin + (axis.count - 1) * axis.stride + 1, axis.stride))
        rows = image[tuple(at)].reshape(-1, shape.ins)
        found += _product(rows, weights[tap]).reshape(found.shape)
    return found


def _side_by_side(
    image: np.ndarray, weights: np.ndarray, shape: ConvShape, counts: tuple[int, ...]
) -> np.ndarray:
    """Windows at every place of the padded image, of which those that reach past it are dropped."""
    padded = image.shape[1:-1]
    rows = image.reshape(-1, shape.ins)
    steps = [math.prod(padded[k + 1 :]) for k in range(len(padded))]
    taps = list(product(*(range(axis.size) for axis in shape.spatial)))
    apart = [a.window_dilation * step for a, step in zip(shape.spatial, steps, strict=True)]
    shifts = [sum(k * far for k, far in zip(tap, apart, strict=True)) for tap in taps]
    total = len(rows) - max(shifts)
    made = np.empty((len(rows), shape.outs))

    def multiply(first: int) -> None:
        last = min(total, first + _ROWS)
        out = made[first:last]
        buffer = np.empty((last - first, shape.outs))
        for number, (tap, shift) in enumerate(zip(taps, shifts, strict=True)):
            part = rows[first + shift : last + shift]
            if number == 0:
                np.matmul(part, weights[tap], out=out)
            else:
                np.matmul(part, weights[tap], out=buffer)
                out += buffer

    side_by_side(multiply, range(0, total, _ROWS))
    whole = made.reshape(shape.batch, *padded, shape.outs)
    return whole[(slice(None), *(slice(n) for n in counts))]


def product_difference(
    operands: tuple[np.ndarray, ...], found: np.ndarray, call: OpCall, seed: int
) -> str:
    """What is wrong with the result of a convolution, in a few words; empty where nothing is."""
    shape = conv_shape(call)
    rng = np.random.default_rng(seed)
    by_role = found.transpose(shape.out_axes)
    windows = image_windows(operands[0].transpose(shape.lhs_axes), shape)
    kernel = operands[1].transpose(shape.rhs_axes)
    drawn = [tuple(n - 1 for n in by_role.shape), (0,) * by_role.ndim]
    drawn += [tuple(int(rng.integers(n)) for n in by_role.shape) for _ in range(_PLACES)]
    sizes = []
    for n, o, *at in drawn:
        terms = windows[(o // shape.outs, n, *at)] * kernel[o]
        ours, theirs, size = by_role[(n, o, *at)], np.sum(terms), np.sum(np.abs(terms))
        if abs(ours - theirs) > _ROOM * size or np.isnan(ours) != np.isnan(theirs):
            return f"{ours} instead of {theirs} at {[n, o, *at]}"
        sizes.append(size)
    typical = float(np.nanmean(sizes)) * math.sqrt(found.size)
    ours, theirs = _projections(by_role, windows, kernel, shape, rng)
    if abs(ours - theirs) > _ROOM * typical:
        return f"a random projection is {ours} instead of {theirs}"
    return ""


def _projections(
    found: np.ndarray, windows: np.ndarray, kernel: np.ndarray, shape: ConvShape,
    rng: np.random.Generator,
) -> tuple[float, float]:  # fmt: skip
    """The sum of all results with random signs by place and by feature, and the same from windows
    and weights, each of which takes the signs of its own axes."""
    places = (shape.batch, *(axis.count for axis in shape.spatial))
    signs = rng.choice([-1.0, 1.0], places)
    ours = theirs = 0.0
    letters = "abcde"[: len(places)]
    for group in range(shape.groups):
        outs = slice(group * shape.outs, (group + 1) * shape.outs)
        features = rng.choice([-1.0, 1.0], shape.outs)
        weights = np.tensordot(features, kernel[outs], 1)
        own = np.einsum(f"{letters},{letters[0]}z{letters[1:]}->z", signs, found[:, outs])
        ours += float(own @ features)
        for tap in product(*(range(axis.size) for axis in shape.spatial)):
            part = windows[group][(..., *tap)]
            summed = np.einsum(f"{letters},{letters}z->z", signs, part)
            at: tuple[slice | int, ...] = (slice(None), *tap)
            theirs += float(summed @ weights[at])
    return ours, theirs
