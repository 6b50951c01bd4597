"""Tensor maps: which boxes of an array one thread may have copied at once, and in which layout.

A map is data of a launch; a driver encodes it for an address. Limits are those of the CUDA driver
API (cuTensorMapEncodeTiled) and of the PTX ISA (cp.async.bulk.tensor, swizzling modes).
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.ops.dtypes import DType

# Bytes that addresses and strides are multiples of, and of a row of a box whose pieces are
# exchanged; the most of a box and of an array along a dimension, and the first stride that is too
# long.
ALIGNED, SWIZZLED = 16, 128
MOST_BOX, MOST_SIZE, MOST_STRIDE, MOST_RANK = 256, 1 << 32, 1 << 40, 5
# Bytes of an encoded map, and the multiple that its address is of.
MAP_BYTES, MAP_ALIGNED = 128, 64


@dataclass(frozen=True, slots=True)
class TensorMap:
    """An array of `sizes` elements of `dtype` along its dimensions, innermost first, whose
    neighbours lie `strides` bytes apart (but the innermost, which lie next to each other), from
    byte `offset` of a buffer on. A copy brings a `box` of so many elements, in which pieces of 16
    bytes are exchanged in lines of `swizzle` bytes, with `fill` in the place of what is not there.
    """

    dtype: DType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    offset: int = 0
    swizzle: int = SWIZZLED
    fill: str = "zeros"

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def box_bytes(self) -> int:
        """Bytes that arrive with every box, whatever of it is there."""
        nbytes = self.dtype.itemsize
        for extent in self.box:
            nbytes *= extent
        return nbytes

    @property
    def refusal(self) -> str:
        """Why no driver encodes it; "" where one does. Each stride is to be a multiple of those
        before it, as the API's description has it."""
        if not 1 <= self.rank <= MOST_RANK:
            return f"{self.rank} dimensions"
        if not all(1 <= size <= MOST_SIZE for size in self.sizes):
            return "an array too large"
        if not all(1 <= extent <= MOST_BOX for extent in self.box):
            return "a box too large"
        if self.box[0] * self.dtype.itemsize > self.swizzle:
            return "lines of a box longer than what is exchanged"
        if self.box[0] * self.dtype.itemsize % ALIGNED or self.offset % ALIGNED:
            return "no whole pieces of 16 bytes"
        wrong = self._wrong_stride()
        return "" if wrong is None else f"a stride of {wrong} bytes"

    def _wrong_stride(self) -> int | None:
        before = ALIGNED
        for stride in self.strides:
            if stride <= 0 or stride % before or stride >= MOST_STRIDE:
                return stride
            before = stride
        return None
