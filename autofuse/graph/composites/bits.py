"""Functions of the bits of integers and floats, built from ops of the table."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType, from_numpy
from autofuse.ops.types import GraphError


def _whole(dtype: DType, signed: bool) -> DType:
    """Integers of the size of `dtype`."""
    return from_numpy(np.dtype(f"{'i' if signed else 'u'}{dtype.itemsize}"))


def population_count(w: GraphWriter, x: Value) -> Value:
    """How many bits of integers are 1."""
    dtype = w.dtype(x)
    kind = _whole(dtype, signed=False)
    v, width = w.bitcast(x, kind), 8 * dtype.itemsize
    shift = 1
    while shift < width:
        mask = sum((2**shift - 1) << low for low in range(0, width, 2 * shift))
        high = w.map("and", w.map("shr_logical", v, shift), mask)
        v, shift = w.add(w.map("and", v, mask), high), 2 * shift
    return w.bitcast(v, dtype)


def leading_zeros(w: GraphWriter, x: Value) -> Value:
    """How many of the highest bits of integers are 0."""
    dtype = w.dtype(x)
    v, shift = w.bitcast(x, _whole(dtype, signed=False)), 1
    while shift < 8 * dtype.itemsize:
        v, shift = w.map("or", v, w.map("shr_logical", v, shift)), 2 * shift
    return population_count(w, w.bitcast(w.map("not", v), dtype))


def next_after(w: GraphWriter, x: Value, y: Value) -> Value:
    """The float that follows x towards y."""
    x, y = w.aligned(x, y)
    kind = _whole(w.dtype(x), signed=True)
    bits = w.bitcast(x, kind)
    up = w.map("lt", x, y)
    away = w.map("eq", up, w.map("gt", x, 0.0))
    moved = w.bitcast(w.add(bits, w.select(away, 1, w.full(-1, w.shape(bits), kind))), w.dtype(x))
    least = w.bitcast(w.full(1, w.shape(bits), kind), w.dtype(x))
    moved = w.select(w.map("eq", x, 0.0), w.select(up, least, w.map("neg", least)), moved)
    moved = w.select(w.map("eq", x, y), y, moved)
    return w.select(w.map("or", w.map("isnan", x), w.map("isnan", y)), w.add(x, y), moved)


def high_product(w: GraphWriter, x: Value, y: Value) -> Value:
    """The upper half of the product of integers of at most 32 bits; raises GraphError for wider
    ones, of which no product has room."""
    x, y = w.aligned(x, y)
    dtype = w.dtype(x)
    if dtype.itemsize > 4:
        raise GraphError(f"the whole product of two {dtype} has no dtype")
    wide = DType.I64 if dtype.is_signed else DType.U64
    product = w.mul(w.cast(x, wide), w.cast(y, wide))
    return w.cast(
        w.map("shr" if dtype.is_signed else "shr_logical", product, 8 * dtype.itemsize), dtype
    )
