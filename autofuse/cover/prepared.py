"""A problem made ready to be solved again and again by other costs."""

from __future__ import annotations

from autofuse.cover.presolve import presolve
from autofuse.cover.program import CoverProgram
from autofuse.cover.protocol import CoverProblem


class Prepared:
    """A problem presolved, with one program for each of its parts.

    A program keeps the cuts that it was given, which hold for all costs, and the basis of its last
    linear program: most of what a first solve takes. It is for one thread. Raises AutofuseError
    where no set of pieces writes every required value.
    """

    def __init__(self, problem: CoverProblem) -> None:
        self.problem = problem
        self.presolved = presolve(problem)
        self.programs = tuple(CoverProgram(part) for part in self.presolved.parts)
