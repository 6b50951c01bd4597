"""Runs drawn cases, many kernels to a build, and holds what they give to the reference."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autofuse.backends.base import Artifact, LaunchError
from autofuse.backends.library import load
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.measure.first_check import compared, run_once
from autofuse.ops.types import AutofuseError
from autofuse.records import WRONG
from benchmarks.batching import Case, build
from benchmarks.sweep.cases import SweepCase, drawn

# Cases of one build.
BATCH = 48
NOISE_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """A case that gave something wrong, or could not be built or run."""

    seed: int
    name: str
    what: str


@dataclass(frozen=True, slots=True)
class Swept:
    """How many seeds were tried, how many of them were cases, and what is wrong with some."""

    tried: int
    cases: int
    faults: tuple[Fault, ...]


def sweep(
    seeds: Sequence[int], subject: str | None = None, tell: Callable[[Fault], None] = lambda _: None
) -> Swept:
    """Draw, build, run and check the cases of all seeds; `tell` hears of each fault."""
    cases, faults = 0, list[Fault]()
    for first in range(0, len(seeds), BATCH):
        made = list(_drawn(seeds[first : first + BATCH], subject))
        cases += len(made)
        for case in made:
            if isinstance(case, Fault):
                faults.append(case)
                tell(case)
        for fault in _checked([case for case in made if isinstance(case, SweepCase)]):
            faults.append(fault)
            tell(fault)
    return Swept(len(seeds), cases, tuple(faults))


def _drawn(seeds: Sequence[int], subject: str | None) -> Iterator[SweepCase | Fault]:
    for seed in seeds:
        try:
            case = drawn(seed, subject)
        except AutofuseError as error:
            yield Fault(seed, subject or "?", f"cannot be planned: {error}")
            continue
        if case is not None:
            yield case


def _checked(cases: Sequence[SweepCase]) -> Iterator[Fault]:
    """The faults of cases that are built together; of those that cannot be, each by itself."""
    if not cases:
        return
    try:
        artifacts = build([Case(c.graph, c.candidate, c.name) for c in cases])
    except AutofuseError as error:
        if len(cases) == 1:
            yield Fault(cases[0].seed, cases[0].name, f"cannot be built: {error}")
            return
        middle = len(cases) // 2
        yield from _checked(cases[:middle])
        yield from _checked(cases[middle:])
        return
    for case, artifact in zip(cases, artifacts, strict=True):
        what = _wrong(case, artifact)
        if what:
            yield Fault(case.seed, case.name, what)


def _wrong(case: SweepCase, artifact: Artifact) -> str:
    inputs = random_inputs(case.graph, case.seed)
    try:
        outputs, fault = run_once(case.graph, lambda: load(artifact), inputs)
    except LaunchError as error:
        return f"cannot be run: {error}"
    if fault:
        return fault
    with np.errstate(all="ignore"):
        wanted = evaluate(case.graph, inputs)
        found = compared(case.graph, inputs, wanted, outputs, NOISE_S)
    return found.why if found.state == WRONG else ""


def resumed(path: Path | None, seed: int) -> int:
    """How many seeds from `seed` on were done by a run that left its state at `path`."""
    if path is None or not path.exists():
        return 0
    data = json.loads(path.read_text(encoding="utf-8"))
    return int(data["done"]) if data.get("seed") == seed else 0


def keep(path: Path | None, seed: int, done: int, faults: Sequence[Fault]) -> None:
    """Leave the state for a run that goes on."""
    if path is not None:
        rows = [[f.seed, f.name, f.what] for f in faults]
        path.write_text(json.dumps({"seed": seed, "done": done, "faults": rows}, indent=1) + "\n")
