"""Many plans in one build: compiler start-up and the prelude are paid once for all of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autofuse.backends.base import Artifact, Program, Source
from autofuse.backends.ccompiler import compile_program
from autofuse.backends.cpu import program
from autofuse.backends.library import LoadedLibrary, load
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.dialects import C
from autofuse.measure.check import CheckResult, WorkloadReference, check, poison, reference_of
from autofuse.plan.types import Candidate


@dataclass(frozen=True)
class Case:
    """A plan of a graph to be run, and what is shown when it fails."""

    graph: Graph
    candidate: Candidate
    label: str


def at_level(source: Source, level: str) -> Source:
    """A source under another level of optimisation than the one users get: vectors are asked for
    in a kernel's text, and whether that is right shows at any."""
    return replace(source, flags=tuple(level if f == "-O3" else f for f in source.flags))


def quick_library(graph: Graph, candidate: Candidate, level: str = "-O1") -> LoadedLibrary:
    """A loaded plan whose kernels took the compiler about half as long."""
    made = program(graph, candidate)
    sources = tuple(at_level(source, level) for source in made.sources)
    return load(compile_program(replace(made, sources=sources)).artifact)


def build(cases: Sequence[Case], level: str = "-O1") -> list[Artifact]:
    """One artifact per case, all in one library; each keeps the entry that `program` wrote."""
    kernels: dict[tuple[str, ...], dict[str, str]] = {}
    entries: list[Source] = []
    programs = [program(case.graph, case.candidate) for case in cases]
    for at, made in enumerate(programs):
        for source in made.sources:
            if source.name == "entry":
                names = [f"{made.entry}{end}" for end in ("", "_profile")]
                renamed = (n.replace(made.entry, f"{made.entry}_{at}") for n in names)
                rename = tuple(f"-D{n}={m}" for n, m in zip(names, renamed, strict=True))
                entries.append(replace(source, name=f"entry{at}", flags=("-O0", *rename)))
                continue
            flags = at_level(source, level).flags
            for name, kernel in re.findall(r"^void (k_\w+)(.*?^})", source.text, re.M | re.S):
                kernels.setdefault(flags, {})[name] = f"void {name}{kernel}"
    sources = [
        Source(f"kernels{k}", "\n".join([C.prelude, *texts.values()]), flags)
        for k, (flags, texts) in enumerate(sorted(kernels.items()))
    ]
    built = compile_program(Program((*sources, *entries), "af_entry_0", (), ())).artifact
    return [
        replace(
            built, entry=f"{p.entry}_{at}", inputs=p.inputs, outputs=p.outputs,
            constants=p.constants, workspace=p.workspace, calls=p.calls,
        )
        for at, p in enumerate(programs)
    ]  # fmt: skip


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
