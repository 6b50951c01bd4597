"""Toy devices: units whose candidates take times that are made up, and time to be measured.

What is around them is real: engine, sessions, leases, the measuring lock and the best plan. Each
measurement leaves a line in a file of its process, by the clock of the machine, which nobody sets.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Self
from unittest.mock import patch

from autofuse.fleet.engine import SliceResult, TuneSlice
from autofuse.measure.worker.lock import measurement_lock
from autofuse.records import Cost, Environment, Measurement, SessionResult, Timing
from autofuse.tuning.job.sharing import Turns
from tuning_db import Store

ENVIRONMENT = Environment("toy", (("isa", "soak"),))
# Seconds that checking and timing one plan took on a processor of two cores: in each of the six
# recorded spaces (tests/data/spaces, small workloads), then plans of softmax, rms_norm_residual and
# black_scholes in their default sizes. What compiling took is not in it.
RECORDED_S = (
    0.029, 0.050, 0.032, 0.031, 0.036, 0.038,
    2.14, 2.22, 2.28, 0.70, 1.55, 2.05, 1.78, 1.03, 1.92,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Interval:
    """One measurement: of what, on which device, by which process, from when to when."""

    work: str
    device: str
    process: int
    begun: float
    ended: float


@dataclass(frozen=True)
class ToyUnits:
    """What units do with a slice: measure all `candidates` of a graph, for as many seconds each as
    one of `measure_s`, by its name.

    Files go to `folder`. `devices` says which device an engine's unit is, if not one of its own,
    and `clock_off_s` by how many seconds its clock is off."""

    folder: Path
    candidates: int
    measure_s: Sequence[float]
    devices: Mapping[str, str] = field(default_factory=dict)
    clock_off_s: Mapping[str, float] = field(default_factory=dict)

    def __call__(self, task: TuneSlice) -> SliceResult:
        begun = time.perf_counter()
        (self.folder / f"unit-{task.unit}").write_text(f"{os.getpid()} {birth(os.getpid())}")
        workload, off_s = workload_of(task.name), self.clock_off_s.get(task.unit, 0.0)
        with _clock(off_s), Store.open(task.options.db) as store, Turns(store) as turns:
            store.add_workload(workload, "", task.name, 1)
            session = store.start_session(ENVIRONMENT, workload, "soak", 0, task.budget_s)
            measured, known = 0, store.measured(ENVIRONMENT, workload)
            for candidate in (f"{workload}-{n}" for n in range(self.candidates)):
                if measured and time.perf_counter() - begun >= task.budget_s:
                    break
                if candidate not in known:
                    measured += self._measure(store, turns, session, task, candidate)
            turns.end()
            best = _promoted(store, session, workload)
            missing = self.candidates - len(store.measured(ENVIRONMENT, workload))
            store.finish_session(session, _result(best, measured, task.budget_s))
        gap = None if missing else 0.0
        assert best.timing is not None
        seconds = time.perf_counter() - begun
        return SliceResult(task.name, seconds, best.timing.median_us, gap, measured)

    def _measure(
        self, store: Store, turns: Turns, session: int, task: TuneSlice, candidate: str
    ) -> bool:
        """Whether a candidate was measured here; no if it is known, or another does it first."""
        workload = workload_of(task.name)

        def known() -> Measurement | None:
            return store.latest(ENVIRONMENT, workload, candidate)

        if turns.turn(candidate, known, lambda: False) is not None:
            return False
        device = self.devices.get(task.unit, task.unit)
        with measurement_lock(device):
            begun = time.monotonic()
            time.sleep(self.measure_s[_number(candidate) % len(self.measure_s)])
            interval = Interval(candidate, device, os.getpid(), begun, time.monotonic())
        with (self.folder / f"measured-{os.getpid()}.jsonl").open("a") as lines:
            row = [interval.work, interval.device, interval.process, begun, interval.ended]
            lines.write(json.dumps(row) + "\n")
        record = toy_measurement(workload, candidate)
        store.add_measurement(session, ENVIRONMENT, record, turns.spend())
        return True


def workload_of(name: str) -> str:
    """The digest of a graph that is only a name."""
    return sha256(name.encode()).hexdigest()[:32]


def toy_us(candidate: str) -> float:
    """Microseconds that a candidate takes: 10 to 100, by its name."""
    return 10.0 + _number(candidate) % 90_000 / 1000.0


def _number(candidate: str) -> int:
    return int(sha256(candidate.encode()).hexdigest()[:8], 16)


def toy_measurement(workload: str, candidate: str) -> Measurement:
    """What measuring a candidate gives."""
    us = toy_us(candidate)
    timing = Timing(30, us, us, us, us, us, 0.0, "cold", "noise")
    return Measurement(
        workload, "{}", candidate, "soak", 1, (candidate,), timing, None, 0.0, Cost()
    )


def intervals(folder: Path) -> Iterator[Interval]:
    """Every measurement that ended; a process that was killed may leave half a line."""
    for path in sorted(folder.glob("measured-*.jsonl")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("]\n"):
                yield Interval(*json.loads(line))


def birth(process: int) -> str:
    """When a process began, in ticks of the machine: ids are used again. "" where it has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _promoted(store: Store, session: int, workload: str) -> Measurement:
    """The fastest that is known, as what the database serves from now on."""
    while True:
        incumbent = store.incumbent(ENVIRONMENT, workload, "cold")
        known = store.measured(ENVIRONMENT, workload).values()
        best = min(known, key=lambda one: one.timing.median_us if one.timing else float("inf"))
        beaten = None if incumbent is None else incumbent.measurement.candidate_digest
        # Finals are timed again: a row of their own.
        if store.promote(session, ENVIRONMENT, replace(best, stage="final"), beaten):
            return best


def _result(best: Measurement, measured: int, budget_s: float) -> SessionResult:
    digest = best.candidate_digest
    return SessionResult(
        "soak", 0, budget_s, Cost(), measured, measured, (), digest, (), (), finished=True
    )


def _clock(seconds: float) -> AbstractContextManager[object]:
    """While it lasts this process takes it to be so many seconds later."""

    class Off(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return super().now(tz) + timedelta(seconds=seconds)

    return patch("tuning_db.clock.datetime", Off)
