"""Planners that tune one workload at the same time: what one of them measures no other does.

The device is simulated, so that a search of many kernels and launch configurations takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from benchmarks.soak.actors import Crowd, Job
from benchmarks.soak.ledger import acknowledged, stored
from benchmarks.soak.place import placed
from benchmarks.soak.simulated import SimulatedRun, runs
from benchmarks.soak.types import Round
from tuning_db import Store

# Six products that no kernel has two of: plans of many kernels, each with launches of its own.
SOURCE = "zoo:batched_products:small"
# The bars: the share of candidates that may be measured twice, and the device's time for each
# candidate, final comparisons included, and that of searches for each kernel that is known in the
# end, against those of one planner.
TWICE, DEVICE_TIME = 0.01, 1.1
# A share of a hundredth cannot be seen among fewer candidates.
ENOUGH = 100
# Seconds that planners may take for all of their candidates, and then to end.
BUDGET_S, PATIENCE_S = 1800.0, 600.0
_LOOK_S = 0.2
# Each under one launch configuration.
_KERNELS = (
    "SELECT count(*), sum(n) FROM (SELECT count(*) AS n FROM kernel_measurement "
    "WHERE median_us IS NOT NULL GROUP BY group_id, launch, cache, code) AS counted"
)


@dataclass(frozen=True, slots=True)
class Shared:
    """What planners measured together: candidates, and how many of them twice in one way; kernels
    under a launch configuration, and how often one was timed again, in plans that were run for
    others; seconds of the device's clock that searches took, and final comparisons."""

    candidates: int
    twice: int
    kernels: int
    again: int
    search_s: float
    finals_s: float

    @property
    def kernel_s(self) -> float:
        """Seconds of the device that searches took for each kernel that is known."""
        return self.search_s / self.kernels if self.kernels else 0.0

    @property
    def candidate_s(self) -> float:
        """Seconds of the device for each candidate, final comparisons included."""
        return (self.search_s + self.finals_s) / self.candidates if self.candidates else 0.0

    def __str__(self) -> str:
        return (
            f"{self.twice} of {self.candidates} candidates measured twice, {self.again} times of "
            f"{self.kernels} kernels that were known, {1e3 * self.candidate_s:.2f} ms of the "
            f"device a candidate (searches {self.search_s:.2f} s, final comparisons "
            f"{self.finals_s:.2f} s)"
        )


def planners(folder: Path, seed: int, kind: str, crowd: int, count: int, fault: str = "") -> Round:
    """One of them, then `crowd` with seeds of their own on another database, each time until
    `count` candidates were measured, and no fewer than show anything. `fault`: what is planted in
    those that are several (see `actors.FAULTS`)."""
    problems, found = list[str](), list[Shared]()
    for many in (1, crowd):
        own = folder / f"planners-{many}"
        own.mkdir()
        job = {"fault": fault if many > 1 else ""}
        shared, wrong = _searched(own, seed, kind, many, max(count, ENOUGH), job)
        found.append(shared)
        problems += wrong
    alone, together = found
    all_of, searches = _ratios(together, alone)
    ratios = f"{all_of:.3f} of its time a candidate; searches alone {searches:.3f} a kernel"
    notes = (f"one: {alone}", f"{crowd}: {together}", ratios)
    return Round(together.candidates, (*problems, *judged(together, alone)), notes)


def _searched(
    folder: Path, seed: int, kind: str, crowd: int, count: int, more: Job
) -> tuple[Shared, list[str]]:
    """What so many planners measured of an empty database's workload, and what went wrong; `more`:
    what else they are told."""
    ledger, until = folder / "ledger.jsonl", folder / "until"
    problems = list[str]()
    with placed(folder, kind) as place, Crowd(folder) as actors:
        job = {
            "do": "tune", "db": place.url, "log": str(place.log), "source": SOURCE,
            "budget_s": BUDGET_S, "ledger": str(ledger), "until": str(until),
            "variables": {"XDG_DATA_HOME": str(folder / "data")}, **more,
        }  # fmt: skip
        actors.start([{**job, "seed": seed + n} for n in range(crowd)])
        codes, end = None, time.monotonic() + BUDGET_S
        while codes is None and time.monotonic() < end:
            if len({run.candidate for run in runs(ledger)}) >= count:
                break
            codes = actors.ended(_LOOK_S)
        until.touch()
        codes = actors.ended(PATIENCE_S) if codes is None else codes
        if codes != [0] * crowd:
            problems.append(f"planners ended with {codes}:\n{actors.words()}")
            actors.kill()
        found = shared_work(runs(ledger), place.url)
        if missing := acknowledged(place.log) - stored(place.url):
            problems.append(f"{missing.total()} acknowledged rows are lost")
    return found, problems


def judged(together: Shared, alone: Shared) -> Iterator[str]:
    """A sentence where planners repeated too much, or measured too little to tell."""
    if (few := min(together.candidates, alone.candidates)) < ENOUGH:
        yield (
            f"only {few} candidates were measured: a share of {TWICE:.0%} cannot be seen among "
            f"fewer than {ENOUGH}"
        )
    if together.twice > TWICE * together.candidates:
        yield f"{together.twice} of {together.candidates} candidates were measured twice"
    all_of, searches = _ratios(together, alone)
    if all_of > DEVICE_TIME:
        yield f"a candidate took {all_of:.2f} of the device's time with one planner"
    if searches > DEVICE_TIME:
        yield f"searches took {searches:.2f} of the device's time a kernel with one planner"


def _ratios(together: Shared, alone: Shared) -> tuple[float, float]:
    """The device's time against that of one planner: all of it, and that of searches."""
    if not (alone.candidates and alone.kernels):
        return 1.0, 1.0
    return together.candidate_s / alone.candidate_s, together.kernel_s / alone.kernel_s


def shared_work(ran: Iterable[SimulatedRun], url: str) -> Shared:
    """What sessions on a database measured together, on one device."""
    finals_s, alone = 0.0, dict[tuple[str, str], list[float]]()
    for run in ran:
        if run.what == "compared":
            finals_s += run.seconds
        else:
            alone.setdefault((run.candidate, run.what), []).append(run.seconds)
    twice = {candidate for (candidate, _), seconds in alone.items() if len(seconds) > 1}
    with Store.open(url) as store, store.reading() as t:
        ((kernels, times),) = t.execute(text(_KERNELS))
    return Shared(
        len({candidate for candidate, _ in alone}), len(twice), kernels, (times or 0) - kernels,
        sum(map(sum, alone.values())), finals_s,
    )  # fmt: skip
