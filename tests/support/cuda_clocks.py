"""Clocks of a device, told by a fake NVML."""

from __future__ import annotations

from typing import Any

from autofuse.backends.cuda.clocks import Clocks
from tests.support.fake_cuda import FakeDriver


class NoNvml:
    """A library that does not start: a device that does not tell its clock."""

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's name
        return 1


class FakeNvml(NoNvml):
    """NVML of a device of 1980 MHz. Readings in MHz with the reasons for them, in order; the last
    one lasts."""

    def __init__(self, *readings: int | tuple[int, int]) -> None:
        self.readings = [(each, 0) if isinstance(each, int) else each for each in readings]
        self.reasons = 0

    def nvmlInit_v2(self) -> int:  # noqa: N802 - NVML's name
        return 0

    def nvmlDeviceGetHandleByPciBusId_v2(self, bus_id: bytes, handle: Any) -> int:  # noqa: N802 - NVML's name
        return 0

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802 - NVML's name
        value._obj.value = 1980
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int, value: Any) -> int:  # noqa: N802 - NVML's name
        value._obj.value, self.reasons = self.readings[0]
        self.readings = self.readings[1:] or self.readings
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:  # noqa: N802 - NVML's name
        value._obj.value = self.reasons
        return 0


def clocks(*readings: int | tuple[int, int]) -> Clocks:
    return Clocks("0000:00:00.0", FakeNvml(*readings) if readings else NoNvml())


def kernels(driver: FakeDriver) -> list[str]:
    """What was launched."""
    return [str(entry[1]) for entry in driver.log if entry[0] == "launch"]
