"""Seeds first, then uniform draws that prefer keys not proposed before."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping

from autofuse.errors import AutofuseError
from autofuse.search.protocol import Choices, Option, Outcome, Problem, Proposal
from autofuse.search.space import Space, draw_new

# Draws in a row that give nothing new before the space counts as exhausted.
PATIENCE = 200


class RandomSearcher:
    """Uniform random search; never repeats a key after the seeds, and ends when none is left."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._space = Space()
        self._seen: set[str] = set()
        self._seeds: deque[Mapping[str, Option]] | None = None

    def ask(self, problem: Problem) -> Proposal | None:
        if self._seeds is None:
            self._seeds = deque(problem.seeds())
        proposal: Proposal | None
        if self._seeds:
            proposal = self._space.propose_fixed(problem, self._seeds.popleft())
        else:
            proposal = draw_new(problem, self._space, self._rng, self._seen, PATIENCE)
        if proposal is not None:
            self._seen.add(proposal.key)
        return proposal

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self._seen.add(proposal.key)

    def rebuild(self, problem: Problem, history: Iterable[tuple[Choices, Outcome]]) -> int:
        count = 0
        for choices, _ in history:
            proposal = self._space.refit(problem, choices)
            if proposal is not None:
                self._seen.add(proposal.key)
                count += 1
        return count


def create(seed: int, options: Mapping[str, str]) -> RandomSearcher:
    """The 'random' strategy; it has no options. Raises AutofuseError for any."""
    if options:
        raise AutofuseError(f"strategy 'random' has no option '{min(options)}'")
    return RandomSearcher(seed)
