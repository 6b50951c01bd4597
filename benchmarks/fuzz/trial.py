"""Graphs through everything: simplified, planned three ways, compiled, run, and checked against the
reference of the graph as it was written."""

from __future__ import annotations

import random
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from types import FrameType
from typing import Any

import numpy as np

from autofuse.backends.base import Artifact, CompileError, Program
from autofuse.backends.cache import BuildCache
from autofuse.backends.cpu.backend import program
from autofuse.backends.library import load
from autofuse.baselines import BASELINES
from autofuse.devices import DeviceKind, device_named
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, poison, reference_of
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_candidate, untuned_candidate
from benchmarks.batching import build_programs
from benchmarks.fuzz.graphs import random_graph
from benchmarks.fuzz.random_plans import random_candidate

# Runs of the reference under rounding noise: a seldom jump must not pass for a fault.
NOISY_RUNS = 6
STEPS = 40


@dataclass(frozen=True)
class Found:
    """What was wrong with one graph: `kind` is "refused", "wrong" or "crashed", `stage` where,
    `cause` one line and `trace` the traceback, if there was one."""

    seed: int
    kind: str
    stage: str
    cause: str
    trace: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Seconds:
    """Where the time went."""

    by: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def of(self, what: str, since: float) -> float:
        now = time.perf_counter()
        self.by[what] += now - since
        return now


Make = Callable[[int], Graph]
PLANS = ("untuned", "rule", "partition")


# Seconds of processor time that a graph may take to be planned, and a program to run and be
# checked: others may be at work beside it.
PATIENCE_S = 20.0


class TooLong(Exception):  # noqa: N818 - it is what is told
    """Something took longer than anybody waits for so small a graph."""


@contextmanager
def limited(seconds: float = PATIENCE_S) -> Iterator[None]:
    """Raises TooLong where a block of Python takes longer; for the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"not done after {seconds:g} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def candidate_of(graph: Graph, seed: int, plan: str, kind: DeviceKind) -> Candidate:
    """One of `PLANS` of a graph in its normal form."""
    if plan == "untuned":
        return untuned_candidate(graph, kind)
    if plan == "rule":
        name = random.Random(seed).choice(tuple(BASELINES))
        return baseline_candidate(graph, name, kind.space)[0]
    return random_candidate(graph, seed, seed % STEPS)


def label_of(seed: int, plan: str) -> str:
    return f"rule {random.Random(seed).choice(tuple(BASELINES))}" if plan == "rule" else plan


def _failed(seed: int, stage: str, error: BaseException) -> Found:
    lines = traceback.extract_tb(error.__traceback__)
    own = next((f for f in reversed(lines) if "autofuse/" in f.filename), lines[-1])
    place = f"{own.filename.rsplit('autofuse/', 1)[-1]}:{own.lineno} {own.name}"
    text = " ".join(str(error).split())[:300]
    trace = "".join(traceback.format_exception(error)[-12:])
    return Found(seed, "refused", stage, f"{type(error).__name__}: {text} ({place})", trace)


@dataclass(frozen=True)
class Planned:
    """A program of one plan of a graph."""

    seed: int
    graph: Graph
    label: str
    program: Program


def planned(
    seed: int, make: Make, plans: Sequence[str], told: Seconds
) -> tuple[list[Planned], Found | None]:
    """The programs of one graph, up to what could not be made."""
    kind = device_named("cpu")
    stage = "generator"
    found: list[Planned] = []
    now = time.perf_counter()
    try:
        graph = make(seed)
        now = told.of("generator", now)
        stage = "simplify"
        normal = normal_form(graph)
        now = told.of(stage, now)
        for plan in plans:
            stage = f"plan {label_of(seed, plan)}"
            candidate = candidate_of(normal, seed, plan, kind)
            now = told.of(f"plan {plan}", now)
            stage = f"lower {label_of(seed, plan)}"
            found.append(Planned(seed, graph, label_of(seed, plan), program(normal, candidate)))
            now = told.of("lower", now)
    except Exception as error:  # whatever it is, it is a finding
        return found, _failed(seed, stage, error)
    return found, None


@dataclass(frozen=True, slots=True)
class Building:
    """Which plans of a graph are built, the compiler's level, and its flags beside."""

    level: str = "-O1"
    plans: Sequence[str] = PLANS
    flags: tuple[str, ...] = ()


def built(
    cases: Sequence[Planned], how: Building, cache: BuildCache
) -> Iterator[tuple[Planned, Artifact | Found]]:
    """All programs in one library; where it cannot be compiled, halves of them."""
    if not cases:
        return
    try:
        yield from zip(
            cases,
            build_programs([c.program for c in cases], how.level, how.flags, cache),
            strict=True,
        )
    except CompileError as error:
        if len(cases) == 1:
            yield cases[0], _failed(cases[0].seed, f"compile {cases[0].label}", error)
            return
        half = len(cases) // 2
        yield from built(cases[:half], how, cache)
        yield from built(cases[half:], how, cache)


def ran(case: Planned, artifact: Artifact, checks: dict[int, Any]) -> Found | None:
    """One program on poisoned memory against the reference of the graph as it was written."""
    if case.seed not in checks:
        inputs = random_inputs(case.graph, case.seed)
        checks.clear()
        checks[case.seed] = inputs, reference_of(case.graph, inputs, runs=NOISY_RUNS)
    inputs, reference = checks[case.seed]
    with load(artifact) as library:
        outputs = [np.empty(t.shape, t.dtype.numpy) for t in artifact.outputs]
        for array in (*outputs, library.workspace):
            poison(array)
        fixed = artifact.binding.bound
        if fixed:
            library.prepare([inputs[k] for k in fixed])
        library.run([a for k, a in enumerate(inputs) if k not in fixed], outputs)
    result = check(outputs, reference)
    if result.ok:
        return None
    return Found(case.seed, "wrong", f"run {case.label}", result.message)


def trial(
    seeds: Sequence[int], tell: Callable[[str, Any], None], how: Building,
    cache: BuildCache | None = None, make: Make = random_graph,
) -> None:  # fmt: skip
    """Try the graphs of some seeds. `tell` hears "found" with a Found, "at" with the seed that is
    run next, since it may take the process along, and "seconds" at the end."""
    told = Seconds()
    cases: list[Planned] = []
    store = cache or BuildCache()
    for seed in seeds:
        tell("at", (seed, "plan"))
        with limited():
            made, failed = planned(seed, make, how.plans, told)
        cases += made
        if failed is not None:
            tell("found", failed)
    now = time.perf_counter()
    checks: dict[int, Any] = {}
    for case, artifact in list(built(cases, how, store)):
        now = told.of("compile", now)
        if isinstance(artifact, Found):
            tell("found", artifact)
            continue
        tell("at", (case.seed, f"run {case.label}"))
        try:
            with limited():
                wrong = ran(case, artifact, checks)
        except Exception as error:  # whatever it is, it is a finding
            wrong = _failed(case.seed, f"run {case.label}", error)
        if wrong is not None:
            tell("found", wrong)
        now = told.of("run and check", now)
    tell("seconds", dict(told.by))
