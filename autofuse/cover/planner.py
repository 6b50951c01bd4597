"""The exact planner: optimistic until measured, and at any time it says how far it can be off.

An unmeasured piece costs its lower bound, so the optimum by these costs is below any plan's true
cost. Measure what that optimum is made of, and solve again; when it is made of measured pieces only
it is the best plan there is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from autofuse.cover.budget import worth_measuring
from autofuse.cover.order import run_order
from autofuse.cover.prepared import Prepared
from autofuse.cover.protocol import (
    CoverProblem,
    LeftS,
    Measure,
    Measured,
    Piece,
    Plan,
    Seconds,
    no_limit,
)
from autofuse.cover.state import Costs, PartState, known_costs, part_states
from autofuse.errors import AutofuseError


@dataclass(frozen=True, slots=True)
class PlanningStep:
    """Where the search stands: the least measured plan, and what no plan can be below.

    `incumbent_us` is None until a plan is measured; `gap` = 1 - bound / incumbent, 1 without one.
    `measured` counts measurements made here, `fixed_out` pieces that no better plan can hold.
    """

    incumbent_us: float | None
    bound_us: float
    gap: float
    measured: int
    fixed_out: int
    spent_s: float


@dataclass(frozen=True, slots=True)
class PlanResult:
    """How planning ended; costs in microseconds.

    `plan` is None where no plan could be measured. `stopped` is "optimal", "gap", "stop"
    (should_stop said so), "runs" (measuring no longer pays) or "infeasible" (the pieces that are
    left make no plan). `costs`: measured costs by key, None for failures. `bound_violations`: keys
    that cost less than their bound; `safety`: the factor all other bounds were lowered by for it.
    """

    plan: Plan | None
    incumbent_us: float | None
    bound_us: float
    gap: float
    measured: int
    failed: int
    fixed_out: int
    spent_s: float
    stopped: str
    costs: Mapping[str, float | None]
    bound_violations: int
    safety: float


@dataclass(frozen=True, slots=True)
class Options:
    """`gap`: stop there. `batch`: measurements between two solves. `fill`: fill a batch up with
    pieces that the optimum does not use, by reduced cost. `runs`: see budget.py; `seconds`: what a
    measurement will take, else the mean of those made so far is taken for it. Raises AutofuseError
    for a number out of range."""

    gap: float = 0.0
    batch: int = 4
    fill: bool = False
    runs: float | None = None
    seconds: Seconds | None = None

    def __post_init__(self) -> None:
        if not self.gap >= 0:
            raise AutofuseError(f"the gap to stop at must be >= 0, not {self.gap}")
        if self.batch < 1:
            raise AutofuseError(f"a batch needs at least 1 measurement, not {self.batch}")
        if self.runs is not None and not self.runs >= 0:
            raise AutofuseError(f"the number of runs must be >= 0, not {self.runs}")


def plan(
    problem: CoverProblem,
    measure: Measure,
    *,
    options: Options = Options(),
    start: Sequence[Sequence[int]] = (),
    known: Mapping[str, Measured] | None = None,
    prepare: Callable[[Sequence[Piece]], None] = lambda pieces: None,
    should_stop: Callable[[], bool] = lambda: False,
    left_s: LeftS = no_limit,
    on_step: Callable[[PlanningStep], None] = lambda step: None,
) -> PlanResult:
    """The best plan of `problem`, measuring as few pieces as proving it takes.

    `start`: plans (piece indices) to measure first. `known`: measurements made before, by key.
    `prepare` is told of each batch before it is measured one by one. `should_stop` is asked before
    each measurement, `left_s` for the seconds that solving may take before the next one: what was
    not proved by then stays open. Raises AutofuseError where the pieces make no plan at all.
    """
    planner = _Planner(Prepared(problem), measure, known or {}, options)
    planner.prepare, planner.should_stop, planner.on_step = prepare, should_stop, on_step
    planner.left_s = left_s
    return planner.run(start)


class _Planner:
    def __init__(
        self,
        prepared: Prepared,
        measure: Measure,
        known: Mapping[str, Measured],
        options: Options,
    ) -> None:
        self.presolved, self.problem = prepared.presolved, prepared.problem
        self.measure, self.options = measure, options
        self.costs: Costs = known_costs(prepared.presolved, known)
        self.parts: list[PartState] = part_states(prepared)
        self.prepare: Callable[[Sequence[Piece]], None]
        self.should_stop: Callable[[], bool]
        self.on_step: Callable[[PlanningStep], None]
        self.left_s: LeftS
        self.measured = 0
        self.spent_s = 0.0

    def run(self, start: Sequence[Sequence[int]]) -> PlanResult:
        self._solve(self.parts)
        for pieces in start:
            if not self._measure_all(self._unmeasured(pieces)):
                return self._result("stop")
            self._offer(pieces)
        self._solve(self.parts)
        if not self._first_plan():
            return self._result("stop")
        while True:
            self.on_step(self._step())
            stopped = self._stopped()
            if stopped is not None:
                return self._result(stopped)
            batch = self._batch()
            if not batch:  # solving was cut short: nothing says what to measure next
                return self._result("stop")
            step = self._step()
            seconds = [self._seconds(key) for key in batch]
            if not worth_measuring(step.incumbent_us, step.bound_us, self.options.runs, seconds):
                return self._result("runs")
            if not self._measure(batch):
                return self._result("stop")

    def _first_plan(self) -> bool:
        """Measure one plan to the end, so that there soon is something to use and to compare with.

        Left to the bounds alone, each measurement would turn the search to another plan that looks
        better for being unknown. False where should_stop ended it.
        """
        while True:
            bare = [part for part in self.parts if part.incumbent is None and not part.solved]
            keys = {key: None for part in bare for key in part.first_plan(self.costs, self.left_s)}
            if not keys:
                return True
            if not self._measure_all([key for key in keys if not self.costs.known[key]]):
                return False

    def _measure_all(self, keys: Sequence[int]) -> bool:
        for i in range(0, len(keys), self.options.batch):
            self.on_step(self._step())
            if not self._measure(keys[i : i + self.options.batch]):
                return False
        return True

    def _stopped(self) -> str | None:
        if all(part.solved for part in self.parts):
            feasible = all(part.incumbent is not None for part in self.parts)
            return "optimal" if feasible else "infeasible"
        if any(part.solved and part.incumbent is None for part in self.parts):
            return "infeasible"
        if self._step().gap <= self.options.gap:
            return "gap"
        return "stop" if self.should_stop() else None

    def _seconds(self, key: int) -> float:
        if self.options.seconds is not None:
            return self.options.seconds(self._piece(key))
        return self.spent_s / self.measured if self.measured else 0.0

    def _piece(self, key: int) -> Piece:
        return self.problem.pieces[self.presolved.samples[key]]

    def _unmeasured(self, pieces: Sequence[int]) -> list[int]:
        number = {key: i for i, key in enumerate(self.presolved.keys)}
        keys = dict.fromkeys(number[self.problem.pieces[p].key] for p in pieces)
        return [key for key in keys if not self.costs.known[key]]

    def _batch(self) -> list[int]:
        """Keys the optimistic optimum uses, the largest share of its cost first."""
        wanted: dict[int, float] = {}
        for part in self.parts:
            for key, share in part.wanted.items():
                wanted[key] = wanted.get(key, 0.0) + share
        batch = sorted(wanted, key=lambda key: (-wanted[key], key))[: self.options.batch]
        room = self.options.batch - len(batch)
        return batch + (self._next_best(wanted, room) if self.options.fill and room else [])

    def _next_best(self, wanted: Mapping[int, float], room: int) -> list[int]:
        best: dict[int, float] = {}
        for part in self.parts:
            if part.solved or part.relaxed is None:
                continue
            for p in np.flatnonzero(~part.fixed & ~self.costs.known[part.keys]).tolist():
                key, reduced = int(part.keys[p]), float(part.relaxed.reduced[p])
                if key not in wanted:
                    best[key] = min(best.get(key, reduced), reduced)
        return sorted(best, key=lambda key: (best[key], key))[:room]

    def _measure(self, keys: Sequence[int]) -> bool:
        """Measure and solve again; False where should_stop ended it early."""
        fresh = np.zeros(len(self.presolved.keys), dtype=bool)
        fell = stopped = False
        if keys:
            self.prepare([self._piece(key) for key in keys])
        for key in keys:
            stopped = self.should_stop()
            if stopped:
                break
            measured = self.measure(self._piece(key))
            fell |= self.costs.take(key, measured)
            fresh[key] = True
            self.measured += 1
            self.spent_s += measured.seconds
        if fell:
            for part in self.parts:
                part.reopen()
        self._solve([part for part in self.parts if fell or part.touched(fresh)])
        return not stopped

    def _solve(self, parts: Sequence[PartState]) -> None:
        """Solve again the parts whose costs changed; the others stand."""
        for part in parts:
            if not part.solved:
                part.improve(self.costs, self.left_s)
                part.tighten(self.costs, self.left_s)

    def _offer(self, pieces: Sequence[int]) -> None:
        chosen = set(pieces)
        for part in self.parts:
            for copy in part.copies:
                part.offer((i for i, p in enumerate(copy) if p in chosen), self.costs)
            part.fix()

    def _step(self) -> PlanningStep:
        incumbent: float | None = 0.0
        bound = 0.0
        fixed = 0
        for part in self.parts:
            copies = len(part.copies)
            # What is measured is the truth: a bound above it would be no bound.
            low = part.bound if part.incumbent is None else min(part.bound, part.incumbent)
            bound += copies * low
            fixed += copies * int(part.fixed.sum())
            if part.incumbent is None:
                incumbent = None
            elif incumbent is not None:
                incumbent += copies * part.incumbent
        gap = 1.0 if incumbent is None else 1 - bound / incumbent if incumbent > 0 else 0.0
        return PlanningStep(incumbent, bound, max(0.0, gap), self.measured, fixed, self.spent_s)

    def _plan(self) -> Plan | None:
        if any(part.incumbent is None for part in self.parts):
            return None
        chosen = [copy[p] for part in self.parts for copy in part.copies for p in part.plan]
        return run_order(self.presolved.reads, self.presolved.writes, chosen).order

    def _result(self, stopped: str) -> PlanResult:
        step, costs = self._step(), self.costs
        current = costs.current()
        known = {
            key: None if costs.failed[i] else float(current[i])
            for i, key in enumerate(self.presolved.keys)
            if costs.known[i]
        }
        return PlanResult(
            plan=self._plan(),
            incumbent_us=step.incumbent_us,
            bound_us=step.bound_us,
            gap=step.gap,
            measured=step.measured,
            failed=int(costs.failed.sum()),
            fixed_out=step.fixed_out,
            spent_s=step.spent_s,
            stopped=stopped,
            costs=known,
            bound_violations=costs.violations,
            safety=costs.safety,
        )
