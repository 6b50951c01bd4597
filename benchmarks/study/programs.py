"""The programs of the study: the zoo, and programs of other people's packages and repositories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from autofuse.graph.types import Graph
from autofuse.zoo import ZOO, zoo_graph
from benchmarks.fetched.table import FETCHED
from benchmarks.unseen.table import PROGRAMS
from benchmarks.unseen.types import Program

OURS = "autofuse"


@dataclass(frozen=True, slots=True)
class StudyProgram:
    """A program's name, the package that it is of, the modules that are missing here to make its
    graph, and how that is made for sizes "default" or "small". Programs of others have one size."""

    name: str
    package: str
    absent: tuple[str, ...]
    make: Callable[[str], Graph]


def _of_zoo(name: str) -> StudyProgram:
    return StudyProgram(name, OURS, (), partial(zoo_graph, name))


def _of_others(program: Program) -> StudyProgram:
    return StudyProgram(
        program.name, program.package, program.absent, lambda size: program.make().graph
    )


def study_programs() -> Mapping[str, StudyProgram]:
    """All of them by name."""
    others = (*PROGRAMS.values(), *FETCHED.values())
    found = (*map(_of_zoo, ZOO), *map(_of_others, others))
    return {program.name: program for program in found}
