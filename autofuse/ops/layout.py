"""Arrays of the reference laid out in memory."""

from __future__ import annotations

import numpy as np

# Bytes copied at a time: what a part is read from stays in cache until all of it is used.
PART_BYTES = 1 << 22


def laid_out(array: np.ndarray) -> np.ndarray:
    """The array, row-major and contiguous; the same one where it is so already.

    NumPy copies in the order of the result, which reads a transposed array a cache line for each
    element. A part of the slowest axis of memory at a time takes a half to a quarter as long."""
    if array.flags.c_contiguous or array.nbytes <= PART_BYTES:
        return np.ascontiguousarray(array)
    made = np.empty(array.shape, array.dtype)
    axis = int(np.argmax(array.strides))
    source, target = np.moveaxis(array, axis, 0), np.moveaxis(made, axis, 0)
    step = max(1, PART_BYTES * len(source) // array.nbytes)
    for first in range(0, len(source), step):
        target[first : first + step] = source[first : first + step]
    return made
