"""A simulated device: what its kernels take is made up, and its time passes by a clock of its own.

All around it is real: planning, the process that measures, its lock, the database. Nothing is
compiled. Kernels take up to SLOWEST times their lower bounds, by group, and as much again by launch
configuration, so that bounds prove little and a search has much to measure. Every run of a plan is
a line of a ledger.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np

from autofuse.backends.base import Built
from autofuse.backends.registry import CPU_BACKEND
from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.devices import DEVICES, DeviceKind
from autofuse.graph.canonical import group_digest
from autofuse.graph.reference import Runs
from autofuse.graph.types import Graph
from autofuse.measure.device import Arrays, CheckedRun
from autofuse.measure.hardware import DeviceUnit, Hardware
from autofuse.measure.timing.sampling import ProfileSamples, Sampling
from autofuse.ops.types import TensorType
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig, Setting
from autofuse.records import Environment
from autofuse.tuning.search.launches import launch_text
from search_spaces.launch import Chooser, LaunchSpace, first_option

NAME = "simulated"
ENVIRONMENT = Environment(NAME, (("isa", "soak"),), ())
SLOWEST = 3.0
# What may be set of any kernel, the default first: 384 launch configurations.
SETTINGS: Mapping[str, tuple[Setting, ...]] = {
    "threads": (2, 1),
    "tile": (1024, 64, 128, 256, 512, 2048, 4096, 16384),
    "vector_bits": (512, 256, 128),
    "loop_unroll": (1, 2, 4, 8),
    "stream": (False, True),
}
# Real seconds for which a run keeps the device, so that planners do meet at it.
HELD_S = 0.01


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """One measurement of a candidate: `what` is "measured" (the whole plan), "profiled" (each of
    its kernels) or "compared" (with others); `seconds` are the device's own."""

    candidate: str
    what: str
    seconds: float


@dataclass(frozen=True)
class SimulatedPlan:
    """What a candidate is built to: microseconds of its groups, and the graph that says what it
    computes."""

    graph: Graph
    candidate: str
    groups_us: tuple[float, ...]

    @property
    def inputs(self) -> tuple[TensorType, ...]:
        """As every artifact's."""
        return self.graph.input_types

    @property
    def outputs(self) -> tuple[TensorType, ...]:
        """As every artifact's."""
        return self.graph.output_types


class SimulatedSpace(LaunchSpace):
    """The same settings for every kernel; see `LaunchSpace`."""

    def kind(self, graph: Graph, group: FusionGroup) -> str:
        """One for all."""
        return "item"

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        """The first of all options."""
        return self.choose(graph, group, first_option, "")

    def choose(
        self, graph: Graph, group: FusionGroup, chooser: Chooser, prefix: str
    ) -> LaunchConfig:
        """Any option of any setting."""
        asked = {n: chooser(f"{prefix}.{n}", options) for n, options in SETTINGS.items()}
        return LaunchConfig.of(**asked)


def simulated_us(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
    """Microseconds of a kernel, always the same."""
    key = group_digest(graph, group.nodes, group.outputs)
    return group_bound_us(graph, group, NOMINAL) * own_part(key) * launch_part(key, launch)


def own_part(key: str) -> float:
    """How many times its bound a kernel takes whatever its launch, by its digest."""
    return 1.0 + (SLOWEST - 1.0) * _part(key)


def launch_part(key: str, launch: LaunchConfig) -> float:
    """How many times as long it takes under a launch configuration."""
    return 1.0 + (SLOWEST - 1.0) * _part(key + launch_text(launch))


def _part(text: str) -> float:
    """From 0 to 1, by a text."""
    return int(sha256(text.encode()).hexdigest()[:8], 16) / 0xFFFFFFFF


def simulated_kind(ledger: Path) -> DeviceKind:
    """The record that is the device; its runs are added to `ledger`."""
    backend = replace(
        CPU_BACKEND, name=NAME, program=_program, build=_built, ahead=None,
        environment=lambda: ENVIRONMENT, ready=lambda: None,
        kernel_code=lambda _: NAME, runtime=lambda: "", uncallable=lambda _: "",
    )  # fmt: skip
    hardware = Hardware(
        lambda: (DeviceUnit(f"{NAME}-{ledger.parent.name}"),), partial(SimulatedDevice, ledger),
        lambda: NOMINAL, lambda: NOMINAL.cache_bytes,
    )  # fmt: skip
    return replace(
        DEVICES["cpu"],
        name=NAME,
        backend=backend,
        launches=lambda _: SimulatedSpace(),
        hardware=hardware,
        automatic=False,
    )


def _program(graph: Graph, candidate: Candidate) -> SimulatedPlan:
    pairs = zip(candidate.plan.groups, candidate.launches, strict=True)
    times = tuple(simulated_us(graph, *pair) for pair in pairs)
    return SimulatedPlan(graph, candidate.digest, times)


def _built(program: SimulatedPlan, *, timeout_s: float = 0.0) -> Built[SimulatedPlan]:
    return Built(program, 0.0, 0.0, 0, "")


class SimulatedWatch:
    """Samples of one plan, by the device's clock; see `autofuse.measure.timing.sampling.Watch`."""

    mode = "call"

    def __init__(self, loaded: LoadedPlan) -> None:
        self._loaded = loaded

    def clock(self) -> float:
        """Seconds."""
        return self._loaded.seconds

    def settle(self) -> None:
        """Nothing: plans of the simulated device do not disturb each other."""

    def sample(self) -> float:
        """Microseconds of one call."""
        return self._loaded.call()


class LoadedPlan:
    """A plan on the device, and how long it has run there."""

    def __init__(self, plan: SimulatedPlan) -> None:
        self.plan, self.seconds, self.what = plan, 0.0, "checked"

    def call(self) -> float:
        """Microseconds of one call, which pass."""
        us = sum(self.plan.groups_us)
        self.seconds += us * 1e-6
        return us


class SimulatedDevice:
    """See `autofuse.measure.device.Device`."""

    broken = False

    def __init__(self, ledger: Path) -> None:
        self._ledger = ledger
        self._inputs: Arrays = ()
        self._right: tuple[Graph, Arrays] | None = None
        self._loaded: LoadedPlan | None = None

    def open(self, inputs: Arrays, outputs: Sequence[TensorType]) -> None:
        """Keep the inputs; what is computed is worked out when a plan is run."""
        self._inputs, self._right = inputs, None

    @contextmanager
    def load(self, artifact: SimulatedPlan) -> Iterator[LoadedPlan]:
        """The plan; unloaded it is a line of the ledger."""
        loaded = self._loaded = LoadedPlan(artifact)
        time.sleep(HELD_S)
        try:
            yield loaded
        finally:
            self._note(SimulatedRun(artifact.candidate, loaded.what, loaded.seconds))

    def run(self, loaded: LoadedPlan, *, elsewhere: bool = False) -> CheckedRun:
        """One call, which is always right."""
        loaded.call()
        return self._made(loaded)

    def left(self) -> CheckedRun:
        """What the last call made."""
        assert self._loaded is not None
        return self._made(self._loaded)

    def _made(self, loaded: LoadedPlan) -> CheckedRun:
        graph = loaded.plan.graph
        if self._right is None or self._right[0] != graph:
            found = Runs(graph, self._inputs)()
            pairs = zip(found, graph.output_types, strict=True)
            self._right = graph, tuple(a.astype(t.dtype.numpy) for a, t in pairs)
        return CheckedRun(self._inputs, self._right[1], True)

    def watch(self, loaded: LoadedPlan, sampling: Sampling) -> SimulatedWatch:
        """Warmed up, once or for each block of a comparison."""
        self._loaded = loaded
        loaded.what = "measured" if loaded.what == "checked" else "compared"
        loaded.seconds += sampling.warmup_s
        return SimulatedWatch(loaded)

    def profile(self, loaded: LoadedPlan, groups: int, sampling: Sampling) -> ProfileSamples:
        """Samples of all groups, all alike."""
        watch = self.watch(loaded, sampling)
        loaded.what = "profiled"
        for _ in range(sampling.minimum):
            watch.sample()
        us = np.tile(loaded.plan.groups_us, (sampling.minimum, 1))
        return ProfileSamples(us, watch.mode, "samples")

    def _note(self, run: SimulatedRun) -> None:
        line = json.dumps(asdict(run)) + "\n"
        ledger = os.open(self._ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(ledger, line.encode())
        finally:
            os.close(ledger)


def runs(ledger: Path) -> tuple[SimulatedRun, ...]:
    """What was run on a device, in order."""
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.exists() else ()
    return tuple(SimulatedRun(**json.loads(line)) for line in lines)
