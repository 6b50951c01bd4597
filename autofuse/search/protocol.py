"""What a searcher sees: an opaque problem it asks for proposals, and the outcomes it is told.

A problem is define-by-run: `propose` calls the chooser for every parameter it needs, so the space
may be conditional. A parameter's options never change between two calls under one name; a problem
whose options depend on earlier answers gives them different names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

Option = int | str | bool
Choices = tuple[tuple[str, Option], ...]
Chooser = Callable[[str, tuple[Option, ...]], Option]


@dataclass(frozen=True, slots=True)
class Proposal:
    """One point of a problem's space.

    `key` is the canonical digest of what it means: two different choice vectors may have one key.
    `choices` are the answers the chooser gave, in order. `payload` is the problem's own and takes
    no part in comparison.
    """

    key: str
    choices: Choices
    payload: object = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a proposal: `value` in microseconds, lower is better, None when it failed.

    `violation` >= 0 says how bad a failure is; a value with a violation above 0 does not count as
    a solution. Raises ValueError for a NaN or infinite number or a negative violation.
    """

    value: float | None
    violation: float = 0.0

    def __post_init__(self) -> None:
        if self.value is not None and not math.isfinite(self.value):
            raise ValueError(f"an outcome's value must be finite or None, not {self.value}")
        if not (math.isfinite(self.violation) and self.violation >= 0):
            raise ValueError(
                f"an outcome's violation must be finite and >= 0, not {self.violation}"
            )

    @property
    def feasible(self) -> bool:
        return self.value is not None and self.violation == 0

    @property
    def severity(self) -> float:
        """0 for a solution, else the violation; a failure that does not say how bad it is has 1."""
        return 0.0 if self.feasible else self.violation or 1.0


class Problem(Protocol):
    """A space of proposals; both methods are pure."""

    def seeds(self) -> Sequence[Mapping[str, Option]]:
        """Choices to try first (the baselines); a missing name means its first option."""
        ...

    def propose(self, choose: Chooser) -> Proposal:
        """Run the space, asking `choose` for each parameter, and canonicalise the result."""
        ...


class Searcher(Protocol):
    """One search over one problem; deterministic for equal seeds and equal outcomes."""

    def ask(self, problem: Problem) -> Proposal | None:
        """The next proposal (possibly one whose key was proposed before); None: exhausted."""
        ...

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        """The outcome of a proposal; the same key may be told any number of times."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """A searcher that can also start from what earlier jobs found."""

    def rebuild(self, problem: Problem, history: Iterable[tuple[Choices, Outcome]]) -> int:
        """Take in stored outcomes before the first ask; returns how many fit today's space."""
        ...


SearcherFactory = Callable[[int, Mapping[str, str]], Searcher]
