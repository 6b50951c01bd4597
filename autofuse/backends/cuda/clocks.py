"""The multiprocessors' clock, from the driver's management library; unknown where there is none."""

from __future__ import annotations

import ctypes

# A sample below this share of the highest clock seen is not the device's usual speed.
USUAL_SHARE = 0.75
_SM = 1


class Clocks:
    """Clock of the device at a PCI bus address."""

    def __init__(self, bus_id: str) -> None:
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_void_p()
        self._highest = 0
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:  # a container may leave it out
            return
        found = library.nvmlInit_v2() == 0 and (
            library.nvmlDeviceGetHandleByPciBusId_v2(bus_id.encode(), ctypes.byref(self._device))
            == 0
        )
        self._library = library if found else None

    @property
    def known(self) -> bool:
        """Whether the clock can be read here."""
        return self.read() is not None

    def read(self) -> int | None:
        """MHz now, or None."""
        if self._library is None:
            return None
        value = ctypes.c_uint(0)
        code = self._library.nvmlDeviceGetClockInfo(self._device, _SM, ctypes.byref(value))
        return int(value.value) if code == 0 else None

    def slow(self) -> bool:
        """Whether the clock is far below the highest seen so far."""
        now = self.read()
        if now is None:
            return False
        self._highest = max(self._highest, now)
        return now < USUAL_SHARE * self._highest
