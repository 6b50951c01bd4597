"""What oneDNN may compute: one product or convolution of arrays by strides, and its pieces.

Nothing of the library is needed to say so; whether it does it is asked of it
(`autofuse/backends/cpu/onednn_calls.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from autofuse.graph.types import Graph, Value
from autofuse.ops.contraction import GemmForm, Matrix
from autofuse.ops.dtypes import DType
from autofuse.ops.library_forms import StridedWindow
from autofuse.ops.views import View
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.products import product_of
from autofuse.plan.types import FusionGroup

DTYPES = (DType.F32, DType.BF16, DType.F16)
# A piece begins at a multiple of so many rows or columns: vectors and register tiles are full.
STEP = 16


@dataclass(frozen=True, slots=True)
class DnnlCall:
    """One primitive on arrays of one dtype, their axes in the order that oneDNN wants.

    A product: src[batch..., m, k] weights[batch..., k, n] is dst[batch..., m, n], where a batch
    axis of extent 1 is repeated. A convolution has `windows`, and the axes of `StridedConv`.
    Offsets and strides count elements."""

    dtype: DType
    src: View
    weights: View
    dst: View
    windows: tuple[StridedWindow, ...] = ()

    def on(self, change: Callable[[View], View]) -> DnnlCall:
        """The same on other views of its arrays."""
        src, weights, dst = map(change, (self.src, self.weights, self.dst))
        return replace(self, src=src, weights=weights, dst=dst)


@dataclass(frozen=True, slots=True)
class DnnlGroup:
    """A fusion group that one call computes: `lhs` and `rhs` are the values that it reads as source
    and weights."""

    call: DnnlCall
    lhs: Value
    rhs: Value


def dnnl_group(graph: Graph, group: FusionGroup) -> DnnlGroup | None:
    """The call that could compute a group, or None: a product with moves of its operands, or a
    convolution, of f32, bf16 or f16, that writes nothing else."""
    if len(group.outputs) != 1 or graph.type_of(group.outputs[0]).dtype not in DTYPES:
        return None
    found = product_of(graph, group.nodes)
    if found is not None and group.outputs == (found.output,):
        dtype = graph.type_of(found.output).dtype
        return DnnlGroup(_product(found.form, dtype), found.lhs, found.rhs)
    node = graph[group.nodes[0]]
    if len(group.nodes) != 1 or node.spec.convolves is None:
        return None
    conv, (lhs, rhs) = node.spec.convolves(graph.call(group.nodes[0])), node.inputs
    if conv is None or is_inline(graph, lhs.node) or is_inline(graph, rhs.node):
        return None
    call = DnnlCall(node.types[0].dtype, conv.src, conv.weights, conv.dst, conv.windows)
    return DnnlGroup(call, lhs, rhs)


def _product(form: GemmForm, dtype: DType) -> DnnlCall:
    extents = tuple(axis.extent for axis in form.batch)
    lhs = _matrices(form.a, form.m, form.k, extents, tuple(axis.a for axis in form.batch))
    rhs = _matrices(form.b, form.k, form.n, extents, tuple(axis.b for axis in form.batch))
    made = (*(axis.c for axis in form.batch), form.n, 1)
    return DnnlCall(dtype, lhs, rhs, View((*extents, form.m, form.n), made))


def _matrices(
    matrix: Matrix, rows: int, columns: int, extents: tuple[int, ...], strides: tuple[int, ...]
) -> View:
    """Matrices as an array; one that several products read has the extent 1 there."""
    own = (1, matrix.leading) if matrix.transposed else (matrix.leading, 1)
    once = tuple(n if by else 1 for n, by in zip(extents, strides, strict=True))
    apart = tuple(by or matrix.leading * max(rows, columns) for by in strides)
    return View((*once, rows, columns), (*apart, *own), matrix.offset)


# --- pieces of work ---------------------------------------------------------------------------


def pieces(call: DnnlCall, threads: int) -> tuple[DnnlCall, ...]:
    """A call as calls that may run at the same time, about two for each of several threads.

    A piece of a convolution reads the weights that the whole does, at the same place."""
    if threads == 1:
        return (call,)
    wanted = 2 * threads
    return tuple(_images(call, wanted) if call.windows else _products(call, wanted))


def _products(call: DnnlCall, wanted: int) -> Iterator[DnnlCall]:
    """Ranges of the longest batch axis, or of the rows or columns of each product."""
    batch = call.dst.shape[:-2]
    longest = max(range(len(batch)), key=lambda axis: batch[axis], default=-1)
    if batch and batch[longest] >= wanted:
        for first, count in _cut(batch[longest], wanted, 1):
            yield _ranged(call, longest, first, count)
        return
    m, n = call.dst.shape[-2:]
    cuts = -(-wanted // max(1, math.prod(batch)))
    by_rows = m >= n or m >= 64 * cuts
    for single in _singles(call):
        for first, count in _cut(m if by_rows else n, cuts, STEP):
            if by_rows:
                yield _ranged(single, 0, first, count, weights=False)
            else:
                yield _ranged(single, 1, first, count, src=False)


def _singles(call: DnnlCall) -> Iterator[DnnlCall]:
    """Every product of a batch alone, without batch axes."""
    if len(call.dst.shape) == 2:
        yield call
        return
    for index in range(call.dst.shape[0]):
        one = _ranged(call, 0, index, 1)
        yield from _singles(one.on(lambda v: View(v.shape[1:], v.strides[1:], v.offset)))


def _images(call: DnnlCall, wanted: int) -> Iterator[DnnlCall]:
    """Ranges of images or, where these are few, of the rows of each. Rows of channels first are not
    cut: oneDNN knows no layout that has a part of them."""
    images = call.dst.shape[0]
    if images >= wanted:
        for first, count in _cut(images, wanted, 1):
            yield _ranged(call, 0, first, count, weights=False)
        return
    last = all(view.strides[2] > view.strides[1] for view in (call.src, call.dst))
    for index in range(images):
        single = _ranged(call, 0, index, 1, weights=False)
        cuts = _cut(call.dst.shape[2], -(-wanted // images), 1) if last else ()
        rows = [_rows(single, first, count) for first, count in cuts]
        # Windows that lie in the padding alone leave nothing to read.
        yield from (single,) if not rows or None in rows else (row for row in rows if row)


def _rows(call: DnnlCall, first: int, count: int) -> DnnlCall | None:
    """So many windows along the first spatial axis, with what they read and the padding left."""
    window, taps, extent = (
        call.windows[0],
        call.weights.shape[-len(call.windows)],
        call.src.shape[2],
    )
    begin = first * window.stride - window.low
    end = (first + count - 1) * window.stride - window.low + (taps - 1) * window.dilation + 1
    low, high = max(begin, 0), min(end, extent)
    if low >= high:
        return None
    cut = replace(window, low=low - begin, high=end - high)
    return replace(
        call,
        src=_dense(_range(call.src, 2, low, high - low)),
        dst=_dense(_range(call.dst, 2, first, count)),
        windows=(cut, *call.windows[1:]),
    )


def _dense(view: View) -> View:
    """A single image as if others followed it at once, which is a layout that oneDNN knows."""
    around = max(n * by for n, by in zip(view.shape[1:], view.strides[1:], strict=True))
    return replace(view, strides=(around, *view.strides[1:]))


def _ranged(
    call: DnnlCall, axis: int, first: int, count: int, *, src: bool = True, weights: bool = True
) -> DnnlCall:
    """A call on a range of an axis of its result, and of the operands that have it too."""

    def cut(view: View, has: bool) -> View:
        repeated = view.shape[axis] < call.dst.shape[axis]
        return view if repeated or not has else _range(view, axis, first, count)

    return replace(
        call, src=cut(call.src, src), weights=cut(call.weights, weights), dst=cut(call.dst, True)
    )


def _range(view: View, axis: int, first: int, count: int) -> View:
    shape = (*view.shape[:axis], count, *view.shape[axis + 1 :])
    return View(shape, view.strides, view.offset + first * view.strides[axis])


def _cut(extent: int, parts: int, step: int) -> list[tuple[int, int]]:
    """(first, count) of at most so many nearly equal parts that begin at multiples of `step`, where
    they are longer than that."""
    unit = step if extent >= step * parts else 1
    ends = [min(extent, -(-(extent * k // parts) // unit) * unit) for k in range(parts + 1)]
    return [(a, b - a) for a, b in pairwise(ends) if b > a]
