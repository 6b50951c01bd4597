"""Array functions that fold axes away, products of matrices, and the usual composites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.elementwise import multiply, truth
from autofuse.frontends.array_api.promotion import as_array, as_dtype, cast, meet, to_float
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.array_api.shaping import axes_in, axis_in, expand_dims, reshape
from autofuse.graph.composites import activations
from autofuse.graph.composites import layers as composites
from autofuse.graph.types import Value
from autofuse.graph.writer import Axes, GraphWriter
from autofuse.ops.dtypes import DType

_ACCUMULATED = {DType.BOOL: DType.I32, DType.I8: DType.I32, DType.I16: DType.I32,
                DType.U8: DType.U32, DType.U16: DType.U32}  # fmt: skip


def _reduce(op: str, array: TracedArray, axis: Axes, keepdims: bool) -> TracedArray:
    return current().write(GraphWriter.reduce, op, array, axes_in(axis, array.ndim), keepdims)


def _float(function: Callable[..., Value], x: Any, *args: Any, **kwargs: Any) -> TracedArray:
    """A composite of `x` as floats."""
    return current().write(function, to_float(x), *args, **kwargs)


def sum(x: Any, /, axis: Axes = None, *, dtype: Any = None, keepdims: bool = False) -> TracedArray:
    """Sum over `axis`; booleans and narrow integers are added up as 32-bit integers."""
    return _reduce("reduce_sum", _accumulator(x, dtype), axis, keepdims)


def prod(x: Any, /, axis: Axes = None, *, dtype: Any = None, keepdims: bool = False) -> TracedArray:
    """Product over `axis`; booleans and narrow integers are multiplied as 32-bit integers."""
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
    return _float(composites.mean, x, axis, keepdims)


def var(
    x: Any, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
) -> TracedArray:
    """Mean squared distance from the mean, over count - correction."""
    return _float(composites.var, x, axis, keepdims, correction)


def std(
    x: Any, /, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False
) -> TracedArray:
    return _float(composites.std, x, axis, keepdims, correction)


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
    return current().write(composites.cumulative_sum, array, axis_in(axis, array.ndim))


# Products.


def matmul(x1: Any, x2: Any, /) -> TracedArray:
    """Matrix product over the last two axes; leading axes broadcast, 1-D operands are vectors."""
    return current().write(composites.matmul, *meet(x1, x2))


def tensordot(x1: Any, x2: Any, /, axes: int | Sequence[Sequence[int]] = 2) -> TracedArray:
    """Sum of products over the last `axes` axes of x1 and the first of x2, or over pairs."""
    a, b = meet(x1, x2)
    if isinstance(axes, int):
        last, first = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    else:
        last = tuple(axis_in(i, a.ndim) for i in axes[0])
        first = tuple(axis_in(i, b.ndim) for i in axes[1])
    return current().write(composites.dot, a, b, (last, first))


def vecdot(x1: Any, x2: Any, /, axis: int = -1) -> TracedArray:
    """Sum of products along `axis`, broadcasting the rest."""
    a, b = meet(x1, x2)
    return sum(multiply(a, b), axis)


def outer(x1: Any, x2: Any, /) -> TracedArray:
    a, b = meet(x1, x2)
    return multiply(reshape(a, (-1, 1)), reshape(b, (1, -1)))


# Composites.


def softmax(x: Any, /, axis: int = -1) -> TracedArray:
    """exp(x) over its sum along `axis`, shifted by the maximum."""
    return _float(activations.softmax, x, axis)


def log_softmax(x: Any, /, axis: int = -1) -> TracedArray:
    """The logarithm of softmax along `axis`, shifted by the maximum first."""
    return _float(activations.log_softmax, x, axis)


def logsumexp(x: Any, /, axis: Axes = None, *, keepdims: bool = False) -> TracedArray:
    """log(sum(exp(x))) over `axis`, shifted by the maximum where that is finite."""
    return _float(composites.logsumexp, x, axis, keepdims)


def layer_norm(
    x: Any, gamma: Any = None, beta: Any = None, /, axis: Axes = -1, eps: float = 1e-5
) -> TracedArray:
    """(x - mean) / sqrt(var + eps) along `axis`, scaled by gamma and shifted by beta."""
    return _normalised(composites.layer_norm, x, gamma, beta, eps=eps, axes=axis)


def rms_norm(x: Any, gamma: Any = None, /, axis: Axes = -1, eps: float = 1e-6) -> TracedArray:
    """x / sqrt(mean(x^2) + eps) along `axis`, scaled by gamma."""
    return _normalised(composites.rms_norm, x, gamma, eps=eps, axes=axis)


def _normalised(
    function: Callable[..., Value], x: Any, *parameters: Any, **options: Any
) -> TracedArray:
    """A norm of `x` and its parameters, any of which may be missing, in their common dtype."""
    given = meet(to_float(x), *(p for p in parameters if p is not None))
    found = iter(given[1:])
    arrays = [None if p is None else next(found) for p in parameters]
    return current().write(function, given[0], *arrays, **options)


def gelu(x: Any, /, approximate: bool = True) -> TracedArray:
    """x times the normal distribution function, by the tanh approximation or exact (erf)."""
    return _float(activations.gelu, x, approximate)
