"""The budget of one tuning job: a cap on wall time, which everything that takes long asks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autofuse.ops.types import AutofuseError

# What a call under way when the budget ends may take beyond it, as a fraction of the budget.
OVERRUN = 0.1
# The share of the budget kept for the final comparison, and its most seconds.
FINAL_SHARE, FINAL_S = 0.15, 8.0
# The share of the budget that baselines may take.
BASELINE_SHARE = 0.25


@dataclass(frozen=True)
class Budget:
    """`seconds` of wall time from `begun`; `stop` says that the user wants to end now.

    Raises AutofuseError for seconds that are not a positive number."""

    seconds: float
    begun: float = field(default_factory=time.perf_counter)
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.seconds) and self.seconds > 0):
            raise AutofuseError(f"the budget must be positive, not {self.seconds:g} seconds")

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def left_s(self) -> float:
        """Seconds until the budget ends, never negative."""
        return max(self.seconds - self.elapsed_s, 0.0)

    @property
    def reserve_s(self) -> float:
        """Seconds of the budget kept for the final comparison."""
        return min(FINAL_SHARE * self.seconds, FINAL_S)

    @property
    def room_s(self) -> float:
        """Seconds that a call begun now may take at most: the search must end by then."""
        return max(self.seconds * (1 + OVERRUN) - self.reserve_s - self.elapsed_s, 0.0)

    @property
    def final_room_s(self) -> float:
        """Seconds that the final comparison may still take, at most."""
        return max(self.seconds * (1 + OVERRUN) - self.elapsed_s, 0.0)

    def is_over(self) -> bool:
        """Whether the search must end to leave time for the final comparison."""
        return self.stop() or self.elapsed_s > self.seconds - self.reserve_s
