"""Planners that tune one workload at the same time: what one of them measures no other does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import text

from benchmarks.soak.actors import Crowd
from benchmarks.soak.ledger import acknowledged, stored
from benchmarks.soak.place import placed
from benchmarks.soak.types import Round
from tuning_db import Store

SOURCE = "zoo:softmax:small"
# The bars: the share of candidates that may be measured twice, and the device's time against that
# of one planner who measures the same.
TWICE, DEVICE_TIME = 0.01, 1.1
# A share of a hundredth shows among so many candidates.
ENOUGH = 100
# Seconds after its budget until which a planner may end.
_PATIENCE_S = 600.0
# Finals are timed again on purpose, by each session.
_CANDIDATES = (
    "SELECT count(*), min(measure_s), sum(measure_s) FROM measurement "
    "WHERE stage <> 'final' AND median_us IS NOT NULL GROUP BY candidate_id, environment_id"
)


@dataclass(frozen=True, slots=True)
class Shared:
    """Candidates that were measured, and how many of them twice; seconds that it took the device,
    and those that it would have taken one planner."""

    candidates: int
    twice: int
    device_s: float
    once_s: float

    @property
    def ratio(self) -> float:
        return self.device_s / self.once_s if self.once_s else 1.0


def planners(folder: Path, seed: int, kind: str, crowd: int, count: int) -> Round:
    """`crowd` of them, for `count` seconds each, with seeds of their own."""
    with placed(folder, kind) as place, Crowd(folder) as actors:
        job = {
            "do": "tune", "db": place.url, "log": str(place.log), "source": SOURCE,
            "budget_s": float(count), "variables": {"XDG_DATA_HOME": str(folder / "data")},
        }  # fmt: skip
        actors.start([{**job, "seed": seed + n} for n in range(crowd)])
        codes = actors.ended(count + _PATIENCE_S)
        problems = list[str]()
        if codes != [0] * crowd:
            problems.append(f"planners ended with {codes}:\n{actors.words()}")
            actors.kill()
        found = shared_work(place.url)
        if missing := acknowledged(place.log) - stored(place.url):
            problems.append(f"{missing.total()} acknowledged rows are lost")
    said = (
        f"{found.twice} of {found.candidates} candidates measured twice, "
        f"{found.ratio:.3f} of the device's time with one planner"
    )
    if found.twice > TWICE * found.candidates or found.ratio > DEVICE_TIME:
        problems.append(said)
    few = (f"fewer than {ENOUGH} candidates: shows little",) * (found.candidates < ENOUGH)
    return Round(found.candidates, tuple(problems), (said, *few))


def shared_work(url: str) -> Shared:
    """What sessions on a database measured together."""
    with Store.open(url) as store, store.reading() as t:
        found = [tuple(row) for row in t.execute(text(_CANDIDATES))]
    twice = sum(count > 1 for count, _, _ in found)
    once, device = (sum(row[k] for row in found) for k in (1, 2))
    return Shared(len(found), twice, device, once)
