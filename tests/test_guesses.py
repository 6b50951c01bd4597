"""Plans that are guessed: within a few percent of the least, mostly without a solver."""

from __future__ import annotations

import pytest

from autofuse.cover import CoverProblem, Piece, k_best, program
from autofuse.cover.program import ROUGHLY
from tests.support.exact_problems import least_cost, random_sample, runnable

CLOSE = 1e-6


def piece(key: str, reads: str, writes: str, bound_us: float) -> Piece:
    return Piece(key, frozenset(reads), frozenset(writes), bound_us)


# a -> b -> c by three kernels, or a and b by one that takes as long as both and more.
CHAIN = CoverProblem(
    (
        piece("one", "", "a", 4.0), piece("two", "a", "b", 4.0), piece("three", "b", "c", 4.0),
        piece("both", "", "b", 9.0),
    ),
    frozenset("c"),
    frozenset(),
)  # fmt: skip


def test_a_guess_is_a_plan_that_is_hardly_worse_than_the_least() -> None:
    for seed in range(25):
        sample = random_sample(seed, nodes=10)
        least = least_cost(sample.problem, sample.costs)
        (guess,) = k_best(sample.problem, sample.costs, guess=True)
        assert runnable(sample.problem, guess.plan)
        assert least * (1 - CLOSE) <= guess.cost_us <= least * (1 + ROUGHLY) * (1 + CLOSE)


def test_no_solver_is_asked_for_a_guess_that_the_relaxation_leads_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def asked(*given: object) -> None:
        raise AssertionError("a solver was asked")

    monkeypatch.setattr(program, "solve_integer", asked)
    (guess,) = k_best(CHAIN, guess=True)
    assert guess.cost_us == pytest.approx(12.0)
