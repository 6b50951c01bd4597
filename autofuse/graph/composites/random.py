"""Random numbers from counter-based bits: key u32[2] and stream u32[] give the same ones again.

Each function appends to a GraphWriter and returns a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.graph.composites.layers import require_float
from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter, Operand
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError, TensorType

_KEY, _STREAM = TensorType((2,), DType.U32), TensorType((), DType.U32)


def random_bits(
    w: GraphWriter, key: Value, stream: Value, shape: Sequence[int], generator: str = "philox"
) -> Value:
    """u32 words of `generator`."""
    if w.type_of(key) != _KEY or w.type_of(stream) != _STREAM:
        raise GraphError(
            f"a random key is {_KEY} and a stream {_STREAM}, got {w.type_of(key)} and "
            f"{w.type_of(stream)}"
        )
    return w.op("random_bits", key, stream, shape=tuple(shape), generator=generator)


def to_uniform(w: GraphWriter, bits: Value, low: Operand = 0.0, high: Operand = 1.0) -> Value:
    """u32 words as f32 numbers in [low, high): (bits >> 8) * 2^-24, scaled and shifted."""
    unit = w.mul(w.cast(w.map("shr", bits, 8), DType.F32), 2.0**-24)
    if isinstance(low, Value) or isinstance(high, Value):
        bounds = (v if isinstance(v, Value) else w.constant(v, DType.F32) for v in (low, high))
        start, end = bounds
        return w.add(w.mul(unit, w.sub(end, start)), start)
    scaled = unit if high - low == 1 else w.mul(unit, float(high - low))
    return scaled if low == 0 else w.add(scaled, float(low))


def uniform(
    w: GraphWriter, key: Value, stream: Value, shape: Sequence[int], dtype: DType = DType.F32
) -> Value:
    """Uniform in [0, 1) with 24 random bits each."""
    require_float(dtype)
    return w.cast(to_uniform(w, random_bits(w, key, stream, shape)), dtype)


def normal(
    w: GraphWriter, key: Value, stream: Value, shape: Sequence[int], dtype: DType = DType.F32
) -> Value:
    """Standard normal by Box-Muller: the first half of the stream gives radii, the second angles;
    cosines fill the first half of the result, sines the second."""
    require_float(dtype)
    count = TensorType(tuple(shape), dtype).size
    half = (count + 1) // 2
    draws = uniform(w, key, stream, (2 * half,))
    # 1 - u lies in (0, 1], where the logarithm is finite.
    logs = w.map("log", w.sub(1.0, w.part(draws, 0, 0, half)))
    radius = w.map("sqrt", w.mul(logs, -2.0))
    angle = w.mul(w.part(draws, 0, half, 2 * half), 2.0 * math.pi)
    both = w.concat([w.mul(radius, w.map(op, angle)) for op in ("cos", "sin")], 0)
    return w.cast(w.reshape(w.part(both, 0, 0, count), shape), dtype)
