"""What measuring asks of a device: one small protocol, so that the worker knows no device.

A device holds the inputs of one workload and its guarded outputs, runs loaded artifacts on them,
and takes samples. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np

from autofuse.backends.base import ALIGNMENT, AnyArtifact
from autofuse.measure.check.compare import poison
from autofuse.measure.timing.sampling import ProfileSamples, Sampling, Watch
from autofuse.ops.types import TensorType

Arrays = tuple[np.ndarray, ...]
GUARD_BYTES = 512
_GUARD_VALUE = 0x5C


class GuardedOutput:
    """An output array between two guard zones that no correct program writes to.

    `window` is zone, array and zone as bytes; the array starts GUARD_BYTES into it."""

    def __init__(self, type_: TensorType) -> None:
        size = -(-type_.nbytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(size + 2 * GUARD_BYTES + ALIGNMENT, np.uint8)
        start = GUARD_BYTES + -(memory.ctypes.data + GUARD_BYTES) % ALIGNMENT
        end = start + type_.nbytes
        self.window = memory[start - GUARD_BYTES : end + GUARD_BYTES]
        self._zones = (memory[start - GUARD_BYTES : start], memory[end : end + GUARD_BYTES])
        self.array = memory[start:end].view(type_.dtype.numpy).reshape(type_.shape)

    def arm(self) -> None:
        """Poison the array and reset the zones."""
        poison(self.array)
        for zone in self._zones:
            zone.fill(_GUARD_VALUE)

    def intact(self) -> bool:
        return all(bool(np.all(zone == _GUARD_VALUE)) for zone in self._zones)


class CheckedRun(NamedTuple):
    """What is there after a run, on the host: inputs, outputs, and whether nothing was written
    around the outputs."""

    inputs: Arrays
    outputs: Arrays
    intact: bool


class Device(Protocol):
    """Where the candidates of one worker run, one workload at a time."""

    @property
    def broken(self) -> bool:
        """Whether this process can use the device no more; another one could."""
        ...

    def open(self, inputs: Arrays, outputs: Sequence[TensorType]) -> None:
        """Keep these inputs where candidates read them, and make outputs."""
        ...

    def load(self, artifact: Any) -> AbstractContextManager[Any]:
        """`artifact`, loaded, its constants bound to those of the inputs; unloaded at the end of
        the context. Raises LaunchError."""
        ...

    def run(self, loaded: Any, *, elsewhere: bool = False) -> CheckedRun:
        """One run on poisoned outputs; `elsewhere`: with arrays in another place than without,
        where the device has one. Raises LaunchError."""
        ...

    def left(self) -> CheckedRun:
        """What the last sample left. Raises LaunchError."""
        ...

    def watch(self, loaded: Any, sampling: Sampling) -> Watch:
        """Something that takes samples of `loaded`, warmed up, on poisoned outputs. Raises
        LaunchError."""
        ...

    def profile(self, loaded: Any, groups: int, sampling: Sampling) -> ProfileSamples:
        """Samples of each group inside the plan. Raises LaunchError."""
        ...


__all__ = ["GUARD_BYTES", "AnyArtifact", "Arrays", "CheckedRun", "Device", "GuardedOutput"]
