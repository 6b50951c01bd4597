"""The registry of strategies: each makes a search of what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.records import Measurement
from autofuse.search import SEARCHERS, make_searcher
from autofuse.search.driver import SearchStep, run
from autofuse.search.protocol import Outcome, Proposal
from autofuse.tuning.bench import Bench, Findings, Standing, Strategy
from autofuse.tuning.problem import FusionProblem
from autofuse.tuning.search.exact import ExactSearch, Goal


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a strategy is asked for: see `tune`."""

    name: str
    seed: int
    goal: Goal
    options: Mapping[str, str]


def exact(wishes: Wishes) -> Strategy:
    """Plan kernels exactly, measuring lazily."""
    if wishes.options:
        raise AutofuseError(f"strategy 'exact' has no option '{next(iter(wishes.options))}'")
    return lambda bench: ExactSearch(bench, wishes.goal).run()


def sampling(wishes: Wishes) -> Strategy:
    """Sample whole candidates with an ask/tell searcher."""
    make_searcher(wishes.name, wishes.seed, wishes.options)

    def search(bench: Bench) -> Findings:
        problem = FusionProblem(bench.graph, bench.space, bench.plans)
        trials = 0

        def evaluate(proposal: Proposal) -> Outcome:
            candidate = _candidate(proposal)
            if not bench.fits(candidate.plan):
                return Outcome(None, 1.0)
            return outcome_of(bench.measure(candidate))

        def known(proposal: Proposal) -> Outcome | None:
            record = bench.known(_candidate(proposal))
            return None if record is None else outcome_of(record)

        def on_step(step: SearchStep) -> None:
            nonlocal trials
            trials += 1
            bench.tell(Standing("search", trials))

        searcher = make_searcher(wishes.name, wishes.seed, wishes.options)
        run(searcher, problem, evaluate, perf_counter, bench.is_over, known, on_step=on_step)
        return Findings(trials)

    return search


PLANNERS: dict[str, Callable[[Wishes], Strategy]] = {"exact": exact}


def strategy_named(name: str, seed: int, goal: Goal, options: Mapping[str, str]) -> Strategy:
    """The strategy called `name`; raises AutofuseError listing the known ones."""
    known = sorted({*PLANNERS, *SEARCHERS})
    if name not in known:
        raise AutofuseError(f"unknown strategy '{name}' (known: {', '.join(known)})")
    return PLANNERS.get(name, sampling)(Wishes(name, seed, goal, options))


def outcome_of(record: Measurement) -> Outcome:
    """What a searcher is told of a record."""
    if record.timing is None:
        return Outcome(None, 1.0)
    return Outcome(record.timing.median_us)


def _candidate(proposal: Proposal) -> Candidate:
    assert isinstance(proposal.payload, Candidate)
    return proposal.payload
