"""Numbers that identities and kernels fail for, by dtype."""

from __future__ import annotations

import numpy as np

from autofuse.ops.dtypes import DType


def special(dtype: DType) -> np.ndarray:
    """Numbers of a dtype that identities fail for."""
    if dtype is DType.BOOL:
        return np.array([False, True])
    if dtype.is_float:
        info = np.finfo(np.float32) if dtype is DType.BF16 else np.finfo(dtype.numpy)
        tiny = float(info.tiny)
        found = [0.0, 1.0, 0.5, 0.1, 2.0, 2.5, 3.0, 8.0, 100.0, 0.99, np.inf, float(info.max),
                 tiny, tiny / 2, float(info.smallest_subnormal), 2.0 / dtype.eps + 1,
                 float(info.max) ** 0.5, tiny**0.5]  # fmt: skip
        with np.errstate(all="ignore"):
            return np.array([*found, *(-x for x in found), np.nan]).astype(dtype.numpy)
    low, high = dtype.limits
    bits = 8 * dtype.itemsize
    numbers = {0, 1, 2, 3, 7, 8, bits - 1, bits, high, high - 1, high // 2, high // 2 + 1, low,
               low + 1, low // 2, -1, -2, -8}  # fmt: skip
    return np.array(sorted(n for n in numbers if low <= n <= high), dtype=dtype.numpy)


def everything(dtype: DType) -> np.ndarray:
    """All numbers of a dtype of up to 16 bits, else special ones. NaNs are quiet ones: what becomes
    of signalling ones follows from the processor's conversions (IEEE 754, 6.2)."""
    if dtype is DType.BOOL or dtype.itemsize > 2:
        return special(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    found = np.arange(1 << 8 * dtype.itemsize).astype(unsigned).view(dtype.numpy)
    return np.where(np.isnan(found), dtype.numpy.type(np.nan), found) if dtype.is_float else found
