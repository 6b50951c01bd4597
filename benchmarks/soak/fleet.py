"""A fleet of toy devices: how much faster several are, what kills and wrong clocks do to it, and
whether anything is ever measured while something else is, or twice."""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from random import Random
from statistics import fmean
from threading import Event, Thread
from typing import Any
from unittest.mock import patch

from autofuse.errors import AutofuseError
from autofuse.fleet.engine import Engine, SliceWork
from autofuse.fleet.local import LocalEngine
from autofuse.fleet.on_ray import UNIT, RayEngine
from autofuse.fleet.run import FleetResult, fleet_tune
from autofuse.frontends import spec, trace
from autofuse.limits import usable_cores
from autofuse.tuning import TuneOptions
from benchmarks.soak.actors import ROOT
from benchmarks.soak.place import placed
from benchmarks.soak.toy_units import (
    ENVIRONMENT,
    RECORDED_S,
    Interval,
    ToyUnits,
    birth,
    intervals,
    toy_us,
    workload_of,
)
from tuning_db import Store

# The bars: throughput of four units over one, share of their time that they measure.
FASTER, BUSY = 3.2, 0.7
HOUR_S = 3600.0
ENGINES = ("local", "ray")
# Names of units, and what they do with a slice.
Make = Callable[[int, SliceWork], Engine]


@dataclass(frozen=True, slots=True)
class FleetPlay:
    """What one play found: numbers by name, and a sentence for each bar that was missed."""

    name: str
    numbers: Mapping[str, float]
    problems: tuple[str, ...]


def unit_names(engine: str, count: int) -> tuple[str, ...]:
    """What an engine calls its units."""
    return tuple(f"{UNIT if engine == 'ray' else 'toy'}{k}" for k in range(count))


def made_engine(engine: str) -> Make:
    """Starts an engine of so many units. Raises AutofuseError for an unknown one."""
    if engine not in ENGINES:
        raise AutofuseError(f"unknown engine '{engine}' (known: {', '.join(ENGINES)})")
    if engine == "ray":
        return lambda count, work: RayEngine(units=count, work=work)
    return lambda count, work: LocalEngine({n: {} for n in unit_names("toy", count)}, work)


@dataclass(frozen=True, slots=True)
class Setting:
    """Where a play happens: an empty folder, an engine by name, a kind of database, a seed, seconds
    that it should take, and seconds of measurements."""

    folder: Path
    engine: str
    database: str
    seed: int
    seconds: float
    measure_s: tuple[float, ...] = RECORDED_S

    def candidates(self, units: float, graphs: int) -> int:
        """How many of each of so many graphs so many units measure in the time."""
        return round(units * self.seconds / fmean(self.measure_s) / graphs)


def throughput(setting: Setting, units: int = 4, graphs: int = 16) -> FleetPlay:
    """The same work by one unit, then by several: from the first measurement to the last, as what
    starting units takes is no part of how fast they are; it is told apart."""
    each = max(1, setting.candidates(1 / (1 + 1 / units), graphs))
    rates, starting, busy = [], [], 0.0
    for count in (1, units):
        folder = setting.folder / f"units-{count}"
        folder.mkdir()
        work = ToyUnits(folder, each, setting.measure_s)
        with _database(setting, folder) as db:
            found = _tuned(setting, count, work, db, graphs)
        seen = list(intervals(folder))
        span = max(one.ended for one in seen) - min(one.begun for one in seen)
        rates.append(len(seen) / span)
        starting.append(found.seconds - span)
        busy = sum(one.ended - one.begun for one in seen) / (count * span)
    faster = rates[1] / rates[0]
    numbers = {
        "units": units, "candidates": graphs * each, "mean_measure_s": fmean(setting.measure_s),
        "candidates_per_s_of_one": rates[0], "candidates_per_s": rates[1],
        "times_as_fast": faster, "busy": busy, "starting_s_of_one": starting[0],
        "starting_s": starting[1],
    }  # fmt: skip
    least = FASTER * units / 4
    problems = [f"{units} units are {faster:.2f} times as fast as one"] * (faster < least)
    problems += [f"units measure for {busy:.0%} of their time"] * (busy < BUSY)
    return FleetPlay("throughput", numbers, tuple(problems))


def kills(
    setting: Setting, units: int = 4, jobs: int = 2, graphs: int = 8, every_s: float = 30.0,
    most: float = math.inf,
) -> FleetPlay:  # fmt: skip
    """Jobs that tune the same graphs on one database and the same devices, while at `most` so many
    units are killed and every other clock is an hour ahead. A Ray cluster has one job."""
    jobs = 1 if setting.engine == "ray" else jobs
    each = max(2, setting.candidates(units // jobs, graphs))
    works = [_work_of_job(setting, job, units // jobs, each) for job in range(jobs)]
    folders = [work.folder for work in works]
    with _database(setting, setting.folder) as db:
        with _reaping(folders, Random(setting.seed), every_s, most) as killed:
            results = _together(
                [partial(_tuned, setting, units // jobs, work, db, graphs) for work in works]
            )
        problems, numbers = _kept(db, graphs, each)
    seen = [one for folder in folders for one in intervals(folder)]
    again = len(seen) - len(set(map(attrgetter("work"), seen)))
    problems += [f"{again} measured twice after {len(killed)} kills"] * (again > len(killed))
    problems += [*_overlaps(seen), *_double_leases(seen)]
    numbers |= {
        "kills": len(killed), "measured_again": again, "seconds": max(r.seconds for r in results),
        "given_up": sum(not s.slices for r in results for s in r.shares),
    }  # fmt: skip
    return FleetPlay("kills", numbers, tuple(problems))


def _work_of_job(setting: Setting, job: int, units: int, each: int) -> ToyUnits:
    """What a job's units do; every other clock is an hour ahead, unless the database is a file:
    that is on one host, which has one clock."""
    folder = setting.folder / f"job-{job}"
    folder.mkdir()
    names = unit_names(setting.engine, units)
    off = {name: HOUR_S for k, name in enumerate(names) if (job + k) % 2}
    one_clock = setting.database != "postgresql"
    return ToyUnits(folder, each, setting.measure_s, clock_off_s={} if one_clock else off)


def exclusivity(setting: Setting, devices: int = 2, jobs: int = 16) -> FleetPlay:
    """Jobs that share devices, each with a process and a graph of its own."""
    each = max(1, setting.candidates(devices, jobs))
    names = unit_names(setting.engine, jobs)
    shared = {name: f"device{k % devices}" for k, name in enumerate(names)}
    work = ToyUnits(setting.folder, each, setting.measure_s, shared)
    with _database(setting, setting.folder) as db:
        found = _tuned(setting, jobs, work, db, jobs)
        problems, numbers = _kept(db, jobs, each)
    seen = list(intervals(setting.folder))
    numbers |= {
        "devices": devices, "jobs": jobs, "measured": len(seen), "seconds": found.seconds,
        "overlapping": _overlapping(seen, lambda one: one.device),
    }  # fmt: skip
    return FleetPlay("exclusivity", numbers, (*problems, *_overlaps(seen)))


PLAYS: Mapping[str, Callable[[Setting], FleetPlay]] = {
    "throughput": throughput, "kills": kills, "exclusivity": exclusivity,
}  # fmt: skip
# How much of the time each gets.
SHARES = {"throughput": 0.4, "kills": 0.45, "exclusivity": 0.15}


def soak_fleet(
    folder: Path, engine: str, database: str, minutes: float, seed: int, plays: Sequence[str],
    every_s: float, say: Callable[[str], object],
) -> dict[str, Any]:  # fmt: skip
    """Play them in turn for so many minutes together; what is written as JSON. Raises
    AutofuseError for unknown names, and where engine or database cannot be started."""
    if unknown := sorted(set(plays) - set(PLAYS)):
        raise AutofuseError(f"unknown play '{unknown[0]}' (known: {', '.join(PLAYS)})")
    made_engine(engine)
    found: list[FleetPlay] = []
    total = sum(SHARES[name] for name in plays)
    for name in plays:
        own = folder / name
        own.mkdir()
        seconds = 60.0 * minutes * SHARES[name] / total
        setting = Setting(own, engine, database, seed, seconds)
        play = kills(setting, every_s=every_s) if name == "kills" else PLAYS[name](setting)
        found.append(play)
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in play.numbers.items())
        say(f"{engine} {name:11} {numbers}; {len(play.problems)} failures (seed {seed})")
    return {
        "engine": engine, "database": database, "minutes": minutes, "seed": seed,
        "kill_every_s": every_s, "cores": usable_cores(),
        "plays": [asdict(play) for play in found],
    }  # fmt: skip


@contextmanager
def _database(setting: Setting, folder: Path) -> Iterator[str]:
    """An empty database, a cache for the measuring locks, and a path for what Ray starts."""
    paths = filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
    added = {"AUTOFUSE_CACHE": str(setting.folder / "cache"), "PYTHONPATH": os.pathsep.join(paths)}
    with patch.dict(os.environ, added), placed(folder, setting.database) as place:
        Store.open(place.url).close()
        yield place.url


def _tuned(setting: Setting, units: int, work: SliceWork, db: str, graphs: int) -> FleetResult:
    graph = trace(lambda x: x + 1, spec(3))
    given = {f"graph{k}": graph for k in range(graphs)}
    with closing(made_engine(setting.engine)(units, work)) as engine:
        asked = TuneOptions(budget_s=20 * setting.seconds + 60.0, device="toy", db=db)
        return fleet_tune(given, engine, asked)


def _together(jobs: Sequence[Callable[[], FleetResult]]) -> list[FleetResult]:
    found: list[FleetResult] = []
    threads = [Thread(target=lambda job=job: found.append(job())) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) < len(jobs):
        raise AutofuseError("a fleet job ended with an error")
    return found


@contextmanager
def _reaping(
    folders: Sequence[Path], draw: Random, every_s: float, most: float
) -> Iterator[list[int]]:
    """Meanwhile one of those who work on slices is killed now and then; gives who was."""
    killed: list[int] = []
    over = Event()

    def reap() -> None:
        while not over.wait(every_s) and len(killed) < most:
            alive = [pid for folder in folders for pid in _alive(folder)]
            if alive:
                chosen = draw.choice(alive)
                with suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(chosen, signal.SIGKILL)
                    killed.append(chosen)

    reaper = Thread(target=reap)
    reaper.start()
    try:
        yield killed
    finally:
        over.set()
        reaper.join()


def _alive(folder: Path) -> Iterator[int]:
    for path in sorted(folder.glob("unit-*")):
        process, _, born = path.read_text().partition(" ")
        if born and birth(int(process)) == born:
            yield int(process)


def _kept(db: str, graphs: int, each: int) -> tuple[list[str], dict[str, float]]:
    """What a database must hold at the end: every candidate once, and the best plans."""
    problems, rows = [], 0
    with Store.open(db) as store:
        for k in range(graphs):
            workload = workload_of(f"graph{k}")
            everything = store.measurements(workload, ENVIRONMENT)
            stored = [m.candidate_digest for m in everything if m.stage != "final"]
            rows += len(stored)
            if twice := len(stored) - len(set(stored)):
                problems.append(f"graph{k}: {twice} candidates are stored twice")
            if missing := each - len(set(stored)):
                problems.append(f"graph{k}: {missing} candidates are missing")
            want = min((f"{workload}-{n}" for n in range(each)), key=toy_us)
            served = store.best(ENVIRONMENT, workload)
            if served is None or served.measurement.candidate_digest != want:
                problems.append(f"graph{k}: another plan than the best is served")
    return problems, {"graphs": graphs, "candidates": graphs * each, "rows": rows}


def _overlaps(seen: Iterable[Interval]) -> list[str]:
    """Two measurements at a time on one device."""
    overlapping = _overlapping(seen, lambda one: one.device)
    return [f"{overlapping} measurements overlap on a device"] * (overlapping > 0)


def _double_leases(seen: Iterable[Interval]) -> list[str]:
    """Two who measured one candidate at the same time both had it."""
    double = _overlapping(seen, lambda one: one.work)
    return [f"{double} candidates were leased to two at once"] * (double > 0)


def _overlapping(seen: Iterable[Interval], place: Callable[[Interval], str]) -> int:
    """How often, in one place, something began before what was there had ended."""
    ordered = sorted(seen, key=lambda one: (place(one), one.begun))
    return sum(
        place(one) == place(other) and other.begun < one.ended for one, other in pairwise(ordered)
    )
