"""Arrays of the fake driver, and of another library that lends it some."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np


class DeviceArray:
    """Memory that is not the host's: NumPy refuses to look into it."""

    def __init__(self, memory: np.ndarray, owner: object = None) -> None:
        self.memory, self.owner = memory, owner

    @property
    def shape(self) -> tuple[int, ...]:
        return self.memory.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.memory.dtype

    @property
    def nbytes(self) -> int:
        return self.memory.nbytes

    def __array__(self, *_: object) -> np.ndarray:
        raise TypeError("this array is on the device")


class Foreign:
    """An array of another library. `views` are on what it lent out and has not got back."""

    def __init__(self, memory: np.ndarray) -> None:
        self.memory = memory
        self.views: weakref.WeakSet[DeviceArray] = weakref.WeakSet()
