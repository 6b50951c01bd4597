"""The multiprocessors' clock, from the driver's management library; unknown where there is none."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

# A sample below this share of the device's highest clock is not at its usual speed.
USUAL_SHARE = 0.75
_SM = 1
# Reasons for the present clock (nvml.h, nvmlClocksEventReason*): set so by the owner; limits of
# power and its brake; too hot, or slowed down by the board.
_SETTING, _POWER, _HEAT = 0x2, 0x4 | 0x80, 0x8 | 0x20 | 0x40
# The second is its name in drivers before 535.
_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")


@dataclass(frozen=True, slots=True)
class ClockState:
    """`slow`: so far below the highest clock that a time would not be the device's usual one, and
    neither its owner nor a limit of power is why: products at full power run at 0.8 of the clock.
    `held`: what keeps the clock down, "power" or "heat" or both."""

    slow: bool = False
    held: frozenset[str] = frozenset()


class Clocks:
    """Clock of the device at a PCI bus address."""

    def __init__(self, bus_id: str, library: Any = None) -> None:
        """`library` is NVML; without one, the driver's own."""
        self._library = library or nvml()
        self._device = ctypes.c_void_p()
        if self._library is not None:
            code = self._library.nvmlInit_v2() or self._library.nvmlDeviceGetHandleByPciBusId_v2(
                bus_id.encode(), ctypes.byref(self._device)
            )
            self._library = None if code else self._library
        self._highest = self._number("nvmlDeviceGetMaxClockInfo", _SM)

    @property
    def known(self) -> bool:
        """Whether the clock and its maximum can be read here."""
        return self._highest is not None and self._mhz() is not None

    def now(self) -> ClockState:
        """What can be told of the clock now."""
        mhz, highest, why = self._mhz(), self._highest, self._reasons()
        held = {name for name, bits in (("power", _POWER), ("heat", _HEAT)) if why & bits}
        low = mhz is not None and highest is not None and mhz < USUAL_SHARE * highest
        return ClockState(low and not why & (_SETTING | _POWER), frozenset(held))

    def _mhz(self) -> int | None:
        return self._number("nvmlDeviceGetClockInfo", _SM)

    def _reasons(self) -> int:
        """Bits; none where they are not told."""
        name = next((name for name in _REASONS if hasattr(self._library, name)), None)
        return 0 if name is None else self._number(name) or 0

    def _number(self, function: str, *arguments: int) -> int | None:
        if self._library is None:
            return None
        value = ctypes.c_ulonglong(0)
        code = getattr(self._library, function)(self._device, *arguments, ctypes.byref(value))
        return int(value.value) if code == 0 else None


def nvml() -> Any:
    """The driver's management library; None where there is none."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # a container may leave it out
        return None
