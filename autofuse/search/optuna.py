"""Optuna (TPE or NSGA-II) over an in-memory study; the database, not the study, is what is kept."""

from __future__ import annotations

import random
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import optuna

from autofuse.errors import AutofuseError
from autofuse.search.protocol import Choices, Option, Outcome, Problem, Proposal
from autofuse.search.space import Space, draw_new

SAMPLERS = ("tpe", "nsga2")
# What a failed trial is told: both samplers rank failures by their constraint, not by this.
PENALTY_US = 1e12
# A sampler that has converged proposes the same point for ever: after this many repeats in a row
# one uniform draw of a new key is made instead; PATIENCE such draws failing means exhausted.
REPEATS_BEFORE_ESCAPE = 8
PATIENCE = 200

_CONSTRAINT = "autofuse:severity"
# Optuna 5 takes a trial's constraint directly; 4.x asks the sampler's constraints_func for it.
_HAS_SET_CONSTRAINT = hasattr(optuna.trial.Trial, "set_constraint")


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna without its log lines and its experimental/deprecation warnings."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(verbosity)


def _make_sampler(name: str, seed: int) -> Any:
    extra: dict[str, Any] = {}
    if not _HAS_SET_CONSTRAINT:
        extra["constraints_func"] = lambda trial: (trial.user_attrs[_CONSTRAINT],)
    seed %= 2**32  # NumPy takes no other seeds
    if name == "tpe":
        # Joint over the parameters every trial has, one by one over the conditional ones: 80 ms a
        # trial with 100 + 50 of them, where group=True takes 120 and all one by one 145.
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, **extra)
    return optuna.samplers.NSGAIISampler(seed=seed, **extra)


class OptunaSearcher:
    """Seeds first, then what the sampler suggests; failures become violated constraints."""

    def __init__(self, seed: int, sampler: str = "tpe") -> None:
        self._rng = random.Random(seed)
        self._space = Space()
        self._seen: set[str] = set()
        self._repeats = 0
        self._seeds: deque[Mapping[str, Option]] | None = None
        self._pending: dict[Proposal, deque[Any]] = {}
        # NSGA-II sees only trials it was asked for (they carry a generation), so it replays.
        self._bulk = sampler == "tpe" and _HAS_SET_CONSTRAINT
        with _quiet():
            self._study = optuna.create_study(sampler=_make_sampler(sampler, seed))

    def ask(self, problem: Problem) -> Proposal | None:
        if self._seeds is None:
            self._seeds = deque(problem.seeds())
        with _quiet():
            proposal = self._next(problem, self._seeds)
        if proposal is not None:
            self._repeats = self._repeats + 1 if proposal.key in self._seen else 0
            self._seen.add(proposal.key)
        return proposal

    def _next(self, problem: Problem, seeds: deque[Mapping[str, Option]]) -> Proposal | None:
        proposal: Proposal | None
        trial: Any
        if seeds:
            proposal = self._space.propose_fixed(problem, seeds.popleft())
            trial = self._open(proposal.choices)
        elif self._repeats >= REPEATS_BEFORE_ESCAPE:
            proposal = draw_new(problem, self._space, self._rng, self._seen, PATIENCE)
            if proposal is None:
                return None
            trial = self._open(proposal.choices)
        else:
            trial = self._study.ask()
            proposal = self._space.propose(problem, trial.suggest_categorical)
        self._pending.setdefault(proposal, deque()).append(trial)
        return proposal

    def tell(self, proposal: Proposal, outcome: Outcome) -> None:
        with _quiet():
            waiting = self._pending.get(proposal)
            if waiting:
                self._close(waiting.popleft(), outcome)
            else:
                self._add(proposal.choices, outcome)
        if waiting is not None and not waiting:
            del self._pending[proposal]
        self._seen.add(proposal.key)

    def rebuild(self, problem: Problem, history: Iterable[tuple[Choices, Outcome]]) -> int:
        count = 0
        with _quiet():
            for choices, outcome in history:
                proposal = self._space.refit(problem, choices)
                if proposal is not None:
                    self._add(proposal.choices, outcome)
                    self._seen.add(proposal.key)
                    count += 1
        return count

    def _free(self, choices: Choices) -> dict[str, Option]:
        """The choices the sampler knows of: constants are none of its business."""
        return {name: option for name, option in choices if self._space.is_free(name)}

    def _open(self, choices: Choices) -> Any:
        """A running trial with these choices."""
        params = self._free(choices)
        self._study.enqueue_trial(params)
        trial = self._study.ask()
        for name in params:
            trial.suggest_categorical(name, self._space.options(name))
        return trial

    def _close(self, trial: Any, outcome: Outcome) -> None:
        if _HAS_SET_CONSTRAINT:
            trial.set_constraint(_CONSTRAINT, outcome.severity)
        else:
            trial.set_user_attr(_CONSTRAINT, outcome.severity)
        self._study.tell(trial, _told(outcome))

    def _add(self, choices: Choices, outcome: Outcome) -> None:
        """A finished trial that this study was not asked for."""
        if not self._bulk:
            self._close(self._open(choices), outcome)
            return
        params = self._free(choices)
        kind = optuna.distributions.CategoricalDistribution
        self._study.add_trial(
            optuna.trial.create_trial(
                value=_told(outcome),
                params=params,
                distributions={name: kind(self._space.options(name)) for name in params},
                constraints={_CONSTRAINT: outcome.severity},
            )
        )


def _told(outcome: Outcome) -> float:
    return PENALTY_US if outcome.value is None else outcome.value


def create(seed: int, options: Mapping[str, str]) -> OptunaSearcher:
    """The 'optuna' strategy; option `sampler` is tpe (the default) or nsga2.

    Raises AutofuseError for another option or sampler.
    """
    unknown = set(options) - {"sampler"}
    if unknown:
        raise AutofuseError(f"strategy 'optuna' has no option '{min(unknown)}'; it has: sampler")
    sampler = options.get("sampler", "tpe")
    if sampler not in SAMPLERS:
        raise AutofuseError(
            f"strategy 'optuna' has no sampler '{sampler}'; known: {', '.join(SAMPLERS)}"
        )
    return OptunaSearcher(seed, sampler)
