"""Whose turn it is: kernels not measured yet, or new launch configurations of those that were.

Whichever promises more goes first; planning that paused for launch configurations goes on when it
promises more than they do, or when they have nothing new."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from autofuse.tuning.worth import Promises, pays, round_gain_us


@dataclass(frozen=True, slots=True)
class Outlook:
    """The best measured plan, and the expected gain of the plan that promises most; both in
    microseconds, infinite before any plan is known."""

    incumbent_us: float = math.inf
    gain_us: float = math.inf


@dataclass
class Turns:
    """The state of one session. `runs`: what gains are multiplied by, None for tuning to the end.

    `vain`: rounds of launch configurations in a row that gained nothing. `is_paused`: planning gave
    way to launch configurations; `may_pause`: it can, since there was a round since the last time.
    """

    runs: float | None
    vain: int = 0
    is_paused: bool = False
    may_pause: bool = True
    promises: Promises = field(default_factory=Promises)
    # How many kernels were known at the last judgement, what it said, and what was promised then.
    _known: int = -1
    _is_enough: bool = False
    _promised: Outlook | None = None

    def begin_planning(self) -> None:
        """Forget what was judged: launch configurations may have changed everything."""
        self.is_paused, self._known, self._is_enough, self._promised = False, -1, False, None

    def round_done(self, gained: bool) -> None:
        """After a round of launch configurations."""
        self.vain = 0 if gained else self.vain + 1
        self.may_pause = True

    def round_gain_us(self, planned_us: float) -> float:
        """What the next round is expected to gain on a plan of so many microseconds."""
        return round_gain_us(planned_us, self.vain)

    def round_pays(self, gain_us: float, per_plan_s: float) -> bool:
        """Whether the runs to come repay a plan that gains so much."""
        return pays(gain_us, self.runs, per_plan_s)

    def gain_us(self, outlook: Outlook) -> float:
        """The expected gain as far as such promises were kept."""
        return outlook.gain_us * self.promises.trust

    def is_planning_due(self, outlook: Outlook, planned_us: float) -> bool:
        """Whether planning that paused promises more now than a round does."""
        return self.is_paused and self.gain_us(outlook) > self.round_gain_us(planned_us)

    def is_enough(self, known: int, look: Callable[[], Outlook], per_plan_s: float) -> bool:
        """Whether planning ends, or pauses, with so many kernels known; `look` is asked only when
        there are new ones."""
        if known == self._known:
            return self._is_enough
        outlook = look()
        if self._promised is not None:
            gained = max(0.0, self._promised.incumbent_us - outlook.incumbent_us)
            self.promises = self.promises.kept(self._promised.gain_us, gained)
            if gained > 0:  # kernels that are new in the plan have had no round yet
                self.vain = 0
        self._promised = outlook if math.isfinite(outlook.gain_us) else None
        gain = self.gain_us(outlook)
        self.is_paused = self.may_pause and gain < self.round_gain_us(outlook.incumbent_us)
        self._is_enough = self.is_paused or not pays(gain, self.runs, per_plan_s)
        self._known = known
        return self._is_enough
