"""`xp.fft`: Fourier transforms along an axis, as NumPy's, of complex numbers as pairs of arrays:
(real parts, imaginary parts)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autofuse.frontends.array_api.array import TracedArray
from autofuse.frontends.array_api.promotion import as_array
from autofuse.frontends.array_api.recorder import current
from autofuse.frontends.array_api.shaping import axis_in, moveaxis
from autofuse.frontends.errors import TraceError
from autofuse.graph.composites.fourier import fourier, inverse_real_fourier, real_fourier
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter

Complex = tuple[TracedArray, TracedArray]


def fft(x: tuple[Any, Any], /, *, axis: int = -1) -> Complex:
    """The transform of a pair of arrays of floats of one shape; of the same shape."""
    return _pair(lambda w, re, im: fourier(w, (re, im)), x, axis)


def ifft(x: tuple[Any, Any], /, *, axis: int = -1) -> Complex:
    """What has the transform `x`."""
    return _pair(lambda w, re, im: fourier(w, (re, im), inverse=True), x, axis)


def rfft(x: Any, /, *, axis: int = -1) -> Complex:
    """The first n // 2 + 1 elements of the transform of n floats."""
    return _pair(real_fourier, (x,), axis)


def irfft(x: tuple[Any, Any], /, *, n: int | None = None, axis: int = -1) -> TracedArray:
    """The `n` numbers (by default an even number of them) whose `rfft` is `x`."""
    last, at = _last(x, axis)
    most = last[0].shape[-1]
    count = 2 * (most - 1) if n is None else n
    if not 1 <= count <= 2 * most - 1:
        raise TraceError(f"{most} elements are not those of the transform of {count} numbers")
    made = current().write(lambda w, re, im: inverse_real_fourier(w, (re, im), count), *last)
    return moveaxis(made, -1, at)


def _last(arrays: tuple[Any, ...], axis: int) -> tuple[list[TracedArray], int]:
    """Arrays of floats with an axis moved to the end, and its number."""
    found = [as_array(a) for a in arrays]
    if any(not a.dtype.is_float for a in found) or len({a.type for a in found}) != 1:
        raise TraceError("a Fourier transform needs floats, of one dtype and shape")
    at = axis_in(axis, found[0].ndim)
    return [moveaxis(a, at, -1) for a in found], at


def _pair(make: Callable[..., tuple[Value, Value]], arrays: tuple[Any, ...], axis: int) -> Complex:
    last, at = _last(arrays, axis)

    def part(k: int) -> TracedArray:
        # The writer keeps equal ops once, so the other part costs nothing.
        def one(w: GraphWriter, *values: Value) -> Value:
            return make(w, *values)[k]

        return moveaxis(current().write(one, *last), -1, at)

    return part(0), part(1)
