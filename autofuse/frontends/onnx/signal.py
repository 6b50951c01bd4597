"""Rules for ONNX operators of signal processing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autofuse.frontends.errors import FrontendError
from autofuse.frontends.onnx.quantised import named_dtype
from autofuse.frontends.onnx.types import STANDARD, OnnxCall, OnnxResult, OnnxRule, OnnxRules
from autofuse.graph.composites import layers as composites
from autofuse.graph.composites import moves
from autofuse.graph.composites.fourier import (
    SHORT,
    inverse_real_fourier,
    real_fourier,
    unscaled_fourier,
)
from autofuse.graph.composites.layers import require_float
from autofuse.graph.known import affordable
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, normal_axes
from autofuse.ops.dtypes import DType


def _waves(made: int, count: int, length: int, sign: int) -> tuple[np.ndarray, np.ndarray]:
    """[made, count]: cosines and sines of the angles between frequencies and places."""
    affordable(made, count)
    turns = np.outer(np.arange(made), np.arange(count)) % length
    angles = sign * 2 * np.pi * turns / length
    return np.cos(angles), np.sin(angles)


def _split(w: GraphWriter, x: Value) -> tuple[Value, Value | None]:
    """The real and the imaginary part of numbers along the last axis; None for none."""
    shape = w.shape(x)
    last = len(shape) - 1
    if shape[last] not in (1, 2):
        raise FrontendError(f"numbers of {shape[last]} parts are neither real nor complex")
    parts = [w.reshape(w.part(x, last, k, k + 1), shape[:last]) for k in range(shape[last])]
    return parts[0], parts[1] if len(parts) == 2 else None


def _fitted(w: GraphWriter, v: Value | None, axis: int, length: int) -> Value | None:
    """`v` cut, or filled up with zeros, to `length` along an axis."""
    if v is None or w.shape(v)[axis] == length:
        return v
    rank, more = len(w.shape(v)), length - w.shape(v)[axis]
    high = [more if a == axis else 0 for a in range(rank)]
    return moves.pad(w, v, w.constant(0, w.dtype(v)), [0] * rank, high)


def _along(w: GraphWriter, v: Value, axis: int, matrix: np.ndarray) -> Value:
    """`matrix` [made, extent] times `v` along an axis, which then is the last."""
    return composites.dot(w, v, w.constant(matrix, w.dtype(v)), ((axis,), (1,)))


def _joined(w: GraphWriter, parts: Sequence[Value], axis: int) -> Value:
    """Parts whose axis `axis` was moved to their end, with the parts as the last axis."""
    rank = len(w.shape(parts[0]))
    back = [*range(axis), rank - 1, *range(axis, rank - 1)]
    return moves.stack(w, [w.transpose(v, back) for v in parts], rank)


def _transformed(
    w: GraphWriter, parts: tuple[Value, Value | None], axis: int, length: int, made: int, sign: int
) -> tuple[Value, Value]:
    """The real and imaginary parts of `made` frequencies, along the last axis."""
    real, imaginary = (_fitted(w, v, axis, length) for v in parts)
    assert real is not None
    if length > SHORT:
        return _by_library(w, real, imaginary, axis, made, sign)
    cosine, sine = _waves(made, length, length, sign)
    found = _along(w, real, axis, cosine), _along(w, real, axis, sine)
    if imaginary is None:
        return found
    return (
        w.sub(found[0], _along(w, imaginary, axis, sine)),
        w.add(found[1], _along(w, imaginary, axis, cosine)),
    )


def _by_library(
    w: GraphWriter, real: Value, imaginary: Value | None, axis: int, made: int, sign: int
) -> tuple[Value, Value]:
    """As an op, which divides by nothing."""
    rank = len(w.shape(real))
    order = [*(a for a in range(rank) if a != axis), axis]
    real = w.transpose(real, order)
    if imaginary is None and sign < 0 and made < w.shape(real)[-1]:
        return real_fourier(w, real)
    none = w.full(0.0, w.shape(real), w.dtype(real))
    pair = real, none if imaginary is None else w.transpose(imaginary, order)
    re, im = unscaled_fourier(w, pair, sign > 0, rank - 1)
    return w.part(re, rank - 1, 0, made), w.part(im, rank - 1, 0, made)


def _real_inverse(
    w: GraphWriter, parts: tuple[Value, Value | None], axis: int, length: int
) -> Value:
    """Real numbers from the first half of their frequencies; the others are these mirrored."""
    count = length // 2 + 1
    real, imaginary = (_fitted(w, v, axis, count) for v in parts)
    assert real is not None
    if length > SHORT:
        order = [*(a for a in range(len(w.shape(real))) if a != axis), axis]
        re = w.transpose(real, order)
        none = w.full(0.0, w.shape(re), w.dtype(re))
        im = none if imaginary is None else w.transpose(imaginary, order)
        return inverse_real_fourier(w, (re, im), length)
    cosine, sine = _waves(length, count, length, 1)
    twice = np.full(count, 2.0)
    twice[0] = 1.0
    if length % 2 == 0:
        twice[-1] = 1.0
    found = _along(w, real, axis, cosine * twice / length)
    if imaginary is None:
        return found
    return w.sub(found, _along(w, imaginary, axis, sine * twice / length))


def _dft(c: OnnxCall) -> Value:
    """The discrete Fourier transform along an axis, or its inverse; one-sided ones have the first
    half of the frequencies of real numbers."""
    w, own = c.w, require_float(c.dtype(0))
    x, rank = c.value(0, own.compute), len(c.shape(0))
    (axis,) = normal_axes(_dft_axis(c), rank)
    if axis == rank - 1:
        raise FrontendError("the axis of real and imaginary parts cannot be transformed")
    inverse, half = bool(c["inverse"]), bool(c["onesided"])
    extent = c.shape(0)[axis]
    length = _dft_length(c, 2 * (extent - 1) if inverse and half else extent)
    if length < 1:
        raise FrontendError("a transform of no elements")
    parts = _split(w, x)
    if inverse and half:
        return w.cast(_joined(w, [_real_inverse(w, parts, axis, length)], axis), own)
    made = length // 2 + 1 if half else length
    found = _transformed(w, parts, axis, length, made, 1 if inverse else -1)
    if inverse:
        found = w.mul(found[0], 1.0 / length), w.mul(found[1], 1.0 / length)
    return w.cast(_joined(w, found, axis), own)


def _dft_length(c: OnnxCall, usual: int) -> int:
    return c.ints(1, "the length")[0] if c.has(1) else usual


def _dft_axis(c: OnnxCall) -> int:
    if c.version < 20:
        return int(c.attr("axis", 1))
    return c.ints(2, "the axis")[0] if c.has(2) else -2


def _stft(c: OnnxCall) -> Value:
    """Transforms of frames that overlap, each weighed by a window."""
    w, own = c.w, require_float(c.dtype(0))
    step = c.ints(1, "the step")[0]
    window = c.optional(2, own.compute)
    length = c.shape(2)[0] if window is not None else c.shape(0)[1]
    length = c.ints(3, "the length of a frame")[0] if c.has(3) else length
    x = c.value(0, own.compute)
    signal = x if len(c.shape(0)) == 3 else w.reshape(x, (*c.shape(0), 1))
    frames = 1 + (c.shape(0)[1] - length) // step
    if frames < 1 or step < 1:
        raise FrontendError(f"no frame of {length} elements fits {c.shape(0)[1]}")
    affordable(frames, length)
    places = np.arange(frames)[:, None] * step + np.arange(length)
    taken = w.op("gather", signal, w.constant(places.astype(np.int32)), axis=1)
    if window is not None:
        around = _fitted(w, window, 0, length)
        assert around is not None
        taken = w.mul(taken, w.reshape(around, (length, 1)))
    made = length // 2 + 1 if c["onesided"] else length
    found = _transformed(w, _split(w, taken), 2, length, made, -1)
    return w.cast(_joined(w, found, 2), own)


# Windows and weights


def _window(*weights: float) -> OnnxRule:
    """A sum of cosines of whole turns over its length, `weights` with changing signs; the symmetric
    one is one element shorter."""

    def rule(c: OnnxCall) -> Value:
        w, size = c.w, c.ints(0, "the size")[0]
        dtype = named_dtype(c, "output_datatype") or DType.F32
        kind = dtype.compute if dtype.is_float else DType.F32
        turn = 2 * math.pi / max(size if c.attr("periodic", 1) else size - 1, 1)
        total = w.full(weights[0], (size,), kind)
        for k, weight in enumerate(weights[1:], start=1):
            angle = w.mul(w.iota((size,), kind, 0), turn * k)
            total = w.add(total, w.mul(w.map("cos", angle), weight * (-1) ** k))
        return w.cast(total, dtype)

    return rule


def _mel_weights(c: OnnxCall) -> OnnxResult:
    """Triangles over frequencies, whose corners are evenly spaced in mels: all known."""
    bins, length, rate, low, high = (
        float(c.needs(k, what).reshape(()))
        for k, what in enumerate(("the bins", "the length", "the rate", "the low edge",
                                  "the high edge"))
    )  # fmt: skip
    affordable(int(length) // 2 + 1, int(bins) + 2)
    low, high = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    places = np.arange(int(bins) + 2) * ((high - low) / (int(bins) + 2)) + low
    hertz = 700 * (10 ** (places / 2595) - 1)
    corners = np.floor((length + 1) * hertz / rate).astype(np.int64)
    found = np.zeros((int(length) // 2 + 1, int(bins)))
    for k, (left, centre, right) in enumerate(zip(corners, corners[1:], corners[2:], strict=False)):
        at = np.arange(left, centre + 1)
        found[at, k] = (at - left) / (centre - left) if centre > left else 1.0
        at = np.arange(centre, right)
        found[at, k] = (right - at) / max(right - centre, 1)
    dtype = named_dtype(c, "output_datatype") or DType.F32
    return c.w.constant(found, dtype)


ONNX_SIGNAL: OnnxRules = {
    (STANDARD, "BlackmanWindow", 17): _window(0.42, 0.5, 0.08),
    (STANDARD, "DFT", 17): _dft,
    (STANDARD, "HammingWindow", 17): _window(25 / 46, 21 / 46),
    (STANDARD, "HannWindow", 17): _window(0.5, 0.5),
    (STANDARD, "MelWeightMatrix", 17): _mel_weights,
    (STANDARD, "STFT", 17): _stft,
}
