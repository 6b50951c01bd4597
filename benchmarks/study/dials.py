"""Experiment A: every system with its dials, from empty caches to the first call.

A dial is one way to get a program running: a system, and how hard it is told to try. Each is made
in a process of its own that has made the program and imported what it needs, and whose caches are
empty: the seconds of a dial are those of compiling, tuning and one call. Then all are made again,
from what they kept, in one process, where they take turns.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.backends.machine import last_level_cache_bytes
from autofuse.devices import timed_device
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.simplify import normal_form
from autofuse.tuning import compile as compile_graph
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from benchmarks.run import sentence
from benchmarks.unseen.row import judged
from benchmarks.unseen.types import Call, Made
from tuning_db import Store

OURS = "autofuse"
# Seconds of tuning.
SECONDS = (3.0, 10.0, 30.0)
# Seconds of taking turns for each dial, and the longest call of one that takes part.
TURN_S, SLOW_S = 1.5, 2.0


@dataclass(frozen=True, slots=True)
class Dial:
    """`make` is given the program and a folder of its own for all that is kept, empty at first."""

    name: str
    system: str
    make: Callable[[Made, Path], Call]


def dials_of(made: Made) -> list[Dial]:
    """Ours, and those of the program's own system."""
    ours = [
        Dial(f"{OURS} untuned", OURS, _untuned),
        *(Dial(f"{OURS} {s:g} s", OURS, partial(_tuned, s)) for s in SECONDS),
    ]
    peers = [Dial(name, name.partition(" ")[0], partial(_peer, name)) for name in made.peers]
    return ours + peers


def _untuned(made: Made, at: Path) -> Call:
    plan = compile_graph(
        made.graph, device="cpu", db=str(at / "tuning.db"), constants=made.constants
    )
    return lambda: plan(*made.arguments)


def _tuned(seconds: float, made: Made, at: Path) -> Call:
    """Tuned unless the folder holds what that has found."""
    done = at / "tuned"
    if not done.exists():
        tune(made.graph, device="cpu", db=str(at / "tuning.db"), budget_s=seconds)
        done.touch()
    return _untuned(made, at)


def _peer(name: str, made: Made, at: Path) -> Call:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(at / "inductor")
    return made.peers[name]()


def first_call(made: Made, name: str, at: Path, peaks: Mapping[str, float]) -> dict[str, Any]:
    """Seconds of this dial from empty caches to the end of the first call; what the machine was
    calibrated to is known beforehand."""
    place(at)
    with Store.open(str(at / "tuning.db")) as store:
        store.set_calibration(timed_device("cpu").backend.environment(), peaks)
    dial = next(each for each in dials_of(made) if each.name == name)
    begun = time.perf_counter()
    call = dial.make(made, at)
    call()
    return {"system": dial.system, "first_s": time.perf_counter() - begun}


def in_turns(made: Made, names: Sequence[str], folder: Path) -> dict[str, dict[str, Any]]:
    """Microseconds of each dial (median, quartiles and a 95 % interval of the median), all taken in
    turns, or under `error` why it has none. Results are held to the float64 reference of the graph;
    what a peer computes otherwise is said under `wrong` and timed all the same."""
    told: dict[str, dict[str, Any]] = {name: {} for name in names}
    calls: dict[str, Call] = {}
    for dial in dials_of(made):
        if dial.name not in told:
            continue
        at = place_of(folder, dial.name)
        place(at)
        try:
            calls[dial.name] = dial.make(made, at)
            calls[dial.name]()
        except Exception as error:  # whatever a peer raises: the others go on
            told[dial.name]["error"] = sentence(error)
            calls.pop(dial.name, None)
    for name, why in judged(made, calls)["wrong"].items():
        told[name]["wrong"] = why
    for name, each in samples_in_turns(made, calls).items():
        told[name] |= figures(each)
    return told


def place_of(folder: Path, name: str) -> Path:
    """Where a dial keeps things: compilers of others stumble over spaces."""
    return folder / name.replace(" ", "-")


def place(at: Path) -> None:
    """Make the folder of a dial, and have what autofuse builds kept there."""
    at.mkdir(parents=True, exist_ok=True)
    os.environ["AUTOFUSE_CACHE"] = str(at / "cache")


def samples_in_turns(made: Made, calls: Mapping[str, Call]) -> dict[str, list[float]]:
    """Microseconds of calls, in turns; what takes longer than SLOW_S is called twice, alone."""
    slow = {name: [1e6 * _seconds(call) for _ in range(2)] for name, call in calls.items()}
    slow = {name: each for name, each in slow.items() if min(each) > 1e6 * SLOW_S}
    quick = {name: call for name, call in calls.items() if name not in slow}
    cold = cache_state("auto", normal_form(made.graph), timed_device("cpu")) == "cold"
    with measurement_lock(HOST.unit):
        overwrite = overwriter(last_level_cache_bytes() if cold else 0)
        return slow | take_turns(quick, overwrite, TURN_S * len(quick))


def _seconds(call: Call) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def figures(samples: Sequence[float]) -> dict[str, float]:
    """Median and quartiles, and a 95 % interval of the median by drawing the samples again."""
    drawn = np.random.default_rng(0).choice(np.asarray(samples), (2000, len(samples)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    q1, us, q3 = np.percentile(samples, (25, 50, 75))
    named = {"us": us, "q1_us": q1, "q3_us": q3, "low_us": low, "high_us": high}
    return {name: round(float(value), 3) for name, value in named.items()}
