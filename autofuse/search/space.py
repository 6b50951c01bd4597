"""What every searcher needs to walk a define-by-run space safely."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping

from autofuse.errors import AutofuseError
from autofuse.search.protocol import Choices, Chooser, Option, Problem, Proposal


class Space:
    """The parameters seen so far, each with its options, which may not change."""

    def __init__(self) -> None:
        self._options: dict[str, tuple[Option, ...]] = {}

    def options(self, name: str) -> tuple[Option, ...]:
        """The options of a parameter already seen; KeyError otherwise."""
        return self._options[name]

    def is_free(self, name: str) -> bool:
        """Whether there is anything to choose; False for a name never seen."""
        return len(self._options.get(name, ())) > 1

    def propose(self, problem: Problem, pick: Chooser) -> Proposal:
        """Run `problem` once, with `pick` asked once per name and only where there is a choice.

        Raises AutofuseError when a name's options are empty, equal to each other or different from
        an earlier run's, and when `pick` answers something that is no option.
        """
        answers: dict[str, Option] = {}

        def choose(name: str, options: tuple[Option, ...]) -> Option:
            self._check(name, options)
            if name not in answers:
                answer = options[0] if len(options) == 1 else pick(name, options)
                answers[name] = options[_position(name, options, answer)]
            return answers[name]

        return problem.propose(choose)

    def propose_fixed(self, problem: Problem, wanted: Mapping[str, Option]) -> Proposal:
        """The proposal of given choices; a missing name means its first option."""
        return self.propose(problem, lambda name, options: wanted.get(name, options[0]))

    def refit(self, problem: Problem, choices: Choices) -> Proposal | None:
        """The proposal of stored choices; None where they no longer fit the space."""
        wanted = dict(choices)
        fits = True

        def pick(name: str, options: tuple[Option, ...]) -> Option:
            nonlocal fits
            if wanted.get(name) in options:
                return wanted[name]
            fits = False
            return options[0]

        proposal = self.propose(problem, pick)
        return proposal if fits else None

    def _check(self, name: str, options: tuple[Option, ...]) -> None:
        known = self._options.get(name)
        if known is None:
            # True == 1, so a parameter that offers both could not be looked up again.
            if not options or len(set(options)) != len(options):
                raise AutofuseError(f"parameter '{name}' needs distinct options, got {options}")
            self._options[name] = options
        elif known != options:
            raise AutofuseError(
                f"parameter '{name}' changed its options from {known} to {options}: "
                "options that depend on other choices need a name of their own"
            )


def _position(name: str, options: tuple[Option, ...], answer: Option) -> int:
    if answer not in options:
        raise AutofuseError(f"'{answer}' is not an option of parameter '{name}': {options}")
    return options.index(answer)


def draw_new(
    problem: Problem, space: Space, rng: random.Random, seen: Container[str], patience: int
) -> Proposal | None:
    """A uniform draw whose key is not in `seen`; None after `patience` draws that all were."""
    for _ in range(patience):
        proposal = space.propose(problem, lambda _, options: rng.choice(options))
        if proposal.key not in seen:
            return proposal
    return None
