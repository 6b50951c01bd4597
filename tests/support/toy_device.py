"""Tuning on device "toy" of `extensions/`, whose small launch space makes a whole job take seconds.

Run as a program, this is a tuning process that tests stop or kill."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import autofuse.frontends.array_api as xp
from autofuse.backends.registry import Backend
from autofuse.commands.progress import StopSignals
from autofuse.cost.bounds import NOMINAL
from autofuse.devices import DEVICES, DeviceKind
from autofuse.frontends import spec, trace
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.types import Graph
from autofuse.kernel.text.dialects import C
from autofuse.measure.hardware import HOST, Hardware
from autofuse.measure.timing.sampling import Sampling
from autofuse.tuning import Progress, tune
from autofuse.tuning.job import tuner
from tests.support.extending import EXTENSIONS, module_of

toy = import_module(module_of(EXTENSIONS["A device kind"].file))
TOY: Backend = toy.BACKEND
ToySpace = toy.ToySpace
QUICK = Sampling("warm", warmup_s=0.0, minimum=4, maximum=8, wall_s=0.1)
# Peaks that order baselines the same way on every machine, and take no time.
NOMINAL_HOST = replace(HOST, calibrate=lambda: NOMINAL)
LONG_S = 600.0  # a budget that does not end a test
HOLD_AT = 9  # of 16: far from both ends


def toy_kind(backend: Backend = TOY, hardware: Hardware = NOMINAL_HOST) -> DeviceKind:
    """The record that is the device."""
    return DeviceKind(
        "toy", backend, toy.launches, C, toy.kernel_text, "a slow CPU", hardware=hardware
    )


def workload() -> Graph:
    """e / sum(e) along rows with e = exp(x): 16 candidates under ToySpace."""

    def shares(x: TracedArray) -> TracedArray:
        e = xp.exp(x)
        return e / xp.sum(e, axis=1, keepdims=True)

    return trace(shares, spec((24, 40)))


def show(progress: Progress) -> None:
    """Tell the starter; after HOLD_AT measurements wait until it has done what it came for."""
    print("measured", progress.measured, flush=True)
    if progress.measured == HOLD_AT:
        sys.stdin.readline()


def tune_here(db: str, strategy: str, seed: int, stop: Callable[[], bool]) -> dict[str, object]:
    """Register the device for the rest of the process and tune until the space is used up."""
    DEVICES["toy"] = toy_kind()
    tuner.Sampling = lambda cache, **_: replace(QUICK, cache=cache)
    found = tune(
        workload(), name="shares", device="toy", db=db, budget_s=LONG_S, strategy=strategy,
        seed=seed, progress=show, stop=stop, baselines="all",
    )  # fmt: skip
    return found.to_json()


if __name__ == "__main__":
    with StopSignals() as stop_signals:
        result = tune_here(sys.argv[1], sys.argv[2], int(sys.argv[3]), stop_signals)
    print("result", json.dumps(result, allow_nan=False), flush=True)
