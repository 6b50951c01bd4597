"""Arrays that start where vectors want them, and memory of results that is used again."""

from __future__ import annotations

import weakref

import numpy as np

from autofuse.backends.base import ALIGNMENT, ArrayType

_KEPT_PER_OUTPUT = 2


def aligned_empty(type_: ArrayType) -> np.ndarray:
    """An uninitialised row-major array that starts on a 64-byte boundary."""
    return _view(np.empty(type_.nbytes + ALIGNMENT, np.uint8), type_)


def aligned_bytes(count: int) -> np.ndarray:
    """So many uninitialised bytes from a 64-byte boundary on."""
    memory = np.empty(count + ALIGNMENT, np.uint8)
    return _aligned(memory, count)


def aligned_copy(array: np.ndarray, type_: ArrayType) -> np.ndarray:
    """`array` copied to a 64-byte boundary; its shape and dtype must be those of `type_`."""
    return copied_to(aligned_bytes(type_.nbytes), array, type_)


def copied_to(memory: np.ndarray, array: np.ndarray, type_: ArrayType) -> np.ndarray:
    """`array` of `type_` copied to as many bytes."""
    copy = memory.view(type_.dtype.numpy).reshape(type_.shape)
    copy[...] = array
    return copy


def _aligned(memory: np.ndarray, count: int) -> np.ndarray:
    offset = -memory.ctypes.data % ALIGNMENT
    return memory[offset : offset + count]


def _view(memory: np.ndarray, type_: ArrayType) -> np.ndarray:
    return _aligned(memory, type_.nbytes).view(type_.dtype.numpy).reshape(type_.shape)


class OutputPool:
    """Arrays of one type whose memory comes back when the last view of them is gone.

    Fresh memory costs a page fault per 4 KiB on every call; recycled memory does not. At most
    two free blocks are kept.
    """

    def __init__(self, type_: ArrayType) -> None:
        self._type = type_
        self._free: list[np.ndarray] = []

    def take(self) -> np.ndarray:
        """An array with unspecified contents that nobody else holds."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._type.nbytes + ALIGNMENT, np.uint8)
        # NumPy's chain of bases ends at `owner`, because a memoryview is no array: every view
        # a caller makes keeps `owner` alive, and its end is the end of the last of them.
        owner = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(owner, _give_back, self._free, memory).atexit = False
        return _view(owner, self._type)


def _give_back(free: list[np.ndarray], memory: np.ndarray) -> None:
    if len(free) < _KEPT_PER_OUTPUT:
        free.append(memory)
