"""Drawn plans whose kernels run on the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.emulator.emulator import ORDERS, Emulated
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import FusionPlan, LaunchConfig
from search_spaces.cuda import CudaLaunchSpace
from tests.support.batching import Case


def launches(graph: Graph, plan: FusionPlan, rng: np.random.Generator) -> tuple[LaunchConfig, ...]:
    """Any point of the space, for each group."""
    space = CudaLaunchSpace(DEFAULT_TARGET)
    return tuple(
        space.choose(graph, g, lambda _, options: options[int(rng.integers(len(options)))], "")
        for g in plan.groups
    )


def on_cuda(case: Case, seed: int) -> Case:
    """The same plan, launched as a GPU would be."""
    rng, candidate = np.random.default_rng(seed), case.candidate
    own = launches(case.graph, candidate.plan, rng)
    return replace(case, candidate=replace(candidate, launches=own))


def failures(cases: Sequence[Case]) -> list[str]:
    """What is wrong with each plan that does not give the reference result."""
    programs = [cuda_program(case.graph, case.candidate) for case in cases]
    texts = dict.fromkeys(source.text for p in programs for source in p.sources)
    kernels, found = Emulated(*texts), []
    for case, program in zip(cases, programs, strict=True):
        inputs = random_inputs(case.graph, 0)
        plan = EmulatedPlan(EmulatedArtifact(program), orders=ORDERS[:2], kernels=kernels)
        try:
            result = check(plan.run(inputs), reference_of(case.graph, inputs, runs=4))
            message = "" if result.ok else result.message
        except AutofuseError as error:  # what the emulator saw: to be shown with the plan
            message = str(error)
        if message:
            found.append(f"{case.label}: {message}")
    return found
