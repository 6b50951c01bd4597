"""Rules for aten overloads that move elements at places known while tracing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.torch.types import TorchCall, TorchRule, axes_of, number_as
from autofuse.graph.composites import moves
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape
from autofuse.ops.dtypes import DType

I32 = DType.I32


def axis_of(given: int, rank: int) -> int:
    """One axis from the front; of a () tensor axis 0 may be asked for."""
    return int(given) % max(rank, 1)


def _same(c: TorchCall) -> Value:
    return c.value("self")


def _to_result_shape(c: TorchCall) -> Value:
    return c.w.reshape(c.value("self"), c.out.shape)


def _permute(c: TorchCall) -> Value:
    x = c.value("self")
    rank = len(c.w.shape(x))
    return c.w.transpose(x, [axis_of(a, rank) for a in c["dims"]])


def _expand(c: TorchCall) -> Value:
    return c.w.spread(c.value("self"), c.out.shape)


def bounds_of(c: TorchCall, extent: int) -> tuple[int, int]:
    """`start` and `end` of a slice as torch clamps them to 0..extent."""
    start = 0 if c["start"] is None else int(c["start"])
    end = extent if c["end"] is None else int(c["end"])
    start, end = (n + extent if n < 0 else n for n in (start, end))
    start = min(max(start, 0), extent)
    return start, min(max(end, start), extent)


def _slice(c: TorchCall) -> Value:
    x = c.value("self")
    shape = c.w.shape(x)
    axis = axis_of(c["dim"], len(shape))
    start, end = bounds_of(c, shape[axis])
    low, high, step = [0] * len(shape), list(shape), [1] * len(shape)
    low[axis], high[axis], step[axis] = start, end, int(c["step"])
    return c.w.slice(x, low, high, step)


def _select(c: TorchCall) -> Value:
    x = c.value("self")
    shape = c.w.shape(x)
    axis = axis_of(c["dim"], len(shape))
    at = int(c["index"]) % shape[axis]
    return c.w.reshape(c.w.part(x, axis, at, at + 1), c.out.shape)


def _split(c: TorchCall) -> tuple[Value, ...]:
    x = c.value("self")
    axis = axis_of(c["dim"], len(c.w.shape(x)))
    sizes = [t.shape[axis] for t in c.results if t is not None]
    return moves.split(c.w, x, axis, sizes)


def _cat(c: TorchCall) -> Value:
    """Empty tensors of one axis may be among others, as ever in torch."""
    w, dtype, rank = c.w, c.out.dtype, len(c.out.shape)
    parts = [w.cast(v, dtype) for v in c["tensors"] if rank == 1 or w.shape(v) != (0,)]
    return w.concat(parts, axis_of(c["dim"], rank))


def _flip(c: TorchCall) -> Value:
    dims, rank = tuple(c["dims"]), len(c.out.shape)
    return c.w.reverse(c.value("self"), axes_of(dims, rank)) if dims else c.value("self")


def _roll(c: TorchCall) -> Value:
    """Without dims, all elements in their order."""
    w, x, shifts = c.w, c.value("self"), c["shifts"]
    if not c["dims"]:
        flat = moves.roll(w, w.reshape(x, (-1,)), int(shifts[0]), 0)
        return w.reshape(flat, c.out.shape)
    for shift, dim in zip(shifts, c["dims"], strict=True):
        x = moves.roll(w, x, int(shift), axis_of(dim, len(w.shape(x))))
    return x


def _repeat(c: TorchCall) -> Value:
    return c.w.reshape(moves.tile(c.w, c.value("self"), tuple(map(int, c["repeats"]))), c.out.shape)


def _pad(c: TorchCall) -> Value:
    """Widths come in pairs for each axis, the last axis first; negative ones cut."""
    w, x, widths = c.w, c.value("self"), list(map(int, c["pad"]))
    rank = len(w.shape(x))
    low, high = [0] * rank, [0] * rank
    for k in range(len(widths) // 2):
        low[rank - 1 - k], high[rank - 1 - k] = widths[2 * k], widths[2 * k + 1]
    fill = w.constant(number_as(c["value"], c.out.dtype), c.out.dtype)
    return moves.pad(w, x, fill, low, high)


def _diagonal(c: TorchCall) -> Value:
    """Every columns + 1st element of the matrices laid out flat."""
    w, x, offset = c.w, c.value("self"), int(c["offset"])
    rank = len(w.shape(x))
    a, b = axis_of(c["dim1"], rank), axis_of(c["dim2"], rank)
    rest = [k for k in range(rank) if k not in (a, b)]
    x = w.transpose(x, (*rest, a, b))
    *lead, rows, columns = w.shape(x)
    length = c.out.shape[-1]
    if not length or 0 in lead:
        return w.full(0, c.out.shape, c.out.dtype)
    flat = w.reshape(x, (*lead, rows * columns))
    start = offset if offset >= 0 else -offset * columns
    low, high = [0] * len(lead), list(lead)
    stop = start + (length - 1) * (columns + 1) + 1
    return w.slice(flat, (*low, start), (*high, stop), (*(1 for _ in lead), columns + 1))


def _unfold(c: TorchCall) -> Value:
    """Windows along an axis; what lies in them becomes the last axis."""
    w, x = c.w, c.value("self")
    shape = w.shape(x)
    size, step = int(c["size"]), int(c["step"])
    axis = axis_of(c["dimension"], len(shape))
    if not shape:
        return w.reshape(x, c.out.shape)
    count = c.out.shape[axis]
    first = w.mul(w.iota((count, size), I32, 0), step)
    taken = w.op("gather", x, w.add(first, w.iota((count, size), I32, 1)), axis=axis)
    order = [a for a in range(len(shape) + 1) if a != axis + 1]
    return w.transpose(taken, (*order, axis + 1))


def _slice_scatter(c: TorchCall) -> Value:
    """`src` spread over the places of the slice, chosen where these are."""
    w, x = c.w, c.value("self")
    shape = w.shape(x)
    src = c.value("src", c.out.dtype)
    axis, step = axis_of(c["dim"], len(shape)), int(c["step"])
    start, end = bounds_of(c, shape[axis])
    places = range(start, end, step)
    if not len(places):
        return x
    if step == 1:
        parts = w.part(x, axis, 0, start), src, w.part(x, axis, end, shape[axis])
        return w.concat(parts, axis)
    mask = np.zeros(shape[axis], np.bool_)
    mask[places.start : places.stop : step] = True
    low, high, between = ([0] * len(shape) for _ in "lhb")
    low[axis], high[axis], between[axis] = start, shape[axis] - places[-1] - 1, step - 1
    spread = moves.pad(w, src, w.constant(0, w.dtype(x)), low, high, between)
    return w.select(w.broadcast(w.constant(mask), shape, (axis,)), spread, x)


def _triangle(lower: bool) -> TorchRule:
    def rule(c: TorchCall) -> Value:
        x, k = c.value("self"), int(c["diagonal"])
        if c.out.dtype is not DType.BOOL:
            return moves.triangle(c.w, x, k, lower)
        number = moves.triangle(c.w, c.w.cast(x, DType.U8), k, lower)
        return c.w.cast(number, DType.BOOL)

    return rule


def _bitcast(c: TorchCall) -> Value:
    return c.w.bitcast(c.value("self"), c.out.dtype)


# Views of storage


def _storage(w: GraphWriter, x: Value, strides: Shape) -> Value:
    """The elements in the order in which they lie in memory; raises FrontendError where they do
    not fill it, each once."""
    order = _dense_order(w.shape(x), strides)
    if order is None:
        raise FrontendError(f"strides {list(strides)} of {list(w.shape(x))} are not dense")
    return w.reshape(w.transpose(x, order), (-1,))


def _offset_from(given: Any, own: int) -> int:
    """How far behind the first element of a tensor with an offset of its own a view begins."""
    if given is None:
        return 0
    if own:
        raise FrontendError("a view of the storage of a part of a tensor is not supported")
    return int(given)


def _as_strided(c: TorchCall) -> Value:
    """A view of the storage of a tensor that fills it from the front."""
    w, x, known = c.w, c.value("self"), c.tensors["self"]
    size, strides = (tuple(map(int, c[name])) for name in ("size", "stride"))
    offset = _offset_from(c["storage_offset"], known.offset)
    if 0 in size:
        return w.full(0, size, c.out.dtype)
    flat = _storage(w, x, known.strides)
    whole = None if offset else _dense_order(size, strides)
    if whole is not None and math.prod(size) == w.shape(flat)[0]:
        laid = w.reshape(flat, [size[a] for a in whole])
        return w.transpose(laid, _inverse(whole))
    at = w.full(offset, size, I32)
    for axis, stride in enumerate(strides):
        at = w.add(at, w.mul(w.iota(size, I32, axis), stride))
    return w.op("gather", flat, at, axis=0)


def _dense_order(size: Shape, strides: Shape) -> list[int] | None:
    """The axes from the slowest to the fastest where they fill memory, each element once."""
    order = sorted(range(len(size)), key=lambda a: (-strides[a], size[a] != 1))
    expected = 1
    for a in reversed(order):
        if size[a] != 1 and strides[a] != expected:
            return None
        expected *= size[a]
    return order


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


_SAME = ("alias", "clone", "detach", "lift_fresh_copy")
_RESHAPES = ("squeeze.dims", "unsqueeze.default", "view.default")
TORCH_MOVES: dict[str, TorchRule] = {
    **{f"aten.{name}.default": _same for name in _SAME},
    **{f"aten.{name}": _to_result_shape for name in _RESHAPES},
    "aten.as_strided.default": _as_strided,
    "aten.cat.default": _cat,
    "aten.constant_pad_nd.default": _pad,
    "aten.diagonal.default": _diagonal,
    "aten.expand.default": _expand,
    "aten.flip.default": _flip,
    "aten.permute.default": _permute,
    "aten.repeat.default": _repeat,
    "aten.roll.default": _roll,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.slice_scatter.default": _slice_scatter,
    "aten.split_with_sizes.default": _split,
    "aten.tril.default": _triangle(True),
    "aten.triu.default": _triangle(False),
    "aten.unfold.default": _unfold,
    "aten.view.dtype": _bitcast,
}
