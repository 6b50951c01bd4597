"""Tune many graphs within one budget: gives slices to the units of an engine until it is used."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from autofuse.errors import AutofuseError
from autofuse.fleet.engine import Engine, SliceResult, TuneSlice
from autofuse.fleet.health import UnitHealth
from autofuse.fleet.shares import LEAST_S, GraphShare, next_share
from autofuse.graph.types import Graph
from autofuse.tuning.options import TuneOptions

_WAIT_S = 1.0
# Seconds after the budget until which a slice may end: it may be waiting for a unit that is lost.
LATEST_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What every graph got and gained, seconds of wall time, and those that units worked; how the
    engine's units were, by name."""

    shares: tuple[GraphShare, ...]
    seconds: float
    busy_s: float
    units: int
    health: Mapping[str, UnitHealth] = field(default_factory=dict)


def fleet_tune(
    graphs: Mapping[str, Graph], engine: Engine, options: TuneOptions, *,
    weights: Mapping[str, float] | None = None, say: Callable[[str], object] = lambda text: None,
    clock: Callable[[], float] = time.monotonic,
) -> FleetResult:  # fmt: skip
    """Tune `graphs`, by name, as `options` say, whose budget all units of `engine` share.

    What was measured before is not measured again, so a run that was killed goes on when it is
    started again. `weights`: how often each graph runs (1 unless said). A unit that is disturbed
    rests, and is given up where that does not help. Raises AutofuseError without graphs, once no
    unit is left, and where all were given up before anything was tuned."""
    if not graphs:
        raise AutofuseError("there is no graph to tune")
    own, stop = weights or {}, options.stop or (lambda: False)
    shares = {name: GraphShare(name, graph, own.get(name, 1.0)) for name, graph in graphs.items()}
    each = replace(options, stop=None, progress=None)
    job = _Job(engine, shares, each, say, clock)
    begun, most = clock(), len(engine.units)
    while True:
        left = options.budget_s - (clock() - begun)
        goes_on = left >= LEAST_S and not stop()
        if goes_on:
            job.give(left)
        if not job.running and not (goes_on and job.waits_for_units()):
            break
        if left < -LATEST_S:
            job.lose_all()
            break
        job.take()
        if stop():
            break
        if not engine.units:
            raise AutofuseError("no unit of the engine is left")
    job.must_have_begun()
    return FleetResult(tuple(shares.values()), clock() - begun, job.busy_s, most, dict(job.health))


@dataclass
class _Job:
    """Who does what, and what came of it."""

    engine: Engine
    shares: dict[str, GraphShare]
    options: TuneOptions
    say: Callable[[str], object]
    clock: Callable[[], float]
    running: dict[str, TuneSlice] = field(default_factory=dict)
    health: defaultdict[str, UnitHealth] = field(default_factory=lambda: defaultdict(UnitHealth))
    busy_s: float = 0.0

    def give(self, left_s: float) -> None:
        """Begin slices on all units that are idle and well, as long as there is something to do."""
        for unit in list(self._idle()):
            share = self._next()
            if share is None:
                return
            if self.health[unit].rests_until <= self.clock():
                seconds = min(left_s, share.next_s)
                asked = replace(self.options, name=share.name, budget_s=seconds)
                task = TuneSlice(share.graph, asked, unit)
                self.running[unit] = task
                self.engine.start(unit, task)

    def waits_for_units(self) -> bool:
        """Whether there is something to do for a unit that rests."""
        return self._next() is not None and any(self._idle())

    def take(self) -> None:
        """Wait a little for slices to end."""
        for unit, result in self.engine.wait(_WAIT_S).items():
            del self.running[unit]
            self.busy_s += result.seconds
            if result.canary is not None:
                self.health[unit] = self.health[unit].after(result.canary, self.clock())
            if result.canary is not None and result.canary.fault:
                ended = ", and it is given up" if self.health[unit].is_quarantined else ""
                self.say(f"{unit} is disturbed: {result.canary.fault}{ended}")
                continue
            self.shares[result.name] = self.shares[result.name].after(result)
            self.say(_line(unit, self.shares[result.name]))

    def lose_all(self) -> None:
        """What is under way never ended."""
        for task in self.running.values():
            silent = SliceResult(task.name, 0.0, error="its unit gave no answer", lost=True)
            self.shares[task.name] = self.shares[task.name].after(silent)

    def must_have_begun(self) -> None:
        """Raises AutofuseError where every unit was given up and nothing was tuned."""
        tried = any(share.spent_s for share in self.shares.values())
        if not tried and self.health and all(h.is_quarantined for h in self.health.values()):
            unit, health = next(iter(self.health.items()))
            raise AutofuseError(f"every unit is disturbed: {unit}: {health.canaries[-1].fault}")

    def _idle(self) -> Iterator[str]:
        free = (unit for unit in self.engine.units if unit not in self.running)
        return (unit for unit in free if not self.health[unit].is_quarantined)

    def _next(self) -> GraphShare | None:
        return next_share(self.shares.values(), {task.name for task in self.running.values()})


def _line(unit: str, share: GraphShare) -> str:
    if share.error:
        return f"{share.name} on {unit}: {share.error}"
    gained = 0.0
    if share.first_us and share.best_us:
        gained = 1.0 - share.best_us / share.first_us
    return (
        f"{share.name} on {unit}: {share.best_us:.1f} us, {gained:.1%} less than after the first "
        f"slice, {share.spent_s:.0f} s spent"
    )
