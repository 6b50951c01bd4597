"""Discrete Fourier transforms along the last axis, of complex numbers as pairs of arrays: real and
imaginary parts.

A short one is a product with a constant matrix, which fuses with what is around it. A longer one is
an op (`autofuse/ops/fourier.py`), which libraries do.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph.composites import layers as composites
from autofuse.graph.composites.moves import stack
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter

Pair = tuple[Value, Value]
# Of real numbers the imaginary parts are None.
MaybeReal = tuple[Value, Value | None]
# Transforms of so many elements are products.
SHORT = 32


def times(w: GraphWriter, x: Pair, y: Pair) -> Pair:
    """x * y."""
    (a, b), (c, d) = x, y
    return w.sub(w.mul(a, c), w.mul(b, d)), w.add(w.mul(a, d), w.mul(b, c))


def over(w: GraphWriter, x: Pair, y: Pair) -> Pair:
    """x / y by the larger part of y, so that no square overflows (Smith, Communications of the ACM,
    August 1962)."""
    (a, b), (c, d) = x, y
    turned = w.map("lt", w.map("abs", c), w.map("abs", d))
    large, small = w.select(turned, d, c), w.select(turned, c, d)
    ratio = w.select(w.map("eq", large, 0.0), 0.0, w.div(small, large))
    below = w.add(large, w.mul(small, ratio))
    p, q = w.select(turned, b, a), w.select(turned, a, b)
    re, im = w.add(p, w.mul(q, ratio)), w.sub(q, w.mul(p, ratio))
    return w.div(re, below), w.div(w.select(turned, w.map("neg", im), im), below)


def fourier(w: GraphWriter, x: Pair, inverse: bool = False, axis: int = -1) -> Pair:
    """sum over j of x[j] exp(-+ 2 pi i j k / n) at every k along an axis; an `inverse` one divided
    by n."""
    at = axis % len(w.shape(x[0]))
    re, im = unscaled_fourier(w, x, inverse, at)
    n = float(w.shape(x[0])[at])
    return (w.div(re, n), w.div(im, n)) if inverse else (re, im)


def unscaled_fourier(w: GraphWriter, x: Pair, inverse: bool, axis: int) -> Pair:
    """As `fourier`, divided by nothing; `axis` counts from the first one."""
    if w.shape(x[0])[axis] > SHORT:
        return _split(w, w.op("ifft" if inverse else "fft", _joined(w, x), axis=axis))
    last = _last(w, x[0], axis), _last(w, x[1], axis)
    re, im = _product(w, last, 1 if inverse else -1)
    return _last(w, re, axis), _last(w, im, axis)


def real_fourier(w: GraphWriter, x: Value) -> Pair:
    """The first n // 2 + 1 elements of the transform of real numbers along the last axis; the
    others are conjugates."""
    rank, n = len(w.shape(x)), w.shape(x)[-1]
    if n > SHORT:
        return _split(w, w.op("rfft", x, axis=rank - 1))
    return _first(w, _product(w, (x, None), -1), n // 2 + 1)


def inverse_real_fourier(w: GraphWriter, x: Pair, n: int) -> Value:
    """The n real numbers of which `x` has the first n // 2 + 1 elements of the transform, along the
    last axis."""
    axis = len(w.shape(x[0])) - 1
    re, im = _first(w, x, n // 2 + 1)
    if n > SHORT:
        return w.div(w.op("irfft", _joined(w, (re, im)), axis=axis, n=n), float(n))
    rest = (n + 1) // 2
    low, high = [0] * (axis + 1), list(w.shape(re))
    low[axis], high[axis] = 1, rest
    back = [w.reverse(w.slice(v, low, high), axis) for v in (re, im)]
    whole = w.concat((re, back[0]), axis), w.concat((im, w.map("neg", back[1])), axis)
    return fourier(w, whole, inverse=True)[0]


def _joined(w: GraphWriter, x: Pair) -> Value:
    """Both parts next to each other, as libraries read them."""
    return stack(w, x, len(w.shape(x[0])))


def _split(w: GraphWriter, made: Value) -> Pair:
    shape = w.shape(made)
    re, im = (w.reshape(w.part(made, len(shape) - 1, k, k + 1), shape[:-1]) for k in (0, 1))
    return re, im


def _last(w: GraphWriter, v: Value, axis: int) -> Value:
    """An axis and the last one exchanged."""
    order = list(range(len(w.shape(v))))
    order[axis], order[-1] = order[-1], order[axis]
    return w.transpose(v, order)


def _first(w: GraphWriter, x: Pair, count: int) -> Pair:
    shape = w.shape(x[0])
    re, im = (w.slice(v, [0] * len(shape), (*shape[:-1], count)) for v in x)
    return re, im


def _product(w: GraphWriter, x: MaybeReal, sign: int) -> Pair:
    """A transform along the last axis as a product with its matrix, both parts side by side."""
    *lead, n = w.shape(x[0])
    affordable(n, n)
    steps = np.outer(np.arange(n), np.arange(n)) % n
    powers = np.exp(steps * (sign * 2j * np.pi / n))
    axis, dtype = len(lead), w.dtype(x[0])
    matrix = np.block([powers.real, powers.imag])
    left = x[0]
    if x[1] is not None:
        matrix = np.block([[matrix], [-powers.imag, powers.real]])
        left = w.concat((left, x[1]), axis)
    made = composites.dot(w, left, w.constant(matrix, dtype), ((axis,), (0,)))
    ends = (*lead, n), (*lead, 2 * n)
    return w.slice(made, [0] * (axis + 1), ends[0]), w.slice(made, [0] * axis + [n], ends[1])
