"""Element types: the dtypes a tensor may have, and how each is computed with."""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

import numpy as np

from autofuse.errors import GraphError


class DType(Enum):
    """An element type; its value is the spelling used in graphs, files and messages."""

    F64 = "f64"
    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I64 = "i64"
    I32 = "i32"
    I16 = "i16"
    I8 = "i8"
    U64 = "u64"
    U32 = "u32"
    U16 = "u16"
    U8 = "u8"
    BOOL = "bool"

    # Members are single objects: Enum's own hash of the name is Python, and types are hashed most.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value

    @property
    def numpy(self) -> np.dtype:
        """The NumPy dtype that stores it (bfloat16 comes from ml_dtypes)."""
        return _NUMPY.get(self) or _bfloat16()

    @property
    def numpy_name(self) -> str:
        """What NumPy calls it."""
        return "bfloat16" if self is DType.BF16 else str(self.numpy)

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.numpy.itemsize

    @property
    def is_float(self) -> bool:
        return self in FLOATS

    @property
    def is_int(self) -> bool:
        return self in INTS

    @property
    def is_signed(self) -> bool:
        return self in SIGNED

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the largest number of a dtype that is no float."""
        if self is DType.BOOL:
            return 0, 1
        info = np.iinfo(self.numpy)
        return int(info.min), int(info.max)

    @property
    def compute(self) -> DType:
        """The type arithmetic happens in: half types are stored narrow and computed as f32."""
        return DType.F32 if self in (DType.F16, DType.BF16) else self

    @property
    def eps(self) -> float:
        """Distance from 1.0 to the next larger value; 0.0 for exact (integer, bool) types."""
        return _EPS[self] if self.is_float else 0.0

    @property
    def largest(self) -> float:
        """The largest finite number of a float type."""
        return _LARGEST[self]

    @property
    def least_step(self) -> float:
        """The distance between numbers next to zero, where rounding is no longer relative."""
        return 2.0 ** _LEAST[self] if self.is_float else 0.0

    @property
    def reference(self) -> np.dtype:
        """The dtype of the reference interpreter: every float is a float64, the rest is exact."""
        return np.dtype(np.float64) if self.is_float else self.numpy


# How elements are stored of each that NumPy has. What is known of whole numbers follows from it.
_NUMPY: dict[DType, np.dtype] = {
    DType.F64: np.dtype(np.float64),
    DType.F32: np.dtype(np.float32),
    DType.F16: np.dtype(np.float16),
    DType.I64: np.dtype(np.int64),
    DType.I32: np.dtype(np.int32),
    DType.I16: np.dtype(np.int16),
    DType.I8: np.dtype(np.int8),
    DType.U64: np.dtype(np.uint64),
    DType.U32: np.dtype(np.uint32),
    DType.U16: np.dtype(np.uint16),
    DType.U8: np.dtype(np.uint8),
    DType.BOOL: np.dtype(np.bool_),
}
_EPS = {DType.F64: 2.0**-52, DType.F32: 2.0**-23, DType.F16: 2.0**-10, DType.BF16: 2.0**-7}
_LARGEST = {
    DType.F64: (2 - 2.0**-52) * 2.0**1023,
    DType.F32: (2 - 2.0**-23) * 2.0**127,
    DType.F16: 65504.0,
    DType.BF16: (2 - 2.0**-7) * 2.0**127,
}
# As exponents of two: of the least number above zero.
_LEAST = {DType.F64: -1074, DType.F32: -149, DType.F16: -24, DType.BF16: -133}
FLOATS = tuple(_EPS)
INTS = tuple(dtype for dtype, stored in _NUMPY.items() if stored.kind in "iu")
# Those that an i64 has all of, as places in an array are counted.
INDICES = tuple(dtype for dtype in INTS if dtype is not DType.U64)
# Of which products are computed tile by tile.
TILED = (*FLOATS, DType.I32)
BYTES = (DType.I8, DType.U8)
# Of these most ops are what they are of wider or narrower ones: only what depends on the width of
# whole numbers needs to be tried on them.
SELDOM = (DType.I16, DType.U16, DType.U64)
SIGNED = tuple(dtype for dtype in INTS if dtype.numpy.kind == "i")


@lru_cache(maxsize=1)
def _bfloat16() -> np.dtype:
    import ml_dtypes  # slow to import, and most graphs have no such value

    wide: np.dtype = np.dtype(ml_dtypes.bfloat16)
    return wide


def from_numpy(dtype: np.dtype | type) -> DType:
    """The DType stored as `dtype`; raises GraphError for a NumPy dtype that has none."""
    wanted = np.dtype(dtype)
    for ours, theirs in _NUMPY.items():
        if theirs == wanted:
            return ours
    if wanted == DType.BF16.numpy:
        return DType.BF16
    raise GraphError(f"dtype {wanted} is not supported (supported: {', '.join(map(str, DType))})")
