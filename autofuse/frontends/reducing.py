"""Array functions that fold axes away, products of matrices, and the usual composites."""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from typing import Any

from autofuse.frontends.array import TracedArray
from autofuse.frontends.elementwise import (
    erf,
    exp,
    log,
    logistic,
    maximum,
    rsqrt,
    sqrt,
    tanh,
    truth,
)
from autofuse.frontends.errors import TraceError
from autofuse.frontends.promotion import as_array, as_dtype, cast, meet, to_float
from autofuse.frontends.recorder import current
from autofuse.frontends.shaping import (
    axes_in,
    axis_in,
    broadcast_shapes,
    broadcast_to,
    expand_dims,
    reshape,
    squeeze,
)
from autofuse.ops.dtypes import DType

Axes = int | Sequence[int] | None
_ACCUMULATED = {DType.BOOL: DType.I32, DType.I8: DType.I32, DType.U8: DType.U32}


def _reduce(op: str, array: TracedArray, axis: Axes, keepdims: bool) -> TracedArray:
    axes = axes_in(axis, array.ndim)
    out = current().op(op, array, axes=axes) if axes else array
    return _kept(out, array, axes) if keepdims else out


def _kept(out: TracedArray, array: TracedArray, axes: tuple[int, ...]) -> TracedArray:
    return reshape(out, [1 if i in axes else n for i, n in enumerate(array.shape)])


def _count(array: TracedArray, axis: Axes) -> int:
    return math.prod(array.shape[a] for a in axes_in(axis, array.ndim))


def sum(x: Any, /, axis: Axes = None, *, dtype: Any = None, keepdims: bool = False) -> TracedArray:
    """Sum over `axis`; booleans and 8-bit integers are added up as 32-bit integers."""
    return _reduce("reduce_sum", _accumulator(x, dtype), axis, keepdims)


def prod(x: Any, /, axis: Axes = None, *, dtype: Any = None, keepdims: bool = False) -> TracedArray:
    """Product over `axis`; booleans and 8-bit integers are multiplied as 32-bit integers."""
    return _reduce("reduce_prod", _accumulator(x, dtype), axis, keepdims)


def _accumulator(x: Any, dtype: Any) -> TracedArray:
    array = as_array(x)
    return cast(array, as_dtype(dtype) if dtype else _ACCUMULATED.get(array.dtype, array.dtype))


def max(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    return _reduce("reduce_max", as_array(x), axis, keepdims)


def min(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    return _reduce("reduce_min", as_array(x), axis, keepdims)


def any(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    return _reduce("reduce_any", truth(x), axis, keepdims)


def all(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    return _reduce("reduce_all", truth(x), axis, keepdims)


def mean(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    array = to_float(x)
    return sum(array, axis, keepdims=keepdims) * (1.0 / builtins.max(1, _count(array, axis)))


def var(
    x: Any, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
) -> TracedArray:
    """Mean squared distance from the mean, over count - correction."""
    array = to_float(x)
    centred = array - mean(array, axis, keepdims=True)
    divisor = _count(array, axis) - correction
    if divisor <= 0:
        raise TraceError("var needs more elements than its correction")
    return sum(centred * centred, axis, keepdims=keepdims) * (1.0 / divisor)


def std(
    x: Any, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
) -> TracedArray:
    return sqrt(var(x, axis, correction=correction, keepdims=keepdims))


def argmax(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> TracedArray:
    """First position of the largest element, i32; None: of the flattened array."""
    return _arg("argmax", x, axis, keepdims)


def argmin(x: Any, /, axis: int | None = None, *, keepdims: bool = False) -> TracedArray:
    """First position of the smallest element, i32; None: of the flattened array."""
    return _arg("argmin", x, axis, keepdims)


def _arg(op: str, x: Any, axis: int | None, keepdims: bool) -> TracedArray:
    array = as_array(x)
    if axis is None:
        out = current().op(op, reshape(array, (-1,)), axis=0)
        return reshape(out, (1,) * array.ndim) if keepdims else out
    at = axis_in(axis, array.ndim)
    out = current().op(op, array, axis=at)
    return expand_dims(out, at) if keepdims else out


def cumulative_sum(x: Any, /, axis: int | None = None) -> TracedArray:
    """Running sums along `axis` (None: flattened)."""
    array = _accumulator(x, None)
    if axis is None:
        array, axis = reshape(array, (-1,)), 0
    return current().op("cumsum", array, axis=axis_in(axis, array.ndim))


# Products.


def _dot(
    a: TracedArray, b: TracedArray, contract: tuple[Sequence[int], Sequence[int]], batch: int = 0
) -> TracedArray:
    lhs, rhs = (tuple(axes) for axes in contract)
    both = tuple(range(batch))
    return current().op("dot_general", a, b, lhs_contract=lhs, rhs_contract=rhs,
                        lhs_batch=both, rhs_batch=both)  # fmt: skip


def matmul(x1: Any, x2: Any, /) -> TracedArray:
    """Matrix product over the last two axes; leading axes broadcast, 1-D operands are vectors."""
    a, b = meet(x1, x2)
    if not a.ndim or not b.ndim:
        raise TraceError("matmul needs arrays with at least one axis")
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise TraceError(f"matmul of {a.type} and {b.type}: inner extents differ")
    if b.ndim <= 2:
        return _dot(a, b, ((a.ndim - 1,), (0,)))
    if a.ndim == 1:
        return squeeze(matmul(expand_dims(a, 0), b), -2)
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = broadcast_to(a, lead + a.shape[-2:])
    b = broadcast_to(b, lead + b.shape[-2:])
    return _dot(a, b, ((a.ndim - 1,), (b.ndim - 2,)), len(lead))


def tensordot(x1: Any, x2: Any, /, axes: int | Sequence[Sequence[int]] = 2) -> TracedArray:
    """Sum of products over the last `axes` axes of x1 and the first of x2, or over pairs."""
    a, b = meet(x1, x2)
    if isinstance(axes, int):
        pairs = (range(a.ndim - axes, a.ndim), range(axes))
    else:
        pairs = (
            [axis_in(i, a.ndim) for i in axes[0]],
            [axis_in(i, b.ndim) for i in axes[1]],
        )  # type: ignore[assignment]  # lists here, ranges above: both are axes
    return _dot(a, b, pairs)


def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> TracedArray:
    """Sum of products along `axis`, broadcasting the rest."""
    a, b = meet(x1, x2)
    return sum(a * b, axis)


def outer(x1: Any, x2: Any, /) -> TracedArray:
    a, b = meet(x1, x2)
    return reshape(a, (-1, 1)) * reshape(b, (1, -1))


# Composites.


def softmax(x: Any, /, axis: int = -1) -> TracedArray:
    """exp(x) over its sum along `axis`, shifted by the maximum."""
    array = to_float(x)
    e = exp(array - max(array, axis, keepdims=True))
    return e / sum(e, axis, keepdims=True)


def log_softmax(x: Any, /, axis: int = -1) -> TracedArray:
    array = to_float(x)
    return array - logsumexp(array, axis, keepdims=True)


def logsumexp(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    array = to_float(x)
    top = max(array, axis, keepdims=True)
    out = log(sum(exp(array - top), axis, keepdims=True)) + top
    return out if keepdims else squeeze(out, axes_in(axis, array.ndim))


def layer_norm(
    x: Any, gamma: Any = None, beta: Any = None, /, axis: Axes = -1, eps: float = 1e-5
) -> TracedArray:
    """(x - mean) / sqrt(var + eps) along `axis`, scaled by gamma and shifted by beta."""
    array = to_float(x)
    centred = array - mean(array, axis, keepdims=True)
    out = centred * rsqrt(mean(centred * centred, axis, keepdims=True) + eps)
    out = out if gamma is None else out * gamma
    return out if beta is None else out + beta


def rms_norm(x: Any, gamma: Any = None, /, axis: Axes = -1, eps: float = 1e-6) -> TracedArray:
    """x / sqrt(mean(x^2) + eps) along `axis`, scaled by gamma."""
    array = to_float(x)
    out = array * rsqrt(mean(array * array, axis, keepdims=True) + eps)
    return out if gamma is None else out * gamma


def gelu(x: Any, /, approximate: bool = True) -> TracedArray:
    """x times the normal distribution function, by the tanh approximation or exact (erf)."""
    array = to_float(x)
    if approximate:
        inner = math.sqrt(2 / math.pi) * (array + 0.044715 * array**3)
        return 0.5 * array * (1.0 + tanh(inner))
    return 0.5 * array * (1.0 + erf(array * math.sqrt(0.5)))


def silu(x: Any, /) -> TracedArray:
    """x times its logistic function."""
    array = to_float(x)
    return array * logistic(array)


def relu(x: Any, /) -> TracedArray:
    return maximum(x, 0)
