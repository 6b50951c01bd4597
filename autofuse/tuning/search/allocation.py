"""Budget allocation: where the next second of tuning goes, and when no second pays any more.

Two kinds of work compete: measuring kernels that were not measured yet (planning), and new launch
configurations for kernels of the plan there is (a round). Whichever has the higher expected
improvement goes first.

The certified gain (incumbent less lower bound) only says what is possible, and lower bounds are
loose. What measured kernels took beyond their bounds (the model bias) says what the others will
take, with a spread that starts wide and narrows; the expected improvement follows from both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from autofuse.cover import certified_gain_s
from autofuse.tuning.search.launches import KernelTimes

# Before anything is known, times over bounds spread by this much (standard deviation of the
# logarithm), which counts as much as so many measured kernels.
PRIOR_SPREAD, PRIOR_WEIGHT = 0.2, 4
# Of what kernels are off their expectations, beside what is known of their kind, the part of the
# variance that all kernels of a graph have in common.
SHARED = 0.25
# As many kernels of a kind as the mean of all kernels counts for in the mean of the kind.
KIND_WEIGHT = 2
# What a first new round of launch configurations gains on average, as a fraction of the plan.
ROUND_GAIN = 0.02
# The same where kernels have tiles: more of their settings matter.
TILE_ROUND_GAIN = 0.05
# After so many configurations of a kernel little more is expected of the others.
TRIED = 5
# An optimistic estimate is worth following where it beats the plan there is by this fraction.
WORTH = 0.01
# After so many optimistic estimates in a row that came to nothing no more are followed.
VAIN = 4
# A gap from which a plan counts as proved.
PROVED = 0.01
# Kernels that must be new before planning is judged again: one for so many that are known.
NEW_SHARE = 16


# --- the model bias ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelBias:
    """Times over lower bounds: the logarithm's mean, of all kernels and by kind, and its standard
    deviation within a kind."""

    mean: float
    spread: float
    kinds: Mapping[object, float] = field(default_factory=dict)

    def time_us(self, kind: object, bound_us: float, deviations: float = 0.0) -> float:
        """A kernel's time, so many standard deviations off the middle of its kind."""
        return bound_us * math.exp(self.kinds.get(kind, self.mean) + deviations * self.spread)


def bias_of(seen: Iterable[tuple[object, float, float]]) -> ModelBias:
    """The bias of the bounds of measured kernels, given as (kind, microseconds, lower bound). The
    mean of a kind that was seen little is near that of all."""
    logs: dict[object, list[float]] = {}
    for kind, us, bound in seen:
        if us > 0 and bound > 0:
            logs.setdefault(kind, []).append(math.log(us / bound))
    count = sum(map(len, logs.values()))
    mean = sum(map(sum, logs.values())) / max(count, 1)
    kinds = {
        kind: (sum(each) + KIND_WEIGHT * mean) / (len(each) + KIND_WEIGHT)
        for kind, each in logs.items()
    }
    squares = sum((log - kinds[kind]) ** 2 for kind, each in logs.items() for log in each)
    total = squares + PRIOR_WEIGHT * PRIOR_SPREAD**2
    spread = math.sqrt(total / (count + PRIOR_WEIGHT))
    # Of few kernels the mean itself is uncertain.
    return ModelBias(mean, spread * math.sqrt(1 + 1 / max(count, 1)), kinds)


# --- expected improvements --------------------------------------------------------------------


def deviation(each: Sequence[float]) -> float:
    """The standard deviation of a sum, of whose terms each has so much, SHARED of its square in
    common with the others (what one graph's kernels are off together)."""
    return math.sqrt(SHARED * sum(each) ** 2 + (1 - SHARED) * sum(us * us for us in each))


def expected_improvement_us(
    incumbent_us: float, measured_us: float, others: Iterable[tuple[object, float]], bias: ModelBias
) -> float:
    """The expected improvement on the incumbent by a plan whose measured kernels take
    `measured_us` and whose others are of these (kind, bound) (Mockus 1978); 0 with no kernel to
    measure."""
    middle = [bias.time_us(kind, bound) for kind, bound in others]
    sigma = bias.spread * deviation(middle)
    if sigma <= 0:
        return 0.0
    mean = measured_us + sum(middle) * math.exp(bias.spread**2 / 2)
    z = (incumbent_us - mean) / sigma
    below = 0.5 * (1 + math.erf(z / math.sqrt(2)))
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return sigma * max(0.0, z * below + density)


def round_gain_us(planned_us: float, vain: int, share: float = ROUND_GAIN) -> float:
    """What one more round of launch configurations gains on average after `vain` rounds that gained
    nothing; `share`: what a first one gains."""
    return planned_us * share / (1 + vain)


@dataclass(frozen=True, slots=True)
class Expectations:
    """Expected improvements of plans that were then measured, and what these gained, microseconds
    in all.

    Who measures the plan of which most is expected expects too much (the optimizer's curse, Smith
    and Winkler 2006); how far earlier expectations were met says how far to believe the next."""

    count: int = 0
    expected_us: float = 0.0
    gained_us: float = 0.0

    def met(self, expected_us: float, gained_us: float) -> Expectations:
        """With one more plan."""
        return Expectations(
            self.count + 1, self.expected_us + expected_us, self.gained_us + gained_us
        )

    @property
    def trust(self) -> float:
        """Gained over expected, beginning at 1 with the weight of one plan."""
        share = self.gained_us / self.expected_us if self.expected_us > 0 else 0.0
        return (1 + self.count * share) / (1 + self.count)


def repays(gain_us: float, runs: float | None, seconds: float) -> bool:
    """Whether `runs` runs save more than `seconds` when each gains so much; None: always."""
    return runs is None or certified_gain_s(gain_us, 0.0, runs) >= seconds


# --- optimistic estimates ---------------------------------------------------------------------


def tuning_gain(kernels: Iterable[KernelTimes]) -> float:
    """The least best time over first time of any kernel that was timed more than once; 1 if none
    was."""
    ratios = (kernel.best[0] / kernel.first_us for kernel in kernels if kernel.us)
    return min(ratios, default=1.0)


def optimistic_costs(
    kernels: Mapping[str, KernelTimes], bounds: Mapping[str, float]
) -> dict[str, float | None]:
    """Microseconds of each kernel if it gains by tuning what any has gained, None where it does not
    work. A lower bound is never undercut, and what was tried often has had its gain.

    Most kernels were seen under their default configuration only; a plan that would win by these
    estimates is worth a few trials. They prove nothing: what is proved rests on lower bounds."""
    gain = tuning_gain(kernels.values())
    costs: dict[str, float | None] = {}
    for key, kernel in kernels.items():
        if kernel.us:
            us = kernel.best[0]
            settled = kernel.settled or len(kernel.us) + len(kernel.bad) >= TRIED
            costs[key] = us if settled else max(us * gain, min(us, bounds.get(key, 0.0)))
        elif kernel.failed:
            costs[key] = None
    return costs


# --- allocation -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outlook:
    """The best measured plan, and the expected improvement by the plan of which most is expected;
    both in microseconds, infinite before any plan is known."""

    incumbent_us: float = math.inf
    gain_us: float = math.inf


class Next(Enum):
    """What the next second is best spent on."""

    PLANNING = "planning"
    LAUNCHES = "launches"
    NOTHING = "nothing"


@dataclass
class Allocation:
    """The state of one search. `runs`: how often the plan will run, None for tuning to the end;
    `vain`: rounds of launch configurations in a row that gained nothing; `round_share`: what a
    first round gains; `planning_s` and `rounds_s`: what both kinds of work have taken."""

    runs: float | None
    vain: int = 0
    round_share: float = ROUND_GAIN
    expectations: Expectations = field(default_factory=Expectations)
    planning_s: float = 0.0
    rounds_s: float = 0.0
    # How many kernels were known at the last judgement, what it was, and what was expected then.
    _known: int = -1
    _judged: Next = Next.PLANNING
    _expected: Outlook | None = None

    def begin_planning(self) -> None:
        """Forget what was judged: launch configurations may have changed everything."""
        self._known, self._judged, self._expected = -1, Next.PLANNING, None

    def round_done(self, gained: bool) -> None:
        """After a round of launch configurations."""
        self.vain = 0 if gained else self.vain + 1

    def owes_proof(self, gap: float | None) -> bool:
        """Whether planning is due for its half of the time: how far a plan may be from the best is
        worth knowing, also where little is expected of the kernels that nobody measured."""
        return self.planning_s < self.rounds_s and not (gap is not None and gap <= PROVED)

    def round_gain_us(self, planned_us: float) -> float:
        """What the next round is expected to gain on a plan of so many microseconds."""
        return round_gain_us(planned_us, self.vain, self.round_share)

    def round_repays(self, gain_us: float, per_plan_s: float) -> bool:
        """Whether the runs to come repay a plan that gains so much."""
        return repays(gain_us, self.runs, per_plan_s)

    def gain_us(self, outlook: Outlook) -> float:
        """The expected improvement as far as earlier ones were met."""
        return outlook.gain_us * self.expectations.trust

    def is_planning_due(self, outlook: Outlook, planned_us: float) -> bool:
        """Whether more is expected of planning now than of a round."""
        return self.gain_us(outlook) > self.round_gain_us(planned_us)

    def is_promising(self, outlook: Outlook) -> bool:
        """Whether more is expected of a plan than of a round, and anything to speak of; always
        while no plan is known."""
        self._learn(outlook)
        return not math.isfinite(outlook.incumbent_us) or self.is_worth(outlook.gain_us, outlook)

    def is_worth(self, gain_us: float, outlook: Outlook) -> bool:
        """Whether a plan of which so much is expected is worth more than a round."""
        least = max(self.round_gain_us(outlook.incumbent_us), WORTH * outlook.incumbent_us)
        return gain_us * self.expectations.trust > least

    def _learn(self, outlook: Outlook) -> None:
        """How far what was expected last was met; the present outlook is what is expected now."""
        if self._expected is not None:
            gained = max(0.0, self._expected.incumbent_us - outlook.incumbent_us)
            self.expectations = self.expectations.met(self._expected.gain_us, gained)
            if gained > 0:  # kernels that are new in the plan have had no round yet
                self.vain = 0
        self._expected = outlook if math.isfinite(outlook.gain_us) else None

    def judge(
        self, known: int, look: Callable[[], Outlook], per_plan_s: float, *, may_yield: bool
    ) -> Next:
        """What comes next while planning, with so many kernels known; `look` is asked only when
        there are as many new ones as can matter, a sixteenth: it solves the program three times.
        `may_yield`: planning may give way to launch configurations, as there
        was a round since it last did."""
        if known - self._known < max(1, self._known // NEW_SHARE):
            return self._judged
        outlook = look()
        self._learn(outlook)
        gain = self.gain_us(outlook)
        if may_yield and gain < self.round_gain_us(outlook.incumbent_us):
            self._judged = Next.LAUNCHES
        elif not repays(gain, self.runs, per_plan_s):
            self._judged = Next.NOTHING
        else:
            self._judged = Next.PLANNING
        self._known = known
        return self._judged
