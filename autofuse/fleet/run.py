"""Tune many graphs within one budget: gives slices to the units of an engine until it is used."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autofuse.errors import AutofuseError
from autofuse.fleet.engine import Engine, SliceResult, TuneSlice
from autofuse.fleet.shares import LEAST_S, GraphShare, next_share
from autofuse.graph.types import Graph

_WAIT_S = 1.0
# Seconds after the budget until which a slice may end: it may be waiting for a unit that is lost.
LATEST_S = 60.0


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What every graph got and gained, seconds of wall time, and those that units worked."""

    shares: tuple[GraphShare, ...]
    seconds: float
    busy_s: float
    units: int


def fleet_tune(
    graphs: Mapping[str, Graph], engine: Engine, *, budget_s: float, device: str = "cpu",
    db: str | None = None, weights: Mapping[str, float] | None = None, seed: int = 0,
    say: Callable[[str], object] = lambda text: None, stop: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> FleetResult:  # fmt: skip
    """Tune `graphs`, by name, for `budget_s` seconds on all units of `engine` together.

    What was measured before is not measured again, so a run that was killed goes on when it is
    started again. `weights`: how often each graph runs (1 unless said). Raises AutofuseError
    without graphs, and once no unit is left."""
    if not graphs:
        raise AutofuseError("there is no graph to tune")
    own = weights or {}
    shares = {name: GraphShare(name, graph, own.get(name, 1.0)) for name, graph in graphs.items()}
    begun, running, busy_s = clock(), dict[str, TuneSlice](), 0.0
    most = len(engine.units)
    while True:
        left = budget_s - (clock() - begun)
        if left >= LEAST_S and not stop():
            for unit in [u for u in engine.units if u not in running]:
                share = next_share(shares.values(), {task.name for task in running.values()})
                if share is None:
                    break
                seconds = min(left, share.next_s)
                running[unit] = TuneSlice(share.name, share.graph, device, db, seconds, seed)
                engine.start(unit, running[unit])
        if not running:
            break
        if left < -LATEST_S:
            for task in running.values():
                silent = SliceResult(task.name, 0.0, error="its unit gave no answer", lost=True)
                shares[task.name] = shares[task.name].after(silent)
            break
        for unit, result in engine.wait(_WAIT_S).items():
            del running[unit]
            busy_s += result.seconds
            shares[result.name] = shares[result.name].after(result)
            say(_line(unit, shares[result.name]))
        if stop():
            break
        if not engine.units:
            raise AutofuseError("no unit of the engine is left")
    return FleetResult(tuple(shares.values()), clock() - begun, busy_s, most)


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
