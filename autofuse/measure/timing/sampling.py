"""Sampling one call, and the statistics of the samples. Times are microseconds.

A cold sample is one call after `prepare` has emptied the caches. A warm sample is the mean of a
batch of calls long enough (BATCH_US) for the clock.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from autofuse.measure.timing.racing import LOOK, NO_RACE, RACE, Race, has_lost
from autofuse.ops.types import AutofuseError
from autofuse.records import Timing

BATCH_US = 20.0
# Calls that are not timed, after another program had the machine: its threads may still look for
# work on a core, and a last level of cache that takes what others evict has little of what was read
# once (seen on an Intel Xeon).
WARM_S = 0.005
# The standard error of a median is 1.25 sigma / sqrt(n), and sigma is IQR / 1.35 for a normal.
_MEDIAN_ERROR = 1.2533 / 1.349
CACHE_MODES = ("cold", "warm")
# How a plan is issued on a device that has more than one way; "" is the device's own first choice.
ISSUE_MODES = ("", "graph", "eager")

# What a mode's last part says held the device's clock down while samples were taken.
HELD = {"power": "its power limit", "heat": "its temperature"}

Clock = Callable[[], float]


class MeasureError(AutofuseError):
    """Settings, or a workload, that cannot be measured."""


def held_by(mode: str) -> str:
    """What held the clock down in samples of this mode: a word of HELD, or ""."""
    last = mode.rpartition(",")[2]
    return last if last in HELD else ""


def held_notes(modes: Mapping[str, int]) -> tuple[str, ...]:
    """What should be said of timings, counted by mode, in which something held the clock down."""
    total, held = sum(modes.values()), Counter[str]()
    for mode, count in modes.items():
        held[held_by(mode)] += count
    return tuple(
        f"{held[word]} of {total} plans were timed while {HELD[word]} held the device's clock down"
        for word in HELD
        if held[word]
    )


@dataclass(frozen=True, slots=True)
class Sampling:
    """When to stop: whichever comes first of a lost `race`, a median known to `noise` (relative
    standard error, from the quartiles, after `minimum` samples), `enough` samples (and the minimum)
    in `least_s` seconds or more, `maximum` samples, and `wall_s` seconds of sampling (but never
    before 3 samples, unless one takes longer than that: then one is enough). So a call that takes
    long is sampled for about `enough` times its own time. `warmup_s` seconds of calls come first.
    `mode` is "graph" or "eager" on a device that knows both."""

    cache: str = "cold"
    warmup_s: float = 0.02
    minimum: int = 12
    maximum: int = 300
    noise: float = 0.01
    wall_s: float = 1.0
    mode: str = ""
    enough: int = 20
    least_s: float = 0.05
    race: Race = NO_RACE

    def __post_init__(self) -> None:
        if self.cache not in CACHE_MODES:
            raise MeasureError(f"cache mode '{self.cache}' is not one of {', '.join(CACHE_MODES)}")
        if self.mode not in ISSUE_MODES:
            raise MeasureError(f"mode '{self.mode}' is not one of {', '.join(ISSUE_MODES[1:])}")
        if not 1 <= self.minimum <= self.maximum:
            raise MeasureError(f"cannot take {self.minimum} to {self.maximum} samples")


def median_error(samples: Sequence[float]) -> float:
    """Relative standard error of the median, robust against stray samples; inf under 4."""
    if len(samples) < 4:
        return float("inf")
    q1, median, q3 = np.percentile(samples, (25, 50, 75))
    if median <= 0:
        return float("inf")
    return float(_MEDIAN_ERROR * (q3 - q1) / (median * len(samples) ** 0.5))


def summarise(samples_us: Sequence[float], cache: str, stopped: str, mode: str = "call") -> Timing:
    """Statistics of at least one sample; raises MeasureError for none."""
    if not len(samples_us):
        raise MeasureError("no sample was taken")
    values = np.asarray(samples_us, np.float64)
    q1, median, q3 = (float(q) for q in np.percentile(values, (25, 50, 75)))
    return Timing(
        n=len(values),
        min_us=float(values.min()),
        q1_us=q1,
        median_us=median,
        q3_us=q3,
        mean_us=float(values.mean()),
        stdev_us=float(values.std(ddof=1)) if len(values) > 1 else 0.0,
        cache=cache,
        stopped=stopped,
        mode=mode,
    )


class Watch(Protocol):
    """Takes samples of one program; `mode` says how it is issued, `clock` is in seconds."""

    @property
    def mode(self) -> str: ...

    @property
    def clock(self) -> Clock: ...

    def settle(self) -> None:
        """Calls that are not measured, for a warm sample that follows those of another program."""
        ...

    def sample(self) -> float:
        """One sample in microseconds, positive."""
        ...


@dataclass(frozen=True)
class Stopwatch:
    """Takes samples of `call`; `prepare` runs, unmeasured, before each cold one."""

    call: Callable[[], object]
    prepare: Callable[[], object]
    cache: str
    batch: int
    clock: Clock = time.perf_counter
    mode: str = "call"

    def settle(self) -> None:
        """Call for WARM_S, once at least; nothing before cold samples, which make caches alike."""
        if self.cache != "cold":
            call_for(WARM_S, self.call, self.clock)

    def sample(self) -> float:
        """One sample in microseconds, positive."""
        if self.cache == "cold":
            self.prepare()
        call, started = self.call, self.clock()
        for _ in range(self.batch):
            call()
        return max(1e-3, (self.clock() - started) * 1e6 / self.batch)


def call_for(seconds: float, call: Callable[[], object], clock: Clock = time.perf_counter) -> None:
    """Call until so many seconds have passed, once at least; nothing is measured."""
    until = clock() + seconds
    call()
    while clock() < until:
        call()


def warm_up(
    call: Callable[[], object],
    prepare: Callable[[], object],
    sampling: Sampling,
    clock: Clock = time.perf_counter,
) -> Stopwatch:
    """Call until `warmup_s` have passed (at least once); sizes the batch of warm samples."""
    begun, fastest = clock(), float("inf")
    while fastest == float("inf") or clock() - begun < sampling.warmup_s:
        started = clock()
        call()
        fastest = min(fastest, (clock() - started) * 1e6)
    batch = 1 if sampling.cache == "cold" else max(1, round(BATCH_US / max(fastest, 0.01)))
    return Stopwatch(call, prepare, sampling.cache, batch, clock)


def collect(watch: Watch, sampling: Sampling) -> Timing:
    """Sample until a stopping rule says so; the timing names the rule."""
    samples: list[float] = []
    begun, stopped = watch.clock(), None
    while stopped is None:
        samples.append(watch.sample())
        lost = has_lost(samples, sampling.race.plan_us)
        stopped = stopping_rule(samples, sampling, watch.clock() - begun, lost)
    return summarise(samples, sampling.cache, stopped, watch.mode)


def stopping_rule(
    samples: Sequence[float], sampling: Sampling, spent_s: float, lost: bool = False
) -> str | None:
    """ "race", "noise", "enough", "samples" or "wall" if sampling should end now, else None;
    `spent_s`: seconds of sampling, `lost`: nothing is left to decide."""
    n = len(samples)
    # Judging after every sample would stop at the first lucky streak (and cost a sort each).
    if n % LOOK == 0:
        if lost:
            return RACE
        if n >= sampling.minimum and median_error(samples) <= sampling.noise:
            return "noise"
    if n >= sampling.maximum:
        return "samples"
    if n >= max(sampling.enough, sampling.minimum) and spent_s >= sampling.least_s:
        return "enough"
    return "wall" if spent_s >= sampling.wall_s and _has_few(samples, sampling) else None


def _has_few(samples: Sequence[float], sampling: Sampling) -> bool:
    """At least three, or one that alone takes all the time."""
    return len(samples) >= 3 or (len(samples) > 0 and samples[-1] > sampling.wall_s * 1e6)


class ProfileSamples(NamedTuple):
    """Microseconds [sample, group], how they were taken, and the rule that ended it."""

    us: np.ndarray
    mode: str
    stopped: str


def collect_profile(
    call: Callable[[], np.ndarray],
    prepare: Callable[[], None],
    sampling: Sampling,
    clock: Clock = time.perf_counter,
) -> ProfileSamples:
    """As many samples of all groups as `stopping_rule` asks for by their totals; the race is lost
    when every group and the total have lost theirs. `prepare` comes before each call in cold
    mode."""
    end = clock() + sampling.warmup_s
    groups = len(call())
    while clock() < end:
        call()
    begun, stopped = clock(), None
    rows: list[np.ndarray] = []
    columns: list[list[float]] = [[] for _ in range(groups + 1)]
    rivals = sampling.race.rivals(groups)
    while stopped is None:
        if sampling.cache == "cold":
            prepare()
        rows.append(call())
        for column, us in zip(columns, (*rows[-1], rows[-1].sum()), strict=True):
            column.append(float(us))
        lost = all(has_lost(*one) for one in zip(columns, rivals, strict=True))
        stopped = stopping_rule(columns[-1], sampling, clock() - begun, lost)
    return ProfileSamples(np.stack(rows), "call", stopped)
