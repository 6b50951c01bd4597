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
# Seconds in which a process that measures can start and read a reference back on a busy machine.
LEAST_SETUP_S = 10.0
# The share of the budget that baselines may take, and of what is left of it that planning what
# serves an untuned program may take.
BASELINE_SHARE, UNTUNED_SHARE = 1 / 3, 0.4
# The share of it that they may take where only those run that can still be the fastest: a plan that
# is slower than a rule's is worth less than what the search would find meanwhile.
CONTENDING_SHARE = 1 / 2
# Shares of the time that is left to the search when each begins: enumerating candidates, naming
# them, and solving, which begins anew with every measurement. Together they are a third before a
# first kernel is measured: one candidate more is worth less than one measured.
ENUMERATING_SHARE, NAMING_SHARE, SOLVING_SHARE = 0.2, 0.1, 0.1
# Recalling a kernel takes a twentieth of compiling and measuring it again.
RECALLING_SHARE = 0.25
# Seconds for which planning goes on although the user wants to end.
MOMENT_S = 1.0
# Seconds that solving gets in any case: what was measured is worth a good plan at the very end.
LEAST_SOLVING_S = 0.5

# The share of the budget, and the most seconds, in which samples of one candidate are taken: a
# search that has time for few candidates learns more from a rougher look at more of them.
SAMPLES_SHARE, SAMPLES_S = 0.05, 1.0


class Share:
    """A share of the seconds that are left; work ends with what it has when it is spent."""

    def __init__(self, left_s: Callable[[], float], share: float, least_s: float = 0.0) -> None:
        """`left_s` says what is left; the share is `least_s` seconds at least, even if that is
        more than there is."""
        self._left_s, self._share, self._least_s = left_s, share, least_s
        self.renew()

    def renew(self) -> None:
        """Begin anew: the same share of what is left now."""
        left = self._left_s()
        self._until_s = left - max(left * self._share, self._least_s)

    def left_s(self) -> float:
        """Seconds of the share that are left, never negative."""
        left = self._left_s()
        return left if math.isinf(left) else max(left - self._until_s, 0.0)

    def is_over(self) -> bool:
        """Whether it is spent."""
        return self.left_s() <= 0


def solving(left_s: Callable[[], float]) -> Share:
    """What solving may take between two measurements."""
    return Share(left_s, SOLVING_SHARE, LEAST_SOLVING_S)


def recalling(left_s: Callable[[], float]) -> Share:
    """What recalling kernels from the database may take."""
    return Share(left_s, RECALLING_SHARE)


def check_seconds(seconds: float) -> None:
    """Raises AutofuseError for seconds that can be no budget."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise AutofuseError(f"the budget must be a positive number of seconds, not {seconds:g}")


@dataclass(frozen=True)
class Budget:
    """`seconds` of wall time from `begun`; `stop` says that the user wants to end now.

    Raises AutofuseError for seconds that are not a positive number."""

    seconds: float
    begun: float = field(default_factory=time.perf_counter)
    stop: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        check_seconds(self.seconds)

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
    def samples_s(self) -> float:
        """Seconds in which samples of one candidate are taken."""
        return min(SAMPLES_SHARE * self.seconds, SAMPLES_S)

    @property
    def room_s(self) -> float:
        """Seconds that a call begun now may take at most: the search must end by then."""
        return max(self.seconds * (1 + OVERRUN) - self.reserve_s - self.elapsed_s, 0.0)

    @property
    def search_s(self) -> float:
        """Seconds until the search must end, below zero once it is late or the user wants to end;
        they go on counting down, so that what must still be done can be timed by them."""
        left = self.seconds - self.reserve_s - self.elapsed_s
        return left - self.seconds if self.stop() else left

    @property
    def final_room_s(self) -> float:
        """Seconds that the final comparison may still take, at most."""
        return max(self.seconds * (1 + OVERRUN) - self.elapsed_s, 0.0)

    def setup_s(self) -> float:
        """Seconds that computing the reference, or reading it back, may take if it begins now; what
        is not verified can still be served after them."""
        return max(self.seconds - self.reserve_s - self.elapsed_s, LEAST_SETUP_S)

    def impatience(self, until_s: float) -> Callable[[], bool]:
        """Says when work that begins now is called off: after `until_s` seconds of the budget, or
        when the user wants to end; what takes a moment only is not asked about."""
        begun = self.elapsed_s

        def is_over() -> bool:
            now = self.elapsed_s
            return now > until_s or (now > begun + MOMENT_S and self.stop())

        return is_over

    def is_over(self) -> bool:
        """Whether the search must end to leave time for the final comparison."""
        return self.stop() or self.elapsed_s > self.seconds - self.reserve_s
