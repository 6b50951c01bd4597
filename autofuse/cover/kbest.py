"""The best plans by given costs: one, or the k best of those that hold no useless piece."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from autofuse.cover.order import run_order
from autofuse.cover.prepared import Prepared
from autofuse.cover.presolve import Presolved
from autofuse.cover.program import Solved
from autofuse.cover.protocol import CoverProblem, LeftS, Plan, no_limit


@dataclass(frozen=True, slots=True)
class Ranked:
    """A plan and the sum of its costs, microseconds."""

    plan: Plan
    cost_us: float


def k_best(
    problem: CoverProblem | Prepared, costs: Mapping[str, float | None] | None = None,
    k: int = 1, left_s: LeftS = no_limit, rough: bool = False, guess: bool = False,
) -> tuple[Ranked, ...]:  # fmt: skip
    """The k least plans, best first; fewer where there are no more. `rough` ones are found soon,
    and perhaps are not the least; a `guess` is one that is found sooner still.

    `costs`: by key, in place of the bound; None means the piece cannot be used. A plan that holds
    all of another one is no plan of its own here. When `left_s` says that no time is left they are
    plans, perhaps fewer and perhaps not the least. Raises AutofuseError where no plan exists.
    """
    prepared = problem if isinstance(problem, Prepared) else Prepared(problem)
    presolved = prepared.presolved
    given = costs or {}
    current = presolved.bounds.copy()
    out = np.zeros(len(current), dtype=bool)
    for i, key in enumerate(presolved.keys):
        cost = given.get(key, current[i])
        out[i] = cost is None
        current[i] = 0.0 if cost is None else cost
    sums: list[tuple[float, Plan]] = [(0.0, ())]
    for program, copies in zip(prepared.programs, presolved.copies, strict=True):
        keys = np.array(program.part.keys, dtype=np.int64)
        solve = partial(program.solve, left_s=left_s, rough=rough, guess=guess)
        plans = _part_plans(solve, current[keys], ~out[keys], k)
        for copy in copies:
            sums = _merge(sums, [(s.cost, tuple(copy[p] for p in s.plan)) for s in plans], k)
    return tuple(Ranked(_ordered(presolved, plan), cost) for cost, plan in sums)


def _part_plans(
    solve: Callable[..., Solved | None],
    costs: NDArray[np.float64],
    allowed: NDArray[np.bool_],
    k: int,
) -> list[Solved]:
    """The k least plans of a part, each found with all before it forbidden; `solve` is that of its
    program."""
    found: list[Solved] = []
    while len(found) < k:
        solved = solve(costs, allowed, [s.plan for s in found])
        if solved is None or not solved.plan:
            break
        found.append(solved)
    return sorted(found, key=lambda solved: solved.cost)


def _merge(
    left: list[tuple[float, Plan]], right: list[tuple[float, Plan]], k: int
) -> list[tuple[float, Plan]]:
    """The k least sums of one of each, both lists sorted."""
    pairs = ((a[0] + b[0], a[1] + b[1]) for i, a in enumerate(left) for b in right[: k // (i + 1)])
    return heapq.nsmallest(k, pairs)


def _ordered(presolved: Presolved, plan: Plan) -> Plan:
    return run_order(presolved.reads, presolved.writes, plan).order
