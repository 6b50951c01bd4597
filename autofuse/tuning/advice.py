"""For how many seconds a program should be searched that will run so many times, by what searches
gave other programs (experiment A of the study)."""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.cost.bounds import usual_peaks
from autofuse.devices import DeviceKind
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.tuning.plans import known_peaks
from autofuse.tuning.serve.kept import kept_untuned
from autofuse.tuning.serve.untuned import plan_expected_us
from autofuse.units import time_text

# Seconds of search, and the run time of what they found over that of the fastest dial known:
# geometric means over the programs of docs/results/study/dials.json. 0 is the untuned plan.
DIALS = ((0.0, 1.43), (3.0, 1.12), (10.0, 1.08), (30.0, 1.04))


@dataclass(frozen=True, slots=True)
class Advice:
    """`seconds` of search (0: none) for `runs` runs of a program whose untuned plan is expected to
    take `untuned_us` microseconds, and how many times as fast that made other programs (`gain`)."""

    runs: float
    untuned_us: float
    seconds: float
    gain: float

    def __str__(self) -> str:
        program = f"{self.runs:,.0f} runs of about {time_text(self.untuned_us)}"
        if not self.seconds:
            return f"{program} do not repay a search: others became {_longest():.2f} times as fast"
        return (
            f"for {program} a search of {self.seconds:g} s is advised: it made others "
            f"{self.gain:.2f} times as fast"
        )

    def came(self, gain: float) -> str:
        """What was expected, and what came: how many times as fast as the untuned plan."""
        return (
            f"expected of {self.seconds:g} s of search: {self.gain:.2f} times as fast as the "
            f"untuned plan; it became {gain:.2f} times as fast"
        )


def advised(runs: float, untuned_us: float) -> Advice:
    """The dial of which least is expected, its own seconds and all runs counted. Raises
    AutofuseError for a number of runs that is not positive."""
    if not runs > 0:
        raise AutofuseError(f"the number of runs must be positive, not {runs:g}")
    untuned = DIALS[0][1]

    def cost_s(dial: tuple[float, float]) -> float:
        seconds, over = dial
        return seconds + runs * untuned_us * 1e-6 * over / untuned

    seconds, over = min(DIALS, key=cost_s)
    return Advice(runs, untuned_us, seconds, untuned / over)


def advice_for(graph: Graph, kind: DeviceKind, runs: float, db: str | None) -> Advice:
    """As `advised`, for a graph in its normal form, whose untuned plan is planned for it."""
    peaks = known_peaks(kind.backend.environment(), db)
    plan = kept_untuned(graph, kind, peaks).plan
    machine = peaks or usual_peaks(usable_cores())
    return advised(runs, plan_expected_us(graph, plan, kind.space, machine))


def _longest() -> float:
    return DIALS[0][1] / DIALS[-1][1]
