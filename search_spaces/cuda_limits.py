"""What the launch space of CUDA kernels asks of a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class DeviceLimits(Protocol):
    """What of a device bounds a launch; sizes in bytes, `halves` the multiply-adds of 16-bit
    factors that the tensor cores of a multiprocessor do in a clock. `backends.cuda.devices.Target`
    is one."""

    @property
    def sms(self) -> int: ...

    @property
    def threads_per_block(self) -> int: ...

    @property
    def threads_per_sm(self) -> int: ...

    @property
    def registers_per_sm(self) -> int: ...

    @property
    def shared_per_block(self) -> int: ...

    @property
    def shared_per_sm(self) -> int: ...

    @property
    def early(self) -> bool: ...

    @property
    def clusters(self) -> int: ...

    @property
    def warpgroups(self) -> bool: ...

    @property
    def halves(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CommonLimits:
    """What every device of the last generations has."""

    sms: int = 108
    threads_per_block: int = 1024
    threads_per_sm: int = 1536
    registers_per_sm: int = 65536
    shared_per_block: int = 99 << 10
    shared_per_sm: int = 100 << 10
    early: bool = False
    clusters: int = 0
    warpgroups: bool = False
    halves: int = 1024
