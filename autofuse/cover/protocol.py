"""What the exact planner sees: opaque pieces with costs, and the values they read and write.

A plan is a set of pieces that can run in some order: every value a piece reads is given or written
by an earlier piece of the plan, and every required value is written. Costs add up.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from autofuse.errors import AutofuseError

Plan = tuple[int, ...]
"""Indices into a problem's pieces, in an order in which they can run."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One candidate kernel.

    `key`: pieces with equal keys cost the same, so one measurement serves all of them.
    `bound_us`: microseconds it takes at least, as far as a model knows; finite and >= 0.
    """

    key: str
    reads: frozenset[str]
    writes: frozenset[str]
    bound_us: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.bound_us) and self.bound_us >= 0):
            raise AutofuseError(
                f"the bound of piece '{self.key}' must be finite and >= 0, not {self.bound_us}"
            )


@dataclass(frozen=True, slots=True)
class CoverProblem:
    """Choose pieces that write every `required` value, starting from the `given` ones."""

    pieces: tuple[Piece, ...]
    required: frozenset[str]
    given: frozenset[str]


@dataclass(frozen=True, slots=True)
class Measured:
    """What measuring a piece gave: `cost_us` in microseconds, None when the piece cannot be used.

    `seconds` is what the measuring itself took. Raises AutofuseError for a number below zero or
    not finite.
    """

    cost_us: float | None
    seconds: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("cost", self.cost_us), ("time spent", self.seconds)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise AutofuseError(f"a measured {name} must be finite and >= 0, not {value}")


Measure = Callable[[Piece], Measured]
LeftS = Callable[[], float]
"""Seconds that solving may still take; what it has by then has to do."""


def no_limit() -> float:
    """Solving may take as long as it takes."""
    return math.inf


Seconds = Callable[[Piece], float]
"""An estimate of the seconds that measuring a piece would take."""
