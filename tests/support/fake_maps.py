"""The driver's functions for tensor maps, with the rules of cuda.h that they enforce.

What they make is what the emulator reads (`backends/emulator/maps.py`)."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from autofuse.backends.emulator.maps import encoded
from autofuse.kernel.ir.tensor_map import TensorMap
from autofuse.ops.dtypes import DType

_INVALID = 1
_BYTES = 128
_HEAD = encoded(TensorMap(DType.U8, (16,), (), (16,)), 0)[:8]
# CUtensorMapDataType: those of 8 and of 16 bits.
_TYPES = {0: DType.U8, 6: DType.F16, 9: DType.BF16}
# CUtensorMapSwizzle: the most bytes of a line of a box.
_LINES = {1: 32, 2: 64, 3: 128}


def readdressed(made: bytes, address: int) -> bytes:
    """A map of an array that is at another address."""
    return made[:8] + struct.pack("<Q", address) + made[16:]


class FakeMaps:
    """The library. `made` are the addresses that maps were encoded for or changed to."""

    def __init__(self) -> None:
        self.made: list[int] = []
        self.launched: list[tuple[Any, ...]] = []

    def cuTensorMapEncodeTiled(  # noqa: N802 - the driver's name
        self, out: int, kind: int, rank: int, address: int, sizes: Sequence[int],
        strides: Sequence[int], box: Sequence[int], steps: Sequence[int], interleave: int,
        swizzle: int, promotion: int, fill: int,
    ) -> int:  # fmt: skip
        dtype = _TYPES.get(kind)
        dims = range(rank)
        if dtype is None or out % 64 or not 1 <= rank <= 5 or not address or address % 16:
            return _INVALID
        if not all(1 <= sizes[k] <= 1 << 32 and 1 <= box[k] <= 256 for k in dims):
            return _INVALID
        apart = [strides[k] for k in range(rank - 1)]
        if any(not 0 < s < 1 << 40 or s % 16 for s in apart):
            return _INVALID
        if any(after % before for before, after in pairwise(apart)):
            return _INVALID
        if any(steps[k] != 1 for k in dims) or interleave or fill not in (0, 1):
            return _INVALID
        line = box[0] * dtype.itemsize
        if line % 16 or line > _LINES.get(swizzle, 1 << 30) or not 0 <= promotion <= 3:
            return _INVALID
        whole = TensorMap(
            dtype, tuple(sizes[k] for k in dims), tuple(apart), tuple(box[k] for k in dims),
            swizzle=_LINES.get(swizzle, 0),
        )  # fmt: skip
        ctypes.memmove(out, encoded(whole, address), _BYTES)
        self.made.append(address)
        return 0

    def cuTensorMapReplaceAddress(self, place: int, address: int) -> int:  # noqa: N802 - as above
        if place % 64 or not address or address % 16:
            return _INVALID
        made = readdressed(ctypes.string_at(place, _BYTES), address)
        ctypes.memmove(place, made, _BYTES)
        self.made.append(address)
        return 0

    def cuLaunchKernel(self, *arguments: Any) -> int:  # noqa: N802 - as above
        """Written down, with what the kernel is given. Its handle says how many arguments there
        are; a map is known by what it begins with."""
        function, places = arguments[0], arguments[9]
        given: list[int | bytes] = []
        for k in range(function % 16):
            head = ctypes.string_at(places[k], len(_HEAD))
            value = ctypes.c_int64.from_address(places[k]).value
            given.append(ctypes.string_at(places[k], _BYTES) if head == _HEAD else value)
        self.launched.append((*arguments[:9], given))
        return 0
