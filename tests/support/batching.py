"""Many plans in one build: compiler start-up and the prelude are paid once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autofuse.backends.base import Artifact
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu.backend import program
from autofuse.backends.library import LoadedLibrary, load
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import (
    CheckResult,
    WorkloadReference,
    check,
    poison,
    reference_of,
)
from autofuse.plan.types import Candidate
from benchmarks.batching import Case as Case
from benchmarks.batching import at_level as at_level
from benchmarks.batching import build as build


def quick_library(graph: Graph, candidate: Candidate, level: str = "-O1") -> LoadedLibrary:
    """A loaded plan whose kernels took the compiler about half as long."""
    made = program(graph, candidate)
    sources = tuple(at_level(source, level) for source in made.sources)
    return load(compile_program(replace(made, sources=sources)).artifact)


def verdict(
    artifact: Artifact, inputs: Sequence[np.ndarray], reference: WorkloadReference
) -> CheckResult:
    """The trust rule on one run with poisoned outputs and workspace."""
    return check(poisoned_run(artifact, inputs), reference)


def poisoned_run(artifact: Artifact, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The outputs of one run; nothing of what memory held before can pass for a result."""
    with load(artifact) as library:
        outputs = [np.empty(t.shape, t.dtype.numpy) for t in artifact.outputs]
        for array in (*outputs, library.workspace):
            poison(array)
        library.run(inputs, outputs)
    return outputs


def failures(cases: Sequence[Case], seed: int = 0, level: str = "-O1") -> list[str]:
    """What is wrong with each case whose plan does not give the reference result."""
    wanted: dict[int, tuple[tuple[np.ndarray, ...], WorkloadReference]] = {}
    found: list[str] = []
    for case, artifact in zip(cases, build(cases, level), strict=True):
        key = id(case.graph)
        if key not in wanted:
            inputs = random_inputs(case.graph, seed)
            wanted[key] = (inputs, reference_of(case.graph, inputs, runs=8))
        result = verdict(artifact, *wanted[key])
        if not result.ok:
            found.append(f"{case.label}: {result.message}\n  plan {case.candidate.plan}")
    return found
