"""How device units are: what their canaries show, and when they are given up.

A canary is one kernel, always the same, that is timed on a unit before each slice. A unit is
compared with itself alone: units of one model differ by 8 % on average (Sinha et al., "Not All GPUs
Are Created Equal", SC 2022).
"""

from __future__ import annotations

from dataclasses import dataclass

# A canary that takes so many times as long as usual is bad; a unit is given up after so many in a
# row, and rests for so many seconds after each.
SLOW, MOST_BAD, REST_S = 1.2, 3, 20.0
# How much of what is usual comes from the latest good canary.
_LATEST = 0.25


@dataclass(frozen=True, slots=True)
class Canary:
    """One look at a unit, by its own name: the kernel's median now and what is usual there, in
    microseconds (None: it failed; it was never timed), processes of others on the device, and
    `note`, why it failed or why nobody knows of others."""

    unit: str
    us: float | None
    usual_us: float | None = None
    others: tuple[int, ...] = ()
    note: str = ""

    @property
    def fault(self) -> str:
        """Why nothing should be timed on the unit now; "" where it is as it should be."""
        if self.us is None:
            return f"its canary failed: {self.note}"
        if self.others:
            return f"others compute on it (processes {', '.join(map(str, self.others))})"
        if self.usual_us is not None and self.us > SLOW * self.usual_us:
            return f"its canary takes {self.us / self.usual_us:.2f} times as long as usual"
        return ""

    @property
    def next_usual_us(self) -> float | None:
        """What is usual after this look; a bad one changes nothing."""
        if self.us is None or self.fault:
            return self.usual_us
        if self.usual_us is None or SLOW * self.us < self.usual_us:
            return self.us  # so much faster that what was usual was disturbed
        return (1 - _LATEST) * self.usual_us + _LATEST * self.us


@dataclass(frozen=True, slots=True)
class UnitHealth:
    """What an engine's unit has shown: its canaries in order, bad ones in a row, and when, by the
    clock of the job, it may be tried again."""

    canaries: tuple[Canary, ...] = ()
    bad: int = 0
    rests_until: float = 0.0

    @property
    def is_quarantined(self) -> bool:
        return self.bad >= MOST_BAD

    def after(self, canary: Canary, now: float) -> UnitHealth:
        """This unit once it was looked at."""
        seen = (*self.canaries, canary)
        if not canary.fault:
            return UnitHealth(seen)
        return UnitHealth(seen, self.bad + 1, now + REST_S)
