"""Common functions built from primitive ops; each appends to a GraphBuilder and returns a value.

Axes may be negative, as in NumPy. Floats keep their dtype throughout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops.dtypes import FLOATS, DType
from autofuse.ops.types import GraphError, TensorType

Axes = int | Sequence[int] | None


def normal_axes(axes: Axes, rank: int) -> tuple[int, ...]:
    """Axes ascending in 0..rank-1 (None: all); raises GraphError when one is out of range."""
    wanted = range(rank) if axes is None else (axes,) if isinstance(axes, int) else tuple(axes)
    for axis in wanted:
        if not -rank <= axis < rank:
            raise GraphError(f"axis {axis} is out of range for an array of rank {rank}")
    found = sorted(axis % rank for axis in wanted)
    if len(set(found)) != len(found):
        raise GraphError(f"axes {list(wanted)} repeat")
    return tuple(found)


def full(b: GraphBuilder, value: bool | int | float, dtype: DType, shape: Sequence[int]) -> Value:
    """`shape` filled with `value`."""
    return b.constant(value, dtype, shape)


def full_like(b: GraphBuilder, v: Value, value: bool | int | float) -> Value:
    """The shape and dtype of `v` filled with `value`."""
    t = b.type_of(v)
    return b.constant(value, t.dtype, t.shape)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """NumPy's common shape; raises GraphError when there is none."""
    rank = max((len(s) for s in shapes), default=0)
    common = []
    for axis in range(1, rank + 1):
        extents = {s[-axis] for s in shapes if len(s) >= axis} - {1}
        if len(extents) > 1:
            raise GraphError(
                f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast"
            )
        common.append(extents.pop() if extents else 1)
    return tuple(reversed(common))


def broadcast_to(b: GraphBuilder, v: Value, shape: Sequence[int]) -> Value:
    """NumPy's broadcast_to: missing leading axes and axes of extent 1 are repeated."""
    source, target = b.type_of(v).shape, tuple(shape)
    if source == target:
        return v
    lined_up = zip(reversed(source), reversed(target), strict=False)
    if len(source) > len(target) or any(n not in (1, m) for n, m in lined_up):
        raise GraphError(f"shape {list(source)} does not broadcast to {list(target)}")
    lead = len(target) - len(source)
    kept = [a for a, n in enumerate(source) if n == target[lead + a]]
    v = reshape(b, v, [source[a] for a in kept])
    return b.add("broadcast", v, shape=target, dims=tuple(lead + a for a in kept))


def reshape(b: GraphBuilder, v: Value, shape: Sequence[int]) -> Value:
    """`v` in another shape of as many elements; one extent may be -1."""
    source, target = b.type_of(v), list(shape)
    if target.count(-1) == 1:
        rest = math.prod(n for n in target if n != -1)
        target[target.index(-1)] = source.size // rest if rest else 0
    if tuple(target) == source.shape:
        return v
    return b.add("reshape", v, shape=tuple(target))


def cast(b: GraphBuilder, v: Value, dtype: DType) -> Value:
    """`v` converted to `dtype`; itself when it has that dtype."""
    return v if b.type_of(v).dtype == dtype else b.add("cast", v, dtype=str(dtype))


def binary(b: GraphBuilder, op: str, x: Value, y: Value | float, name: str = "") -> Value:
    """An elementwise op of two values with NumPy broadcasting; a number takes the dtype of x."""
    if not isinstance(y, Value):
        y = full_like(b, x, y)
    shape = broadcast_shapes(b.type_of(x).shape, b.type_of(y).shape)
    return b.add(op, broadcast_to(b, x, shape), broadcast_to(b, y, shape), name=name)


def where(b: GraphBuilder, cond: Value, x: Value, y: Value) -> Value:
    """x where cond else y, all three broadcast together."""
    shape = broadcast_shapes(*(b.type_of(v).shape for v in (cond, x, y)))
    return b.add("select", *(broadcast_to(b, v, shape) for v in (cond, x, y)))


def reduce(b: GraphBuilder, op: str, v: Value, axes: Axes, keepdims: bool = False) -> Value:
    """A reduction (op like "reduce_sum") over `axes` (None: all); `keepdims` leaves extents 1."""
    shape = b.type_of(v).shape
    gone = normal_axes(axes, len(shape))
    result = b.add(op, v, axes=gone) if gone else v
    kept = [1 if a in gone else n for a, n in enumerate(shape)]
    return reshape(b, result, kept) if keepdims else result


def _over(b: GraphBuilder, op: str, v: Value, axes: Axes) -> Value:
    """A reduction broadcast back to the shape of `v`."""
    return broadcast_to(b, reduce(b, op, v, axes, keepdims=True), b.type_of(v).shape)


def _count(shape: Sequence[int], axes: Axes) -> int:
    return math.prod(shape[a] for a in normal_axes(axes, len(shape)))


def square(b: GraphBuilder, v: Value) -> Value:
    return b.add("mul", v, v)


def _divide(b: GraphBuilder, v: Value, count: float) -> Value:
    """v / count; half types do it in f32, because a count may not be a half number."""
    dtype = b.type_of(v).dtype
    return cast(b, binary(b, "div", cast(b, v, dtype.compute), float(count)), dtype)


def mean(b: GraphBuilder, v: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """The mean over `axes` (None: all); floats only."""
    _require_float(b.type_of(v).dtype)
    total = reduce(b, "reduce_sum", v, axes, keepdims)
    return _divide(b, total, max(_count(b.type_of(v).shape, axes), 1))


def var(
    b: GraphBuilder, v: Value, axes: Axes = None, keepdims: bool = False, correction: float = 0.0
) -> Value:
    """The variance over `axes`, in two passes; divides by count - correction."""
    count = _count(b.type_of(v).shape, axes) - correction
    if count <= 0:
        raise GraphError(f"the variance divides by {count}")
    centred = binary(b, "sub", v, mean(b, v, axes, keepdims=True))
    total = reduce(b, "reduce_sum", square(b, centred), axes, keepdims)
    return _divide(b, total, count)


def softmax(b: GraphBuilder, v: Value, axis: int = -1) -> Value:
    """exp(v - max) over its sum along `axis`."""
    powers = b.add("exp", b.add("sub", v, _over(b, "reduce_max", v, axis)))
    return b.add("div", powers, _over(b, "reduce_sum", powers, axis))


def log_softmax(b: GraphBuilder, v: Value, axis: int = -1) -> Value:
    """The logarithm of softmax, computed without it."""
    centred = b.add("sub", v, _over(b, "reduce_max", v, axis))
    total = reduce(b, "reduce_sum", b.add("exp", centred), axis, keepdims=True)
    return binary(b, "sub", centred, b.add("log", total))


def layer_norm(
    b: GraphBuilder,
    v: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    axes: Axes = -1,
) -> Value:
    """(v - mean) / sqrt(var + eps) * scale + bias; scale and bias broadcast against v."""
    centred = binary(b, "sub", v, mean(b, v, axes, keepdims=True))
    spread = mean(b, square(b, centred), axes, keepdims=True)
    result = binary(b, "mul", centred, b.add("rsqrt", binary(b, "add", spread, eps)))
    result = result if scale is None else binary(b, "mul", result, scale)
    return result if bias is None else binary(b, "add", result, bias)


def rms_norm(
    b: GraphBuilder, v: Value, scale: Value | None = None, eps: float = 1e-6, axes: Axes = -1
) -> Value:
    """v / sqrt(mean(v^2) + eps) * scale."""
    power = mean(b, square(b, v), axes, keepdims=True)
    result = binary(b, "mul", v, b.add("rsqrt", binary(b, "add", power, eps)))
    return result if scale is None else binary(b, "mul", result, scale)


def gelu(b: GraphBuilder, v: Value, approximate: bool = True) -> Value:
    """The Gaussian error linear unit: its tanh form, or the exact one with erf."""
    if approximate:
        cubic = binary(b, "mul", b.add("mul", square(b, v), v), 0.044715)
        inner = binary(b, "mul", b.add("add", v, cubic), math.sqrt(2.0 / math.pi))
        gate = b.add("tanh", inner)
    else:
        gate = b.add("erf", binary(b, "mul", v, math.sqrt(0.5)))
    return b.add("mul", binary(b, "mul", v, 0.5), binary(b, "add", gate, 1.0))


def silu(b: GraphBuilder, v: Value) -> Value:
    """v * logistic(v)."""
    return b.add("mul", v, b.add("logistic", v))


def relu(b: GraphBuilder, v: Value) -> Value:
    """max(v, 0); NaN stays NaN."""
    return binary(b, "max", v, 0)


def one_hot(b: GraphBuilder, v: Value, classes: int, dtype: DType = DType.F32) -> Value:
    """A new last axis of extent `classes`: 1 where it equals the integer v, else 0."""
    v = cast(b, v, DType.I32) if b.type_of(v).dtype.itemsize == 1 else v
    t = b.type_of(v)
    shape = (*t.shape, classes)
    steps = b.add("iota", shape=shape, dtype=str(t.dtype), axis=t.rank)
    wanted = b.add("broadcast", v, shape=shape, dims=tuple(range(t.rank)))
    return cast(b, b.add("eq", wanted, steps), dtype)


def matmul(b: GraphBuilder, x: Value, y: Value) -> Value:
    """NumPy's matmul: vectors are promoted, leading axes are batch axes and broadcast."""
    tx, ty = b.type_of(x), b.type_of(y)
    if not tx.rank or not ty.rank:
        raise GraphError("matmul takes arrays of rank 1 or more")
    batch = broadcast_shapes(tx.shape[:-2], ty.shape[:-2])
    # A lone matrix or vector on the right needs no copy: the free axes of x are the batch.
    if tx.rank >= 2 and ty.rank > 2:
        x = broadcast_to(b, x, (*batch, *tx.shape[-2:]))
    if tx.rank > 2 and ty.rank > 2:
        y = broadcast_to(b, y, (*batch, *ty.shape[-2:]))
    nx, ny = b.type_of(x).rank, b.type_of(y).rank
    shared = tuple(range(len(batch))) if nx > 2 and ny > 2 else ()
    return b.add(
        "dot_general", x, y,
        lhs_contract=(nx - 1,), rhs_contract=(max(ny - 2, 0),), lhs_batch=shared, rhs_batch=shared,
    )  # fmt: skip


def uniform(
    b: GraphBuilder,
    key: Value,
    stream: Value,
    shape: Sequence[int],
    dtype: DType = DType.F32,
    generator: str = "philox",
) -> Value:
    """Uniform in [0, 1) with 24 random bits each; `key` is u32[2], `stream` u32[]."""
    _require_float(dtype)
    bits = b.add("random_bits", key, stream, shape=tuple(shape), generator=generator)
    top = cast(b, binary(b, "shr", bits, 8), DType.F32)
    return cast(b, binary(b, "mul", top, 2.0**-24), dtype)


def normal(
    b: GraphBuilder,
    key: Value,
    stream: Value,
    shape: Sequence[int],
    dtype: DType = DType.F32,
    generator: str = "philox",
) -> Value:
    """Standard normal by Box-Muller: the first half of the stream gives radii, the second angles;
    cosines fill the first half of the result, sines the second."""
    _require_float(dtype)
    count = TensorType(tuple(shape), dtype).size
    half = (count + 1) // 2
    draws = uniform(b, key, stream, (2 * half,), DType.F32, generator)
    first = b.add("slice", draws, start=(0,), stop=(half,), stride=(1,))
    angle = b.add("slice", draws, start=(half,), stop=(2 * half,), stride=(1,))
    # 1 - u lies in (0, 1], where the logarithm is finite.
    logs = b.add("log", b.add("sub", full_like(b, first, 1.0), first))
    radius = b.add("sqrt", binary(b, "mul", logs, -2.0))
    angle = binary(b, "mul", angle, 2.0 * math.pi)
    parts = [b.add("mul", radius, b.add(op, angle)) for op in ("cos", "sin")]
    both = b.add("concat", *parts, axis=0)
    if count != 2 * half:
        both = b.add("slice", both, start=(0,), stop=(count,), stride=(1,))
    return cast(b, reshape(b, both, shape), dtype)


def _require_float(dtype: DType) -> None:
    if dtype not in FLOATS:
        raise GraphError(f"the result is a float, not {dtype}")
