"""Tensor maps as the emulator reads them (boxes.h): what a driver was told, in our own encoding."""

from __future__ import annotations

import struct

import numpy as np

from autofuse.backends.aligned import aligned_empty
from autofuse.kernel.ir.tensor_map import MAP_ALIGNED, MAP_BYTES, TensorMap
from autofuse.ops.dtypes import DType
from autofuse.ops.types import TensorType

_MAGIC = 0x70616D726F736E74
# `af::TensorMap` of core.h.
_LAYOUT = struct.Struct("<QQ4Q5I5HHHH44x")
assert _LAYOUT.size == MAP_BYTES


def encoded(tensor: TensorMap, buffer: int) -> bytes:
    """The map of a buffer at an address of the host."""
    sizes, strides = [*tensor.sizes, 0, 0, 0, 0], [*tensor.strides, 0, 0, 0, 0]
    box = [*tensor.box, 0, 0, 0, 0]
    return _LAYOUT.pack(
        _MAGIC, buffer + tensor.offset, *strides[:4], *sizes[:5], *box[:5],
        tensor.dtype.itemsize, tensor.rank, tensor.swizzle,
    )  # fmt: skip


def as_argument(made: bytes) -> np.ndarray:
    """A map as an argument of a launch: one element of 128 bytes that begins where it must."""
    room = aligned_empty(TensorType((MAP_BYTES,), DType.U8))
    room[...] = np.frombuffer(made, np.uint8)
    assert room.ctypes.data % MAP_ALIGNED == 0
    return room.view(f"V{MAP_BYTES}")
