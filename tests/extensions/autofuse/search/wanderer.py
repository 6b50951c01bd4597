"""What the problem suggests first, then uniform draws, none twice: the least that is a searcher."""

import random
from collections.abc import Mapping

from autofuse.errors import AutofuseError
from autofuse.search.protocol import Option, Outcome, Problem, Proposal
from autofuse.search.space import Space, draw_new


class Wanderer:
    def __init__(self, seed: int) -> None:
        self.random, self.space = random.Random(seed), Space()
        self.seen: set[str] = set()
        self.seeds: list[Mapping[str, Option]] | None = None

    def ask(self, problem: Problem) -> Proposal | None:
        self.seeds = list(problem.seeds()) if self.seeds is None else self.seeds
        if self.seeds:
            return self.space.propose_fixed(problem, self.seeds.pop(0))
        return draw_new(problem, self.space, self.random, self.seen, 100)

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        self.seen.add(proposal.key)


def create(seed: int, options: Mapping[str, str]) -> Wanderer:
    if options:
        raise AutofuseError(f"strategy 'wanderer' has no option '{min(options)}'")
    return Wanderer(seed)
