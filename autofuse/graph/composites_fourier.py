"""Discrete Fourier transforms along the last axis, of complex numbers as pairs of arrays: real and
imaginary parts.

A transform of a * b elements is b transforms of a elements, a factor for each element, and a
transforms of b elements (Cooley and Tukey, 1965); a short one is a product with a constant matrix,
and one of a large prime a convolution with a chirp (Bluestein, 1970), of a length that can be cut.
So a transform is ops like any others, on every device, and fuses with what is around it.
"""

from __future__ import annotations

import numpy as np

from autofuse.graph import composites
from autofuse.graph.composites_moves import pad
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter

Pair = tuple[Value, Value]
# Of real numbers the imaginary parts are None.
MaybeReal = tuple[Value, Value | None]
# Transforms of so many elements are products, and longer ones are cut; the longest product of those
# that cannot be.
SHORT, LONGEST_PRODUCT = 32, 512


def times(w: GraphWriter, x: Pair, y: Pair) -> Pair:
    """x * y."""
    (a, b), (c, d) = x, y
    return w.sub(w.mul(a, c), w.mul(b, d)), w.add(w.mul(a, d), w.mul(b, c))


def fourier(w: GraphWriter, x: Pair, inverse: bool = False) -> Pair:
    """sum over j of x[j] exp(-+ 2 pi i j k / n) at every k; an `inverse` one divided by
    n."""
    n = w.shape(x[0])[-1]
    found = _transform(w, x, 1 if inverse else -1)
    return (w.div(found[0], float(n)), w.div(found[1], float(n))) if inverse else found


def real_fourier(w: GraphWriter, x: Value) -> Pair:
    """The first n // 2 + 1 elements of the transform of real numbers; the others are conjugates."""
    return _first(w, _transform(w, (x, None), -1), w.shape(x)[-1] // 2 + 1)


def inverse_real_fourier(w: GraphWriter, x: Pair, n: int) -> Value:
    """The n real numbers of which `x` has the first n // 2 + 1 elements of the transform."""
    axis = len(w.shape(x[0])) - 1
    re, im = _first(w, x, n // 2 + 1)
    rest = (n + 1) // 2
    low, high = [0] * (axis + 1), list(w.shape(re))
    low[axis], high[axis] = 1, rest
    back = [w.reverse(w.slice(v, low, high), axis) for v in (re, im)]
    whole = w.concat((re, back[0]), axis), w.concat((im, w.map("neg", back[1])), axis)
    return fourier(w, whole, inverse=True)[0]


def _first(w: GraphWriter, x: Pair, count: int) -> Pair:
    shape = w.shape(x[0])
    re, im = (w.slice(v, [0] * len(shape), (*shape[:-1], count)) for v in x)
    return re, im


def _transform(w: GraphWriter, x: MaybeReal, sign: int) -> Pair:
    """Without a factor."""
    *lead, n = w.shape(x[0])
    a = _first_length(n)
    if a == n:
        return _product(w, x, sign) if n <= LONGEST_PRODUCT else _chirped(w, x, sign)
    b = n // a
    re, im = (None if v is None else _swapped(w, w.reshape(v, (*lead, a, b))) for v in x)
    assert re is not None
    angles = np.arange(b)[:, None] * np.arange(a) * (sign * 2 * np.pi / n)
    turned = times(w, _product(w, (re, im), sign), _constants(w, re, np.exp(1j * angles)))
    found = _transform(w, (_swapped(w, turned[0]), _swapped(w, turned[1])), sign)
    re, im = (w.reshape(_swapped(w, v), (*lead, n)) for v in found)
    return re, im


def _first_length(n: int) -> int:
    """The elements of the first transforms that one of n is cut into: n itself if it is not."""
    if n <= SHORT:
        return n
    found = max((a for a in range(2, SHORT + 1) if n % a == 0), default=0)
    if found:
        return found
    return next((p for p in range(SHORT, LONGEST_PRODUCT) if n % p == 0), n)


def _chirped(w: GraphWriter, x: MaybeReal, sign: int) -> Pair:
    """As j k = (j^2 + k^2 - (k - j)^2) / 2, the sum over j is c[k] times a convolution of x[j] c[j]
    with 1 / c, where c[j] = exp(+- pi i j^2 / n)."""
    *lead, n = w.shape(x[0])
    length = _cut_length(2 * n - 1)
    # Squares are taken modulo 2 n, a whole turn, so that long ones keep their precision.
    chirp = np.exp(np.arange(n) ** 2 % (2 * n) * (sign * 1j * np.pi / n))
    around = np.concatenate([chirp, np.zeros(length - 2 * n + 1), chirp[:0:-1]]).conj()
    own = _constants(w, x[0], chirp)
    begun = _scaled(w, x, own)
    low, high = [0] * (len(lead) + 1), [0] * len(lead) + [length - n]
    re, im = (pad(w, v, w.constant(0.0, w.dtype(v)), low, high) for v in begun)
    spectrum = _constants(w, re, np.fft.fft(around) / length)
    folded = _transform(w, times(w, _transform(w, (re, im), -1), spectrum), 1)
    return times(w, _first(w, folded, n), own)


def _cut_length(least: int) -> int:
    """The least number of no less than `least` that is a power of 2, or one times 3, 5, 9 or 15."""
    return min(f << (-(-least // f) - 1).bit_length() for f in (1, 3, 5, 9, 15))


def _scaled(w: GraphWriter, x: MaybeReal, by: Pair) -> Pair:
    re, im = x
    return (w.mul(re, by[0]), w.mul(re, by[1])) if im is None else times(w, (re, im), by)


def _product(w: GraphWriter, x: MaybeReal, sign: int) -> Pair:
    """A transform as a product with its matrix, both parts side by side."""
    *lead, n = w.shape(x[0])
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


def _swapped(w: GraphWriter, x: Value) -> Value:
    """The last two axes exchanged."""
    rank = len(w.shape(x))
    return w.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _constants(w: GraphWriter, like: Value, numbers: np.ndarray) -> Pair:
    dtype = w.dtype(like)
    return w.constant(numbers.real, dtype), w.constant(numbers.imag, dtype)
