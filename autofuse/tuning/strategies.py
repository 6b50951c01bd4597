"""Strategies by name: what each does with a tuning session."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from autofuse.cost.bounds import Calibration
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.records import Measurement
from autofuse.search import SEARCHERS, make_searcher
from autofuse.search.driver import Step, run
from autofuse.search.protocol import Outcome, Proposal
from autofuse.tuning.learned import lessons_of, library
from autofuse.tuning.problem import FusionProblem
from autofuse.tuning.session import Search, Session


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a strategy is asked for: see `tune`."""

    name: str
    seed: int
    gap: float
    runs: float | None
    options: Mapping[str, str]


def exact(wishes: Wishes) -> Search:
    """Plan kernels exactly, measuring lazily."""
    if wishes.options:
        raise AutofuseError(f"strategy 'exact' has no option '{next(iter(wishes.options))}'")

    def search(session: Session) -> None:
        from autofuse.tuning.exact import ExactSearch

        ExactSearch(session, calibration_of(session), wishes.gap, wishes.runs).run()

    return search


def model(wishes: Wishes) -> Search:
    """Plan with kernel times learned from the database."""
    if wishes.options:
        raise AutofuseError(f"strategy 'model' has no option '{next(iter(wishes.options))}'")
    library()

    def search(session: Session) -> None:
        from autofuse.tuning.model import ModelSearch

        history = session.store.kernel_history(session.environment)
        lessons = lessons_of(history, session.evaluator.sampling.cache)
        calibration = calibration_of(session)
        ModelSearch(session, calibration, wishes.gap, wishes.runs, lessons).run()

    return search


def sampling(wishes: Wishes) -> Search:
    """Sample whole candidates with an ask/tell searcher."""
    make_searcher(wishes.name, wishes.seed, wishes.options)

    def search(session: Session) -> None:
        problem = FusionProblem(session.graph, session.device.space, session.plans)

        def evaluate(proposal: Proposal) -> Outcome:
            assert isinstance(proposal.payload, Candidate)
            if not session.fits(proposal.payload.plan):
                return Outcome(None, 1.0)
            return outcome_of(session.measure(proposal.payload))

        def on_step(step: Step) -> None:
            session.trials += 1
            session.sampler_s += step.sampler_s
            session.tell("search")

        known = {key: outcome_of(record) for key, record in session.known.items()}
        searcher = make_searcher(wishes.name, wishes.seed, wishes.options)
        run(searcher, problem, evaluate, time.perf_counter, session.is_over, known, on_step=on_step)

    return search


PLANNERS: dict[str, Callable[[Wishes], Search]] = {"exact": exact, "model": model}


def make_search(
    name: str, seed: int, gap: float, runs: float | None, options: Mapping[str, str]
) -> Search:
    """The search called `name`; raises AutofuseError listing the known ones."""
    known = sorted({*PLANNERS, *SEARCHERS})
    if name not in known:
        raise AutofuseError(f"unknown strategy '{name}' (known: {', '.join(known)})")
    return PLANNERS.get(name, sampling)(Wishes(name, seed, gap, runs, options))


def outcome_of(record: Measurement) -> Outcome:
    """What a searcher is told of a record."""
    if record.timing is None:
        return Outcome(None, 1.0)
    return Outcome(record.timing.median_us)


def calibration_of(session: Session) -> Calibration:
    """The device's peaks: measured once, then kept in the database."""
    stored = session.store.calibration(session.environment)
    if "launch_us" in stored:
        return Calibration.from_mapping(stored)
    measured = session.device.calibrate()
    for name, value in measured.to_mapping().items():
        session.store.set_calibration(session.environment, name, value)
    return measured
