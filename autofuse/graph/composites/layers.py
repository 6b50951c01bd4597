"""Statistics, normalisations and products, written once for every front end.

Each function appends ops to a GraphWriter and returns a value. Axes may be negative, as in NumPy.
Results have the dtype of the first operand; what adds up half floats does so in f32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.graph.types import Value
from autofuse.graph.writer import Axes, GraphWriter, broadcast_shapes, normal_axes
from autofuse.ops import spec_of
from autofuse.ops.dtypes import FLOATS, DType
from autofuse.ops.types import GraphError, OpCall, make_attrs

# Multiplications per element of the operands from which a product is worth moving them for.
LARGE_PRODUCT = 32


def require_float(dtype: DType) -> DType:
    """`dtype` itself; raises GraphError unless it is a float."""
    if dtype not in FLOATS:
        raise GraphError(f"the result is a float, not {dtype}")
    return dtype


def wide(w: GraphWriter, v: Value) -> Value:
    """A float in the dtype that sums are computed in."""
    return w.cast(v, require_float(w.dtype(v)).compute)


def _count(w: GraphWriter, v: Value, axes: Axes) -> int:
    shape = w.shape(v)
    return math.prod(shape[a] for a in normal_axes(axes, len(shape)))


# Statistics


def mean(w: GraphWriter, v: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """The mean over `axes` (None: all); floats only."""
    return w.cast(_mean(w, wide(w, v), axes, keepdims), w.dtype(v))


def _mean(w: GraphWriter, v: Value, axes: Axes, keepdims: bool = True) -> Value:
    total = w.reduce("reduce_sum", v, axes, keepdims)
    return w.mul(total, 1.0 / max(_count(w, v, axes), 1))


def var(
    w: GraphWriter, v: Value, axes: Axes = None, keepdims: bool = False, correction: float = 0.0
) -> Value:
    """The variance over `axes`, in two passes; divides by count - correction."""
    divisor = _count(w, v, axes) - correction
    if divisor <= 0:
        raise GraphError(f"the variance divides by {divisor}")
    x = wide(w, v)
    centred = w.sub(x, _mean(w, x, axes))
    total = w.reduce("reduce_sum", w.mul(centred, centred), axes, keepdims)
    return w.cast(w.mul(total, 1.0 / divisor), w.dtype(v))


def std(
    w: GraphWriter, v: Value, axes: Axes = None, keepdims: bool = False, correction: float = 0.0
) -> Value:
    """The square root of `var`."""
    return w.map("sqrt", var(w, v, axes, keepdims, correction))


def logsumexp(w: GraphWriter, v: Value, axes: Axes = None, keepdims: bool = False) -> Value:
    """log(sum(exp(v))) over `axes`, shifted by the maximum where that is finite."""
    x = wide(w, v)
    top = w.reduce("reduce_max", x, axes, keepdims=True)
    shift = w.select(w.map("isfinite", top), top, 0.0)
    total = w.reduce("reduce_sum", w.map("exp", w.sub(x, shift)), axes, keepdims=True)
    found = w.add(w.map("log", total), shift)
    if not keepdims:
        gone = normal_axes(axes, len(w.shape(v)))
        found = w.reshape(found, [n for a, n in enumerate(w.shape(v)) if a not in gone])
    return w.cast(found, w.dtype(v))


def cumulative_sum(w: GraphWriter, v: Value, axis: int, reverse: bool = False) -> Value:
    """Running sums along `axis`, from its end when `reverse`."""
    return running(w, "cumsum", v, axis, reverse)


def running(w: GraphWriter, op: str, v: Value, axis: int, reverse: bool = False) -> Value:
    """The running fold `op` (cumsum, cumprod, cummax, cummin, cumlogsumexp) along `axis`, from its
    end when `reverse`."""
    (at,) = normal_axes(axis, len(w.shape(v)))
    if not reverse:
        return w.op(op, v, axis=at)
    return w.reverse(w.op(op, w.reverse(v, at), axis=at), at)


# Normalisations


def layer_norm(
    w: GraphWriter,
    v: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    axes: Axes = -1,
) -> Value:
    """(v - mean) / sqrt(var + eps) * scale + bias over `axes`; scale and bias broadcast against v.

    Instance norm is this over the spatial axes, group norm over the axes of a group.
    """
    x = wide(w, v)
    centred = w.sub(x, _mean(w, x, axes))
    spread = _mean(w, w.mul(centred, centred), axes)
    return _scaled(w, w.mul(centred, w.map("rsqrt", w.add(spread, eps))), scale, bias, w.dtype(v))


def rms_norm(
    w: GraphWriter, v: Value, scale: Value | None = None, eps: float = 1e-6, axes: Axes = -1
) -> Value:
    """v / sqrt(mean(v^2) + eps) * scale."""
    x = wide(w, v)
    power = _mean(w, w.mul(x, x), axes)
    return _scaled(w, w.mul(x, w.map("rsqrt", w.add(power, eps))), scale, None, w.dtype(v))


def group_norm(
    w: GraphWriter,
    v: Value,
    groups: int,
    scale: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
) -> Value:
    """The layer norm of each group of neighbouring channels (axis 1) of each sample; scale and bias
    are one for each channel."""
    shape = w.shape(v)
    grouped = w.reshape(wide(w, v), (shape[0], groups, -1))
    found = w.reshape(layer_norm(w, grouped, eps=eps, axes=2), shape)
    around = (-1, *(1 for _ in shape[2:]))
    scale, bias = (None if p is None else w.reshape(p, around) for p in (scale, bias))
    return _scaled(w, found, scale, bias, w.dtype(v))


def batch_norm(
    w: GraphWriter,
    v: Value,
    running_mean: Value,
    running_var: Value,
    scale: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    axis: int = 1,
) -> Value:
    """(v - running_mean) / sqrt(running_var + eps) * scale + bias, one of each for every position
    along `axis`: what a batch norm computes when it does not train."""
    rank = len(w.shape(v))
    (at,) = normal_axes(axis, rank)
    around = [-1 if a == at else 1 for a in range(rank)]

    def per_channel(value: Value) -> Value:
        return w.reshape(wide(w, value), around)

    inverse = w.map("rsqrt", w.add(per_channel(running_var), eps))
    found = w.mul(w.sub(wide(w, v), per_channel(running_mean)), inverse)
    wide_scale, wide_bias = (None if p is None else per_channel(p) for p in (scale, bias))
    return _scaled(w, found, wide_scale, wide_bias, w.dtype(v))


def _scaled(
    w: GraphWriter, v: Value, scale: Value | None, bias: Value | None, dtype: DType
) -> Value:
    v = v if scale is None else w.mul(v, w.cast(scale, w.dtype(v)))
    v = v if bias is None else w.add(v, w.cast(bias, w.dtype(v)))
    return w.cast(v, dtype)


# Classes


def one_hot(w: GraphWriter, v: Value, classes: int, dtype: DType = DType.F32) -> Value:
    """A new last axis of extent `classes`: 1 where it equals the integer v, else 0."""
    v = w.cast(v, DType.I32) if w.dtype(v).itemsize == 1 else v
    shape = (*w.shape(v), classes)
    steps = w.iota(shape, w.dtype(v), len(shape) - 1)
    wanted = w.broadcast(v, shape, range(len(shape) - 1))
    return w.cast(w.map("eq", wanted, steps), dtype)


# Products


def dot(
    w: GraphWriter, x: Value, y: Value, contract: tuple[Sequence[int], Sequence[int]],
    batch: tuple[Sequence[int], Sequence[int]] = ((), ()),
) -> Value:  # fmt: skip
    """The sum of products over the paired `contract` axes, for each element of the paired `batch`
    axes; the result has batch axes, free axes of x, free axes of y.

    Operands of a large product that no matrix library could read as they lie (a batch axis that is
    not the first, axes of one role apart) are transposed first, as XLA's dot canonicalisation
    does: a pass through memory for each, where a product of elements far apart takes many."""
    from autofuse.ops.contraction import dot_axes, gemm_form  # only graphs of products need it

    attrs: dict[str, tuple[int, ...]] = {}
    for name, pairs in (("contract", contract), ("batch", batch)):
        for side, axes in zip(("lhs", "rhs"), pairs, strict=True):
            attrs[f"{side}_{name}"] = tuple(map(int, axes))
    call = OpCall(make_attrs(attrs), (w.type_of(x), w.type_of(y)))
    (out,) = spec_of("dot_general").infer(call)
    if gemm_form(call) is not None or not _is_large(call, out.size):
        return w.op("dot_general", x, y, **attrs)
    roles, lead = dot_axes(call), len(attrs["lhs_batch"])
    rows, summed = len(roles.lhs_free), len(roles.lhs_contract)
    x = w.transpose(x, (*roles.lhs_batch, *roles.lhs_free, *roles.lhs_contract))
    y = w.transpose(y, (*roles.rhs_batch, *roles.rhs_contract, *roles.rhs_free))
    return w.op(
        "dot_general", x, y,
        lhs_contract=tuple(range(lead + rows, lead + rows + summed)),
        rhs_contract=tuple(range(lead, lead + summed)),
        lhs_batch=tuple(range(lead)), rhs_batch=tuple(range(lead)),
    )  # fmt: skip


def _is_large(call: OpCall, made: int) -> bool:
    """Whether a product reads every element of its operands often enough to repay moving them."""
    from autofuse.ops.contraction import contract_shape

    terms = math.prod(contract_shape(call))
    return made * terms >= LARGE_PRODUCT * sum(t.size for t in call.ins)


def matmul(w: GraphWriter, x: Value, y: Value) -> Value:
    """NumPy's matmul: vectors are promoted, leading axes are batch axes and broadcast."""
    tx, ty = w.type_of(x), w.type_of(y)
    if not tx.rank or not ty.rank:
        raise GraphError("matmul takes arrays of rank 1 or more")
    if tx.shape[-1] != ty.shape[-2:][0]:  # of a vector its only axis
        raise GraphError(f"matmul of {tx} and {ty}: inner extents differ")
    batch = broadcast_shapes(tx.shape[:-2], ty.shape[:-2])
    # A lone matrix or vector on the right needs no copy: the free axes of x are the batch.
    if tx.rank >= 2 and ty.rank > 2:
        x = w.spread(x, (*batch, *tx.shape[-2:]))
    if tx.rank > 2 and ty.rank > 2:
        y = w.spread(y, (*batch, *ty.shape[-2:]))
    nx, ny = len(w.shape(x)), len(w.shape(y))
    shared = range(len(batch)) if nx > 2 and ny > 2 else ()
    return dot(w, x, y, ((nx - 1,), (max(ny - 2, 0),)), (shared, shared))
