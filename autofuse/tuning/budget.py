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
# Shares of the time that is left to the search when each begins: enumerating candidates, naming and
# recalling them, and solving, which begins anew with every measurement. Together they are a third
# before a first kernel is measured: one candidate more is worth less than one measured.
ENUMERATING_SHARE, NAMING_SHARE, SOLVING_SHARE = 0.2, 0.1, 0.1


class Share:
    """A share of the seconds that are left; work ends with what it has when it is spent."""

    def __init__(self, left_s: Callable[[], float], share: float) -> None:
        self._left_s, self._share = left_s, share
        self.renew()

    def renew(self) -> None:
        """Begin anew: the same share of what is left now."""
        self._until_s = self._left_s() * (1 - self._share)

    def left_s(self) -> float:
        """Seconds of the share that are left, never negative."""
        left = self._left_s()
        return left if math.isinf(left) else max(left - self._until_s, 0.0)

    def is_over(self) -> bool:
        """Whether it is spent."""
        return self.left_s() <= 0


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
    def search_s(self) -> float:
        """Seconds until the search must end; none once the user wants to end."""
        left = self.seconds - self.reserve_s - self.elapsed_s
        return 0.0 if self.stop() else max(left, 0.0)

    @property
    def final_room_s(self) -> float:
        """Seconds that the final comparison may still take, at most."""
        return max(self.seconds * (1 + OVERRUN) - self.elapsed_s, 0.0)

    def is_over(self) -> bool:
        """Whether the search must end to leave time for the final comparison."""
        return self.stop() or self.elapsed_s > self.seconds - self.reserve_s
