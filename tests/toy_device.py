"""A device called "toy": the CPU's, with little optimisation and a small launch space, so that a
whole tuning job takes seconds. Run as a program, it is a tuning process that tests stop or kill."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace

import autofuse.frontends.array_api as xp
from autofuse.backends import cpu
from autofuse.backends.base import Program
from autofuse.backends.ccompiler import compile_program, find_compiler
from autofuse.backends.fingerprint import cpu_environment
from autofuse.backends.registry import Backend
from autofuse.commands.progress import StopSignals
from autofuse.devices import DEVICES, DeviceKind
from autofuse.frontends import spec, trace
from autofuse.frontends.array import TracedArray
from autofuse.graph.types import Graph
from autofuse.kernel.dialects import C
from autofuse.measure.hardware import HOST, Hardware
from autofuse.measure.timing import Sampling
from autofuse.plan.schedule import Run
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig
from autofuse.records import Environment
from autofuse.tuning import Progress, tune, tuner
from search_spaces.launch import Chooser

QUICK = Sampling("warm", warmup_s=0.0, minimum=4, maximum=8, wall_s=0.1)
LONG_S = 600.0  # a budget that does not end a test
HOLD_AT = 9  # of 16: far from both ends


def program(graph: Graph, candidate: Candidate) -> Program:
    """The CPU's program under -O1."""
    made = cpu.program(graph, candidate)
    sources = (
        replace(s, flags=(*(f for f in s.flags if not f.startswith("-O")), "-O1"))
        for s in made.sources
    )
    return replace(made, sources=tuple(sources))


def environment() -> Environment:
    """The CPU's fingerprint; times under other flags are other times."""
    own = cpu_environment()
    return replace(own, must=tuple(sorted((*own.must, ("flags", "-O1")))))


class ToySpace:
    """One thread, and one parameter that all kernels share."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        return "body" if group.body is not None else "toy"

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        return LaunchConfig() if group.body is not None else LaunchConfig.of(threads=1, tile=64)

    def ruled(
        self, graph: Graph, group: FusionGroup, threads: int, items: int, strided: bool
    ) -> LaunchConfig:
        return self.default(graph, group)

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        if group.body is not None:
            return LaunchConfig()
        return LaunchConfig.of(threads=1, tile=chooser("tile", (64, 16)))


TOY = Backend("toy", program, compile_program, environment, find_compiler)


def kernel_text(run: Run) -> tuple[str, str]:
    return cpu.kernel_text(cpu.kernel_of(run), run.launch)


def toy_kind(backend: Backend = TOY, hardware: Hardware = HOST) -> DeviceKind:
    """The record that is the device."""
    return DeviceKind("toy", backend, lambda _: ToySpace(), C, kernel_text, "a slow CPU", hardware)


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
    tuner.Sampling = lambda cache: replace(QUICK, cache=cache)
    found = tune(
        workload(), name="shares", device="toy", db=db, budget_s=LONG_S, strategy=strategy,
        seed=seed, progress=show, stop=stop,
    )  # fmt: skip
    return found.to_json()


if __name__ == "__main__":
    with StopSignals() as stop_signals:
        result = tune_here(sys.argv[1], sys.argv[2], int(sys.argv[3]), stop_signals)
    print("result", json.dumps(result, allow_nan=False), flush=True)
