"""Planners that tune one workload at the same time: what one of them measures no other does.

The device is simulated, so that a search of many kernels and launch configurations takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from benchmarks.soak.actors import Crowd
from benchmarks.soak.ledger import acknowledged, stored
from benchmarks.soak.place import placed
from benchmarks.soak.simulated import SimulatedRun, runs
from benchmarks.soak.types import Round
from tuning_db import Store

# Six products that no kernel has two of: plans of many kernels, each with its own launches.
SOURCE = "zoo:batched_products:small"
# The bars: the share of candidates, and of kernels, that may be measured twice, and the device's
# time against that of one planner who measures the same.
TWICE, DEVICE_TIME = 0.01, 1.1
# A share of a hundredth cannot be seen among fewer candidates.
ENOUGH = 100
# Seconds that planners may take for all of their candidates, and then to end.
BUDGET_S, PATIENCE_S = 1800.0, 600.0
_LOOK_S = 0.5
_KERNELS = (
    "SELECT count(*), sum(n) FROM (SELECT count(*) AS n FROM kernel_measurement "
    "WHERE median_us IS NOT NULL GROUP BY group_id, launch, cache, code) AS counted"
)


@dataclass(frozen=True, slots=True)
class Shared:
    """Candidates that were measured, and how many of them twice in one way; kernels, and how many
    of their times were known; seconds of the device, and those that it would have taken one
    planner. What sessions compare at their ends, on purpose, is apart: `finals_s`."""

    candidates: int
    twice: int
    device_s: float
    once_s: float
    finals_s: float
    kernels: int = 0
    kernels_twice: int = 0

    @property
    def ratio(self) -> float:
        """The device's time against one planner's."""
        return self.device_s / self.once_s if self.once_s else 1.0

    def __str__(self) -> str:
        return (
            f"{self.twice} of {self.candidates} candidates measured twice, {self.kernels_twice} of "
            f"{self.kernels} kernels, {self.ratio:.3f} of the device's time with one planner "
            f"({self.device_s:.2f} s of its clock, final comparisons {self.finals_s:.2f} s)"
        )


def planners(folder: Path, seed: int, kind: str, crowd: int, count: int) -> Round:
    """`crowd` of them, with seeds of their own, until they have measured `count` candidates, and
    no fewer than show anything."""
    ledger, until = folder / "ledger.jsonl", folder / "until"
    with placed(folder, kind) as place, Crowd(folder) as actors:
        job = {
            "do": "tune", "db": place.url, "log": str(place.log), "source": SOURCE,
            "budget_s": BUDGET_S, "ledger": str(ledger), "until": str(until),
            "variables": {"XDG_DATA_HOME": str(folder / "data")},
        }  # fmt: skip
        actors.start([{**job, "seed": seed + n} for n in range(crowd)])
        codes, end = None, time.monotonic() + BUDGET_S
        while codes is None and _candidates(ledger) < max(count, ENOUGH) and time.monotonic() < end:
            codes = actors.ended(_LOOK_S)
        until.touch()
        codes = actors.ended(PATIENCE_S) if codes is None else codes
        problems = list[str]()
        if codes != [0] * crowd:
            problems.append(f"planners ended with {codes}:\n{actors.words()}")
            actors.kill()
        found = shared_work(runs(ledger), place.url)
        if missing := acknowledged(place.log) - stored(place.url):
            problems.append(f"{missing.total()} acknowledged rows are lost")
    return Round(found.candidates, (*problems, *judged(found)), (str(found),))


def _candidates(ledger: Path) -> int:
    return len({run.candidate for run in runs(ledger)})


def judged(found: Shared) -> Iterator[str]:
    """A sentence where planners repeated too much, or measured too little to tell."""
    if found.candidates < ENOUGH:
        yield (
            f"{found.candidates} candidates were measured by all together: among fewer than "
            f"{ENOUGH} a share of {TWICE:.0%} cannot be seen"
        )
    repeated = found.twice > TWICE * found.candidates
    if repeated or found.kernels_twice > TWICE * found.kernels or found.ratio > DEVICE_TIME:
        yield str(found)


def shared_work(ran: Iterable[SimulatedRun], url: str) -> Shared:
    """What sessions on a database measured together."""
    finals_s, alone = 0.0, dict[tuple[str, str], list[float]]()
    for run in ran:
        if run.what == "compared":
            finals_s += run.seconds
        else:
            alone.setdefault((run.candidate, run.what), []).append(run.seconds)
    candidates = {candidate for candidate, _ in alone}
    twice = {candidate for (candidate, _), seconds in alone.items() if len(seconds) > 1}
    with Store.open(url) as store, store.reading() as t:
        ((kernels, rows),) = t.execute(text(_KERNELS))
    return Shared(
        len(candidates), len(twice), sum(map(sum, alone.values())),
        sum(seconds[0] for seconds in alone.values()), finals_s, kernels, (rows or 0) - kernels,
    )  # fmt: skip
