"""The registry of strategies: each makes a search of what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.records import Measurement
from autofuse.search import SEARCHERS, make_searcher
from autofuse.search.driver import SearchStep, run
from autofuse.search.protocol import Outcome, Proposal
from autofuse.tuning.bench import Bench, Findings, Standing, Strategy
from autofuse.tuning.options import TuneOptions
from autofuse.tuning.problem import FusionProblem
from autofuse.tuning.search.exact import ExactSearch, Goal
from autofuse.tuning.search.rule_launches import LAUNCHES, rule_launches


def exact(asked: TuneOptions) -> Strategy:
    """Plan kernels exactly, measuring lazily."""
    _without_options(asked)
    goal = Goal(asked.search_gap, asked.runs)
    return lambda bench: ExactSearch(bench, goal).run()


def launches(asked: TuneOptions) -> Strategy:
    """Tune the launch configurations of the rules' plans."""
    _without_options(asked)
    return rule_launches


def _without_options(asked: TuneOptions) -> None:
    for option in asked.options:
        raise AutofuseError(f"strategy '{asked.strategy}' has no option '{option}'")


def sampling(asked: TuneOptions) -> Strategy:
    """Sample whole candidates with an ask/tell searcher."""
    make_searcher(asked.strategy, asked.seed, asked.options)

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

        searcher = make_searcher(asked.strategy, asked.seed, asked.options)
        run(searcher, problem, evaluate, perf_counter, bench.is_over, known, on_step=on_step)
        return Findings(trials)

    return search


PLANNERS: dict[str, Callable[[TuneOptions], Strategy]] = {"exact": exact, LAUNCHES: launches}


def strategy_of(asked: TuneOptions) -> Strategy:
    """The strategy that is asked for; raises AutofuseError listing the known ones."""
    known = sorted({*PLANNERS, *SEARCHERS})
    if asked.strategy not in known:
        raise AutofuseError(f"unknown strategy '{asked.strategy}' (known: {', '.join(known)})")
    return PLANNERS.get(asked.strategy, sampling)(asked)


def outcome_of(record: Measurement) -> Outcome:
    """What a searcher is told of a record."""
    if record.timing is None:
        return Outcome(None, 1.0)
    return Outcome(record.timing.median_us)


def _candidate(proposal: Proposal) -> Candidate:
    assert isinstance(proposal.payload, Candidate)
    return proposal.payload
