"""Whole numbers of few bits that lie several to a byte: how they are read."""

from __future__ import annotations

import numpy as np

from autofuse.graph.types import Value
from autofuse.graph.writer import GraphWriter
from autofuse.ops.dtypes import DType

BYTE = 8


def packed(array: np.ndarray, bits: int) -> np.ndarray:
    """Bytes of numbers of `bits` bits (1, 2 or 4), those of the last axis side by side, the first
    one lowest: u8, whose last axis has `bits` / 8 times as many elements. The last axis of `array`
    must be whole bytes; signed numbers are kept as two's complement."""
    each = BYTE // bits
    kept = array.astype(np.int8).view(np.uint8) & (2**bits - 1)
    apart = kept.reshape(*array.shape[:-1], -1, each) << (bits * np.arange(each, dtype=np.uint8))
    made: np.ndarray = np.bitwise_or.reduce(apart, axis=-1)
    return made


def unpacked(w: GraphWriter, value: Value, bits: int, signed: bool = False) -> Value:
    """The numbers of `bits` bits in bytes (u8) of the last axis, the first one lowest: u8, or i8
    where they are `signed`, of 8 / `bits` times as many elements in the last axis."""
    if bits < BYTE:
        shape, mask = w.shape(value), 2**bits - 1
        pieces = [w.map("shr_logical", value, start) if start else value
                  for start in range(0, BYTE, bits)]  # fmt: skip
        lowest = [w.map("and", piece, mask) for piece in pieces[:-1]]
        apart = [w.reshape(piece, (*shape, 1)) for piece in (*lowest, pieces[-1])]
        value = w.reshape(w.concat(apart, len(shape)), (*shape[:-1], shape[-1] * len(apart)))
    if not signed:
        return value
    own = w.cast(value, DType.I8)
    middle = 2 ** (bits - 1)
    return own if bits == BYTE else w.sub(w.map("xor", own, middle), middle)
