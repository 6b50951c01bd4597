"""One row: ours untuned and tuned, current jax.jit, the older one, and C by hand where it is
written; checked, timed in turns."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from autofuse import jax_jit
from autofuse.devices import timed_device
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.peers.interleave import sample_in_turns
from benchmarks.jax_cpu.by_hand import FILES, by_hand
from benchmarks.jax_cpu.calls import Prepared, prepared, sample_us, set_wide
from benchmarks.jax_cpu.peers import old_jax
from benchmarks.jax_cpu.truth import Found, allowed, error_of, truth_of
from benchmarks.jax_cpu.types import Function, LoopCase, LoopProgram, asked_for, module
from benchmarks.run import sentence
from tuning_db import Store

UNTUNED, TUNED, CURRENT, OLDER = "untuned", "tuned", "jax.jit", "old jax.jit"
BY_HAND = "C by hand"
OURS, PEERS = (UNTUNED, TUNED), (CURRENT, OLDER, BY_HAND)
# Samples of each, at least and at most.
SAMPLES = (6, 300)


@dataclass(frozen=True, slots=True)
class LoopAsked:
    """Seconds of tuning (0: none) and of taking turns; `old`, the Python that has the older JAX
    ("": none); `peaks`, what this device was calibrated to."""

    budget_s: float
    timing_s: float
    old: str
    peaks: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Column:
    """One way to run a program: microseconds of a call (median and quartiles), seconds of the first
    call, how far results are from float64's; or in `failed` why there are none of these."""

    first_s: float | None = None
    error: float | None = None
    right: bool | None = None
    us: float | None = None
    quartiles: tuple[float, float] | None = None
    samples: int = 0
    origin: str = ""
    failed: str = ""


Sampler = Callable[[], float]


def loop_row(program: LoopProgram, what: str, asked: LoopAsked) -> dict[str, Any]:
    """What is to be told of a program, by column: `columns`, and `over`, peers' times over ours."""
    set_wide(program.wide)
    case, truth = program.make(program.dtype), truth_of(program, what)
    columns: dict[str, Column] = {}
    samplers: dict[str, Sampler] = {}

    def keep(name: str, first_s: float, found: Found, sampler: Sampler, origin: str = "") -> None:
        error = error_of(found, truth)
        of_jax = columns[CURRENT].error if CURRENT in columns else None
        right = error <= allowed(program.dtype, error if of_jax is None else of_jax)
        columns[name] = Column(first_s, error, right, origin=origin)
        samplers[name] = sampler

    with ExitStack() as open_:
        folder = Path(open_.enter_context(TemporaryDirectory()))
        db = _machine(folder, asked.peaks)
        tries: dict[str, Callable[[], None]] = {
            CURRENT: lambda: _keep_jax(case, what, keep),
            UNTUNED: lambda: _keep_ours(UNTUNED, case, what, None, db, keep),
        }
        if asked.budget_s > 0:
            tries[TUNED] = lambda: _keep_ours(TUNED, case, what, asked.budget_s, db, keep)
        if asked.old:

            def older() -> None:
                old = open_.enter_context(old_jax(Path(asked.old), program.name, what))
                keep(OLDER, old.first_s, old.found, old.sample_us, old.version)

            tries[OLDER] = older
        else:
            columns[OLDER] = Column(failed="no environment was given (--old, --make-old)")
        if (program.name, what) in FILES:
            tries[BY_HAND] = lambda: _keep_c(case, (program.name, what), truth, folder, keep)
        columns |= _failures(tries)
        times = _in_turns(samplers, asked.timing_s)
    columns = {name: _timed(column, times.get(name, [])) for name, column in columns.items()}
    return {"columns": {n: asdict(c) for n, c in columns.items()}, "over": _over(columns)}


def _failures(tries: Mapping[str, Callable[[], None]]) -> dict[str, Column]:
    """Of those that fail, why."""
    found = {}
    for name, attempt in tries.items():
        try:
            attempt()
        except Exception as error:  # of a package, of a peer or of ours: the row names it
            found[name] = Column(failed=sentence(error))
    return found


def _machine(folder: Path, peaks: Mapping[str, float]) -> str:
    """A database that knows this device's peaks and nothing else, and an empty cache."""
    os.environ["AUTOFUSE_CACHE"] = str(folder / "cache")
    db = str(folder / "tuning.db")
    with Store.open(db) as store:
        store.set_calibration(timed_device("cpu").backend.environment(), peaks)
    return db


Keep = Callable[..., None]


def _keep_jax(case: LoopCase, what: str, keep: Keep) -> None:
    _keep(CURRENT, module("jax").jit(asked_for(case, what)), case, keep)


def _keep_ours(
    name: str, case: LoopCase, what: str, budget_s: float | None, db: str, keep: Keep
) -> None:
    ours = jax_jit(tune=budget_s, db=db)(asked_for(case, what))
    _keep(name, ours, case, keep, lambda: ours.origin(*case.arguments))


def _keep_c(
    case: LoopCase, row: tuple[str, str], like: tuple[np.ndarray, ...], folder: Path, keep: Keep
) -> None:
    leaves = tuple(map(np.asarray, module("jax").tree_util.tree_leaves(case.arguments)))
    ready = by_hand(*row, leaves, like, folder)
    keep(BY_HAND, ready.first_s, ready.found, lambda: sample_us(ready.call))


def _keep(
    name: str, function: Function, case: LoopCase, keep: Keep, origin: Callable[[], str] = str
) -> None:
    ready: Prepared = prepared(function, case.arguments)
    keep(name, ready.first_s, ready.found, lambda: sample_us(ready.call), origin())


def _in_turns(samplers: Mapping[str, Sampler], seconds: float) -> Mapping[str, list[float]]:
    if seconds <= 0:
        return {}
    with measurement_lock(HOST.unit):
        return sample_in_turns(samplers, seconds, samples=SAMPLES)


def _timed(column: Column, times: list[float]) -> Column:
    if not times:
        return column
    low, middle, high = statistics.quantiles(times, n=4)
    told = {"us": middle, "quartiles": (low, high), "samples": len(times)}
    return Column(**{**asdict(column), **told})


def _over(columns: Mapping[str, Column]) -> dict[str, dict[str, float]]:
    """For each of ours, by peer, the peer's time over ours, where both are right."""
    had = {n: c.us for n, c in columns.items() if c.us is not None and (n in PEERS or c.right)}
    return {o: {p: had[p] / had[o] for p in PEERS if p in had} for o in OURS if o in had}
