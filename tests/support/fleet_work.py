"""What units of a fleet do in tests, by the name of the slice; an engine whose time is made up."""

from __future__ import annotations

import heapq
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import autofuse
from autofuse.errors import AutofuseError
from autofuse.fleet.engine import Engine, EngineError, SliceResult, SliceWork, TuneSlice
from autofuse.fleet.health import Canary
from autofuse.tuning import TuneOptions


def graph(size: int = 3) -> autofuse.Graph:
    return autofuse.trace(lambda x: x + 1, autofuse.spec(size))


def task(name: str, db: str | None = None) -> TuneSlice:
    return TuneSlice(graph(), TuneOptions(name=name, device="cpu", db=db, budget_s=1.0))


def work(given: TuneSlice) -> SliceResult:
    """Says which process it ran in; fails, dies, or dies the first time (file `db` says it did)."""
    if given.name == "fails":
        raise AutofuseError("no plan\nworks")
    if given.name == "says its unit":
        raise AutofuseError(os.environ["AUTOFUSE_TEST_UNIT"])
    if given.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if given.name == "dies once":
        flag = Path(given.options.db or "")
        if not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return SliceResult(given.name, given.budget_s, 1.0, None, os.getpid())


def ray_engine(units: int, work: SliceWork) -> Engine:
    """A cluster here, whose processes find this module; skips the test where there is no Ray."""
    pytest.importorskip("ray", reason="extra fleet")
    from autofuse.fleet.on_ray import RayEngine

    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
        return RayEngine(units=units, work=work)


def build_anywhere(given: TuneSlice) -> SliceResult:
    """Compiles what the slice is called on some host of the cluster, and loads it here."""
    # Units that do something else are spared these imports.
    from autofuse.backends.base import Program, Source
    from autofuse.backends.cpu.backend import FLAGS
    from autofuse.backends.library import load
    from autofuse.fleet.on_ray import _compile_anywhere

    text = f"int run(void **a, void *b, void **c) {{ {given.name} }}"
    program = Program((Source("k", text, FLAGS),), "run", (), ())
    built = _compile_anywhere(program, timeout_s=60.0)
    with load(built.artifact):
        return SliceResult(given.name, built.spent_s, 1.0)


Curve = Callable[[float], float]


def falling(start: float, end: float, half_s: float) -> Curve:
    return lambda spent: end + (start - end) * 0.5 ** (spent / half_s)


CURVES = {
    **{f"flat {k}": falling(100.0, 100.0, 1.0) for k in range(8)},
    **{f"steep {k}": falling(400.0, 40.0, 120.0) for k in range(8)},
}


class SimulatedEngine:
    """Units that do slices in no time; `clock` goes on as if they had taken their budget. `curves`
    say what each graph's best plan takes after so many seconds; units in `losing` lose every other
    slice, and the first so many canaries of units in `slow` are slow."""

    def __init__(
        self, units: int, curves: Mapping[str, Curve], losing: frozenset[str] = frozenset(),
        slow: Mapping[str, int] | None = None,
    ) -> None:  # fmt: skip
        self.slow, self.rested = dict(slow or {}), 0.0
        self.now, self.spent = 0.0, dict.fromkeys(curves, 0.0)
        self.curves, self.losing = curves, losing
        self.free = {f"u{k}" for k in range(units)}
        self.all = tuple(sorted(self.free))
        self.ending: list[tuple[float, str, TuneSlice]] = []
        self.given: list[tuple[str, str]] = []

    @property
    def units(self) -> tuple[str, ...]:
        return self.all

    def clock(self) -> float:
        return self.now

    def start(self, unit: str, task: TuneSlice) -> None:
        if unit not in self.free:
            raise EngineError(f"unit {unit} is busy")
        if task.name in {each.name for _, _, each in self.ending}:
            raise EngineError(f"{task.name} is being tuned")
        self.free.remove(unit)
        heapq.heappush(self.ending, (self.now + task.budget_s, unit, task))
        self.given.append((unit, task.name))

    def wait(self, timeout_s: float) -> Mapping[str, SliceResult]:
        if not self.ending:
            self.now, self.rested = self.now + timeout_s, self.rested + timeout_s
            return {}
        if slow := next((each for each in self.ending if self.slow.get(each[1])), None):
            self.ending.remove(slow)
            heapq.heapify(self.ending)
            self.slow[slow[1]] -= 1
            self.free.add(slow[1])
            return {slow[1]: SliceResult(slow[2].name, 0.0, canary=Canary("x", 300.0, 100.0))}
        self.now, unit, task = heapq.heappop(self.ending)
        self.free.add(unit)
        if unit in self.losing and sum(u == unit for u, _ in self.given) % 2:
            return {unit: SliceResult(task.name, task.budget_s, error="lost", lost=True)}
        self.spent[task.name] += task.budget_s
        best = self.curves[task.name](self.spent[task.name])
        quiet = Canary("x", 100.0, 100.0)
        return {unit: SliceResult(task.name, task.budget_s, best, canary=quiet)}

    def close(self) -> None:
        self.ending.clear()

    def __enter__(self) -> SimulatedEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
