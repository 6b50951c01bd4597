"""The programs of the study: the zoo, and programs of other people's packages and repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from autofuse.peers.systems import zoo_program
from autofuse.peers.translate import translate
from autofuse.peers.types import BenchWorkload
from autofuse.zoo import ZOO
from benchmarks.fetched.table import FETCHED
from benchmarks.unseen.making import constant_names
from benchmarks.unseen.table import PROGRAMS
from benchmarks.unseen.types import Call, Made, Program, module
from benchmarks.workloads import bench_workload

OURS = "autofuse"


@dataclass(frozen=True, slots=True)
class StudyProgram:
    """A program's name, the package that it is of, how it is made for sizes "default" or "small"
    (programs of others have one size), and what tells the modules that it lacks here."""

    name: str
    package: str
    make: Callable[[str], Made]
    lacks: Callable[[], tuple[str, ...]] = tuple

    @property
    def absent(self) -> tuple[str, ...]:
        """The modules that are missing. To look for them imports the packages around them."""
        return self.lacks()


def study_programs() -> Mapping[str, StudyProgram]:
    """All of them by name."""
    others = (*PROGRAMS.values(), *FETCHED.values())
    found = (*map(_of_zoo, ZOO), *map(_of_others, others))
    return {program.name: program for program in found}


def _of_others(program: Program) -> StudyProgram:
    return StudyProgram(
        program.name, program.package, lambda size: program.make(), lambda: program.absent
    )


def _of_zoo(name: str) -> StudyProgram:
    return StudyProgram(name, OURS, partial(_zoo_made, name))


def _zoo_made(name: str, size: str) -> Made:
    """A workload of the zoo. Its peers are the programs that were written for them by hand."""
    workload = bench_workload(name, size)
    fixed = constant_names(workload.graph)
    named = dict(zip(workload.graph.input_names, workload.inputs, strict=True))
    peers = {"numpy": _numpy, "jax.jit": _jax, "inductor": _inductor}
    return Made(
        workload.graph,
        tuple(array for each, array in named.items() if each not in fixed),
        {each: named[each] for each in fixed},
        {each: partial(make, workload) for each, make in peers.items()},
    )


def _numpy(workload: BenchWorkload) -> Call:
    from autofuse.peers import programs_numpy  # each peer is imported where it is asked for

    program = zoo_program(programs_numpy.program, workload) or translate(workload.graph, np)

    def call() -> Sequence[np.ndarray]:
        with np.errstate(all="ignore"):
            return [np.asarray(each) for each in program(*workload.inputs)]

    return call


def _jax(workload: BenchWorkload) -> Call:
    jax = module("jax")
    from autofuse.peers import programs_jax

    program = programs_jax.program(workload.zoo, workload.sizes)
    jitted, there = jax.jit(program), jax.device_put(workload.inputs)
    return lambda: [np.asarray(each) for each in jitted(*there)]


def _inductor(workload: BenchWorkload) -> Call:
    torch = module("torch")
    from autofuse.peers import programs_torch

    program: Any = zoo_program(programs_torch.program, workload)
    if program is None:
        program = programs_torch.compiled(translate(workload.graph, torch))
    there = [torch.tensor(array) for array in workload.inputs]

    def call() -> Sequence[np.ndarray]:
        with torch.inference_mode():
            return [each.numpy() for each in program(*there)]

    return call
