"""Arrays that start where vectors want them, and memory of results that is used again."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

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


# Smaller arrays come from the allocator each time: it has no page faults for them.
POOLED_BYTES = 1 << 17
# An array, and the address that it starts at.
Placed = tuple[np.ndarray, int]


def address_of(array: np.ndarray) -> int:
    """Where the elements of a contiguous array are. (What NumPy makes to say so takes 0.8 us.)"""
    buffer: Any = array
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a dtype of others
        return array.ctypes.data


class OutputPool:
    """Arrays of one type whose memory comes back when the last view of them is gone.

    Fresh memory of some size costs a page fault per 4 KiB on every call; recycled memory does not.
    At most two free blocks are kept.
    """

    def __init__(self, type_: ArrayType) -> None:
        self._shape, self._dtype = type_.shape, type_.dtype.numpy
        self._room = type_.nbytes + ALIGNMENT
        self._free: list[np.ndarray] = []
        # Memory that somebody holds, with what is told when nobody does any more, by the id of
        # that (an array has no hash, and a reference has that of what it is to).
        self._lent: dict[int, tuple[weakref.ref[np.ndarray], np.ndarray]] = {}

    def take(self) -> Placed:
        """An array with unspecified contents that nobody else holds."""
        if self._room < POOLED_BYTES:
            return self._placed(np.empty(self._room, np.uint8))
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(self._room, np.uint8)
        # NumPy's chain of bases ends at `owner`, because a memoryview is no array: every view
        # a caller makes keeps `owner` alive, and its end is the end of the last of them.
        owner = np.frombuffer(memory.data, np.uint8)
        told = weakref.ref(owner, self._returned)
        self._lent[id(told)] = told, memory
        return self._placed(owner)

    def _placed(self, memory: np.ndarray) -> Placed:
        start = address_of(memory)
        offset = -start % ALIGNMENT
        return np.ndarray(self._shape, self._dtype, memory, offset), start + offset

    def _returned(self, told: weakref.ref[np.ndarray]) -> None:
        _, memory = self._lent.pop(id(told))
        if len(self._free) < _KEPT_PER_OUTPUT:
            self._free.append(memory)
