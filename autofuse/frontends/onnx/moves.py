"""Rules for ONNX operators that move elements to places known while importing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.package import MOST_KNOWN, numpy_dtype
from autofuse.frontends.onnx.types import STANDARD, Datum, OnnxCall, OnnxRule, OnnxRules
from autofuse.graph.composites import moves
from autofuse.graph.composites.resample import pick_along
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Shape, normal_axes
from autofuse.ops.dtypes import DType, from_numpy

I32 = DType.I32


# Shapes


def _shape(c: OnnxCall) -> np.ndarray:
    found = c.shape(0)
    end = c.attr("end")
    part = found[slice(int(c.attr("start", 0)), None if end is None else int(end))]
    return np.asarray(part, np.int64)


def _size(c: OnnxCall) -> np.ndarray:
    return np.asarray(math.prod(c.shape(0)), np.int64)


def shaped(c: OnnxCall, shape: Sequence[int]) -> Value:
    """The first operand in another shape of as many elements."""
    if math.prod(shape) != math.prod(c.shape(0)):
        raise FrontendError(f"shape {list(c.shape(0))} cannot become {list(shape)}")
    return c.w.reshape(c.value(0), shape)


def _with_copies(given: list[int], own: Sequence[int]) -> list[int]:
    """A shape with the extents that its zeros copy."""
    if any(n == 0 and k >= len(own) for k, n in enumerate(given)):
        raise FrontendError(f"shape {given} copies an axis that {list(own)} does not have")
    return [own[k] if n == 0 else n for k, n in enumerate(given)]


def _reshape(c: OnnxCall) -> Value:
    """0 copies an extent (unless `allowzero`), -1 is what is left."""
    given = list(map(int, c["shape"]) if c.version < 5 else c.ints(1, "the shape"))
    own = c.shape(0)
    if not c.attr("allowzero", 0):
        given = _with_copies(given, own)
    if given.count(-1) > 1 or min(given, default=0) < -1:
        raise FrontendError(f"{given} is no shape")
    rest = math.prod(n for n in given if n != -1)
    filled = math.prod(own) // rest if rest else 0
    return shaped(c, [filled if n == -1 else n for n in given])


def _flatten(c: OnnxCall) -> Value:
    own = c.shape(0)
    axis = int(c["axis"])
    if not -len(own) <= axis <= len(own):
        raise FrontendError(f"axis {axis} is out of range for an array of rank {len(own)}")
    axis += len(own) if axis < 0 else 0
    return shaped(c, (math.prod(own[:axis]), math.prod(own[axis:])))


def given_axes(c: OnnxCall, k: int = 1) -> tuple[int, ...] | None:
    """Axes from an attribute (before version 13) or operand `k`; None where none are given."""
    if c.attr("axes") is not None:
        return tuple(int(a) for a in c["axes"])
    return c.ints(k, "the axes") if c.has(k) else None


def _squeeze(c: OnnxCall) -> Value:
    own, given = c.shape(0), given_axes(c)
    gone = [a for a, n in enumerate(own) if n == 1] if given is None else normal_axes(
        given, len(own)
    )  # fmt: skip
    return shaped(c, [n for a, n in enumerate(own) if a not in gone])


def _unsqueeze(c: OnnxCall) -> Value:
    given = given_axes(c)
    if given is None:
        raise FrontendError("it says no axes")
    rank = len(c.shape(0)) + len(given)
    added, own = normal_axes(given, rank), iter(c.shape(0))
    return shaped(c, [1 if a in added else next(own) for a in range(rank)])


def _expand(c: OnnxCall) -> Value:
    wanted = c.ints(1, "the shape")
    shape = np.broadcast_shapes(c.shape(0), wanted)
    return c.w.spread(c.value(0), tuple(shape))


def _transpose(c: OnnxCall) -> Value:
    rank = len(c.shape(0))
    perm = [int(p) for p in c.attr("perm") or range(rank - 1, -1, -1)]
    if sorted(perm) != list(range(rank)):
        raise FrontendError(f"{perm} is no order of {rank} axes")
    return c.w.transpose(c.value(0), perm)


def _eye_like(c: OnnxCall) -> Value:
    shape = c.shape(0)
    if len(shape) != 2:
        raise FrontendError(f"a matrix is expected, not {list(shape)}")
    to = c.attr("dtype")
    dtype = c.dtype(0) if to is None else from_numpy(numpy_dtype(int(to)))
    return moves.eye(c.w, *shape, int(c["k"]), dtype)


# Constants


def filled(w: GraphWriter, number: np.ndarray, shape: Shape) -> Datum:
    """One number everywhere; known where it is short, as shapes are computed from."""
    if math.prod(shape) <= MOST_KNOWN:
        return np.full(shape, number)
    return w.full(number, shape, from_numpy(number.dtype))


def _constant_of_shape(c: OnnxCall) -> Datum:
    shape = c.ints(0, "the shape")
    if min(shape, default=0) < 0:
        raise FrontendError(f"{list(shape)} is no shape")
    value = np.asarray(c.attr("value", np.zeros(1, np.float32)))
    if value.size != 1:
        raise FrontendError("its value is not one element")
    return filled(c.w, value.reshape(()), shape)


def _range(c: OnnxCall) -> Value:
    """Steps whose number has to be known; the start need not be."""
    w = c.w
    start, limit, step = (c.needs(k, name).reshape(()) for k, name in
                          enumerate(("the start", "the limit", "the step")))  # fmt: skip
    dtype = from_numpy(start.dtype)
    if not step:
        raise FrontendError("the step is 0")
    count = max(math.ceil((float(limit) - float(start)) / float(step)), 0)
    wide = dtype.compute
    places = w.mul(w.iota((count,), wide, 0), w.constant(step.astype(wide.numpy)))
    return w.cast(w.add(places, w.constant(start.astype(wide.numpy))), dtype)


# Parts


def _concat(c: OnnxCall) -> Value:
    (axis,) = normal_axes(int(c.attr("axis", 1)), len(c.shape(0)))
    return c.w.concat(c.values(), axis)


def _split(c: OnnxCall) -> tuple[Value, ...]:
    """Sizes from an attribute or an operand; else as equal as they can be, the last one shorter."""
    (axis,) = normal_axes(int(c["axis"]), len(c.shape(0)))
    extent, count = c.shape(0)[axis], len(c.wanted)
    if c.attr("split") is not None:
        sizes = [int(n) for n in c["split"]]
    elif c.has(1):
        sizes = list(c.ints(1, "the sizes"))
    else:
        each = -(-extent // int(c.attr("num_outputs") or count))
        sizes = [min(each, max(extent - k * each, 0)) for k in range(count)]
    if sum(sizes) != extent or min(sizes) < 0 or len(sizes) < count:
        raise FrontendError(f"sizes {sizes} do not split {extent} into {count}")
    return moves.split(c.w, c.value(0), axis, sizes)


def sliced(w: GraphWriter, x: Value, parts: dict[int, tuple[int, int, int]]) -> Value:
    """(start, stop, step) along axes, as NumPy slices; a negative step runs backwards."""
    shape = w.shape(x)
    low, high, steps = [0] * len(shape), list(shape), [1] * len(shape)
    turned = []
    for axis, (start, stop, step) in parts.items():
        if step == 0:
            raise FrontendError("a step is 0")
        places = range(*slice(start, stop, step).indices(shape[axis]))
        if not places:
            low[axis] = high[axis] = 0
            continue
        first, last = min(places[0], places[-1]), max(places[0], places[-1])
        low[axis], high[axis], steps[axis] = first, last + 1, abs(step)
        if step < 0:
            turned.append(axis)
    found = w.slice(x, low, high, steps)
    return w.reverse(found, turned) if turned else found


def _slice_numbers(c: OnnxCall) -> tuple[tuple[int, ...], ...]:
    """Starts, ends, axes and steps."""
    if c.version < 10:
        named = (c.attr(k) or () for k in ("starts", "ends", "axes"))
        return (*(tuple(map(int, each)) for each in named), ())
    rest = (c.ints(k, what) if c.has(k) else () for k, what in _OPTIONAL_OF_SLICE)
    return (c.ints(1, "the starts"), c.ints(2, "the ends"), *rest)


def _slice(c: OnnxCall) -> Value:
    rank = len(c.shape(0))
    starts, ends, axes, steps = _slice_numbers(c)
    axes = axes or tuple(range(len(starts)))
    if any(not -rank <= a < rank for a in axes):
        raise FrontendError(f"axes {list(axes)} are out of range for an array of rank {rank}")
    rows = zip(axes, starts, ends, steps or (1,) * len(starts), strict=True)
    return sliced(c.w, c.value(0), {a % rank: (s, e, n) for a, s, e, n in rows})


_OPTIONAL_OF_SLICE = ((3, "the axes"), (4, "the steps"))


# Around


def _pads(c: OnnxCall) -> tuple[list[int], list[int]]:
    """Widths before and after each axis."""
    rank = len(c.shape(0))
    if c.version < 11:
        widths = [int(n) for n in c["pads" if c.version >= 2 else "paddings"]]
    else:
        widths = list(c.ints(1, "the widths"))
    axes = normal_axis_list(c.ints(3, "the axes"), rank) if c.has(3) else list(range(rank))
    if len(widths) != 2 * len(axes):
        raise FrontendError(f"{len(widths)} widths for {len(axes)} axes")
    low, high = [0] * rank, [0] * rank
    for k, axis in enumerate(axes):
        low[axis], high[axis] = widths[k], widths[k + len(axes)]
    return low, high


def normal_axis_list(given: Sequence[int], rank: int) -> list[int]:
    """Axes from the front, in the order given."""
    normal_axes(given, rank)
    return [a % rank for a in given]


def _pad(c: OnnxCall) -> Value:
    w, x, mode = c.w, c.value(0), c["mode"]
    low, high = _pads(c)
    if mode == "constant":
        if c.version < 11:
            fill = w.constant(float(c["value"]), c.dtype(0))
        else:
            fill = w.reshape(c.value(2), ()) if c.has(2) else w.constant(0, c.dtype(0))
        return moves.pad(w, x, fill, low, high)
    for axis, (before, after) in enumerate(zip(low, high, strict=True)):
        if before or after:
            x = _repeated(w, x, axis, before, after, mode)
    return x


def _repeated(w: GraphWriter, x: Value, axis: int, before: int, after: int, mode: str) -> Value:
    """An axis continued by what it has itself."""
    extent = w.shape(x)[axis]
    numpy_modes = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}
    if mode not in numpy_modes:
        raise FrontendError(f"mode {mode!r} is not supported")
    if not extent or max(before, after) > MOST_KNOWN:
        raise FrontendError(f"{extent} elements cannot be continued by {max(before, after)}")
    widths = (max(before, 0), max(after, 0))
    affordable(extent)
    own = np.arange(extent)[max(-before, 0) : extent - max(-after, 0)]
    if not own.size:
        raise FrontendError(f"{extent} elements cannot be cut by {-before} and {-after}")
    places = np.pad(own, widths, mode=mode)  # type: ignore[call-overload]  # a mode from the table
    return pick_along(w, x, axis, places)


def _tile(c: OnnxCall) -> Value:
    w, x = c.w, c.value(0)
    if c.version < 6:
        counts = [1] * len(c.shape(0))
        counts[int(c.needs(2, "the axis"))] = int(c.needs(1, "the number of tiles"))
    else:
        counts = list(c.ints(1, "the repeats"))
    if len(counts) != len(c.shape(0)) or min(counts, default=0) < 0:
        raise FrontendError(f"repeats {counts} do not fit {list(c.shape(0))}")
    return moves.tile(w, x, counts)


# Blocks


def _depth_to_space(c: OnnxCall) -> Value:
    w, b = c.w, int(c["blocksize"])
    n, depth, *rest = c.shape(0)
    if b < 1 or depth % (b ** len(rest)):
        raise FrontendError(f"{depth} channels are no blocks of {b}")
    k, kept = len(rest), depth // b ** len(rest)
    if c.attr("mode", "DCR") == "DCR":
        apart = w.reshape(c.value(0), (n, *(b,) * k, kept, *rest))
        blocks, channel = range(1, k + 1), k + 1
    else:
        apart = w.reshape(c.value(0), (n, kept, *(b,) * k, *rest))
        blocks, channel = range(2, k + 2), 1
    order = [0, channel]
    for a, block in enumerate(blocks):
        order += [k + 2 + a, block]
    return w.reshape(w.transpose(apart, order), (n, kept, *(b * m for m in rest)))


def _space_to_depth(c: OnnxCall) -> Value:
    w, b = c.w, int(c["blocksize"])
    n, depth, *rest = c.shape(0)
    if b < 1 or any(m % b for m in rest):
        raise FrontendError(f"{list(rest)} is no multiple of {b}")
    k = len(rest)
    apart = w.reshape(c.value(0), (n, depth, *(e for m in rest for e in (m // b, b))))
    blocks, kept = range(3, 3 + 2 * k, 2), range(2, 2 + 2 * k, 2)
    first = (*blocks, 1) if c.attr("mode", "DCR") == "DCR" else (1, *blocks)
    return w.reshape(
        w.transpose(apart, (0, *first, *kept)), (n, depth * b**k, *(m // b for m in rest))
    )


def _reverse_sequence(c: OnnxCall) -> Value:
    """The first elements of each batch element along the time axis, in reverse."""
    w, x = c.w, c.value(0)
    shape, time, batch = w.shape(x), int(c["time_axis"]), int(c["batch_axis"])
    if {time, batch} != {0, 1} or len(shape) < 2:
        raise FrontendError("time and batch are the first two axes")
    lengths = w.cast(c.value(1), I32)
    at = w.iota(shape, I32, time)
    count = w.broadcast(lengths, shape, (batch,))
    turned = w.sub(w.sub(count, 1), at)
    places = w.select(w.map("lt", at, count), turned, at)
    return w.op("take_along", x, places, axis=time)


_BLOCKS: dict[str, OnnxRule] = {"DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth}
ONNX_MOVES: OnnxRules = {
    **{(STANDARD, name, 1): rule for name, rule in _BLOCKS.items()},
    (STANDARD, "Concat", 1): _concat,
    (STANDARD, "ConstantOfShape", 9): _constant_of_shape,
    (STANDARD, "Expand", 8): _expand,
    (STANDARD, "EyeLike", 9): _eye_like,
    (STANDARD, "Flatten", 1): _flatten,
    (STANDARD, "Pad", 1): _pad,
    (STANDARD, "Range", 11): _range,
    (STANDARD, "Reshape", 1): _reshape,
    (STANDARD, "ReverseSequence", 10): _reverse_sequence,
    (STANDARD, "Shape", 1): _shape,
    (STANDARD, "Size", 1): _size,
    (STANDARD, "Slice", 1): _slice,
    (STANDARD, "Split", 1): _split,
    (STANDARD, "Squeeze", 1): _squeeze,
    (STANDARD, "Tile", 1): _tile,
    (STANDARD, "Transpose", 1): _transpose,
    (STANDARD, "Unsqueeze", 1): _unsqueeze,
}
