"""The search loop: ask, answer repeats from memory, evaluate the rest, tell, until told to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from autofuse.search.protocol import Choices, Outcome, Problem, Proposal, Resumable, Searcher

MAX_REPEATS = 200


@dataclass(frozen=True, slots=True)
class SearchStep:
    """One ask and its outcome. `repeated`: answered without evaluating. `improved`: new best."""

    index: int
    proposal: Proposal
    outcome: Outcome
    repeated: bool
    improved: bool
    sampler_s: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended. `steps` = `evaluated` + `repeats`; `best_value` is in microseconds.

    `sampler_s` is the time in rebuild, ask and tell. `stopped` is "stop" (should_stop said so),
    "exhausted" (the searcher had no more) or "repeats" (nothing new for max_repeats steps).
    """

    steps: int
    evaluated: int
    repeats: int
    sampler_s: float
    best: Proposal | None
    best_value: float | None
    stopped: str


class _Loop:
    """The running state of one run."""

    def __init__(
        self, known: Callable[[Proposal], Outcome | None], clock: Callable[[], float]
    ) -> None:
        self.known = known
        self.told: dict[str, Outcome] = {}
        self.clock = clock
        self.sampler_s = 0.0
        self.evaluated = 0
        self.repeats = 0
        self.stall = 0
        self.best: Proposal | None = None
        self.best_value: float | None = None

    def answer(
        self, proposal: Proposal, evaluate: Callable[[Proposal], Outcome]
    ) -> tuple[Outcome, bool]:
        """The outcome, and whether it was known before."""
        told = self.told.get(proposal.key)
        # A stored outcome met for the first time is news to this searcher, so it is no stall.
        self.stall = self.stall + 1 if told is not None else 0
        outcome = told or self.known(proposal)
        repeated = outcome is not None
        if outcome is None:
            outcome = evaluate(proposal)
            self.evaluated += 1
        else:
            self.repeats += 1
        self.told[proposal.key] = outcome
        return outcome, repeated

    def improve(self, proposal: Proposal, outcome: Outcome) -> bool:
        value = outcome.value
        if value is None or not outcome.feasible:
            return False
        if self.best_value is not None and value >= self.best_value:
            return False
        self.best, self.best_value = proposal, value
        return True

    def result(self, stopped: str) -> RunResult:
        return RunResult(
            steps=self.evaluated + self.repeats,
            evaluated=self.evaluated,
            repeats=self.repeats,
            sampler_s=self.sampler_s,
            best=self.best,
            best_value=self.best_value,
            stopped=stopped,
        )


def run(
    searcher: Searcher,
    problem: Problem,
    evaluate: Callable[[Proposal], Outcome],
    clock: Callable[[], float],
    should_stop: Callable[[], bool],
    known: Callable[[Proposal], Outcome | None] = lambda proposal: None,
    *,
    history: Iterable[tuple[Choices, Outcome]] = (),
    on_step: Callable[[SearchStep], None] = lambda step: None,
    max_repeats: int = MAX_REPEATS,
) -> RunResult:
    """Search `problem` until `should_stop()`, exhaustion or `max_repeats` repeats in a row.

    `known` answers what was measured before; `history` is taken in by a Resumable searcher
    before the first ask. `clock` is in seconds. `should_stop` is asked before each ask and before
    each evaluation; what `evaluate` or `on_step` raise passes through. `on_step` comes after tell.
    """
    loop = _Loop(known, clock)
    start = clock()
    if isinstance(searcher, Resumable):
        searcher.rebuild(problem, history)
    loop.sampler_s += clock() - start
    while not should_stop():
        start = clock()
        proposal = searcher.ask(problem)
        spent = clock() - start
        loop.sampler_s += spent
        if proposal is None:
            return loop.result("exhausted")
        if should_stop():
            break
        outcome, repeated = loop.answer(proposal, evaluate)
        start = clock()
        searcher.tell(proposal, outcome)
        told_s = clock() - start
        loop.sampler_s += told_s
        index = loop.evaluated + loop.repeats - 1
        improved = loop.improve(proposal, outcome)
        on_step(SearchStep(index, proposal, outcome, repeated, improved, spent + told_s))
        if loop.stall >= max_repeats:
            return loop.result("repeats")
    return loop.result("stop")
