"""What the planner knows: costs by key, and an incumbent and a bound for each part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from autofuse.cover.order import run_order
from autofuse.cover.prepared import Prepared
from autofuse.cover.presolve import Presolved
from autofuse.cover.program import TOLERANCE, CoverProgram, Mask, Relaxed
from autofuse.cover.protocol import LeftS, Measured, no_limit
from autofuse.cover.rows import Floats

# A cost this far below its bound is noise, not a wrong bound.
NOISE = 1e-6
# Incumbent and bound count as equal when this close: HiGHS's own tolerances are about 1e-7.
CLOSE = 1e-6


class Costs:
    """Costs by key number, optimistic until measured.

    A cost measured below its bound proves the model of bounds too proud, not just one bound: the
    most that any bound was found too high by lowers all bounds of keys not measured yet (`safety`).
    """

    def __init__(self, bounds: Floats) -> None:
        self._bounds = bounds
        self._measured = np.full(len(bounds), np.nan)
        self.known: Mask = np.zeros(len(bounds), dtype=bool)
        self.failed: Mask = np.zeros(len(bounds), dtype=bool)
        self.safety = 1.0
        self.violations = 0

    def take(self, key: int, measured: Measured) -> bool:
        """Note a measurement; whether the bounds of other keys fell."""
        self.known[key] = True
        if measured.cost_us is None:
            self.failed[key] = True
            return False
        self._measured[key] = measured.cost_us
        if measured.cost_us >= self._bounds[key] * (1 - NOISE):
            return False
        self.violations += 1
        ratio = measured.cost_us / float(self._bounds[key])
        fell = ratio < self.safety
        self.safety = min(self.safety, ratio)
        return fell

    def current(self) -> Floats:
        """Microseconds; those of failed keys mean nothing."""
        ok = self.known & ~self.failed
        return np.where(ok, self._measured, self._bounds * self.safety)


class PartState:
    """One part's program with its incumbent (measured pieces only) and its bound, in us."""

    def __init__(self, program: CoverProgram, copies: tuple[tuple[int, ...], ...]) -> None:
        self.program = program
        self.keys = np.array(program.part.keys, dtype=np.int64)
        self.copies = copies
        self.bound = 0.0
        self.incumbent: float | None = None
        self.plan: tuple[int, ...] = ()
        self.fixed: Mask = np.zeros(program.size, dtype=bool)
        # What dual ascent said before the first relaxation, and the last relaxation.
        self.opened: Relaxed | None = None
        self.relaxed: Relaxed | None = None
        self.solved = False
        self.wanted: dict[int, float] = {}

    def reopen(self) -> None:
        """Forget every conclusion drawn from bounds that turned out too high."""
        self.bound, self.solved, self.relaxed, self.opened = 0.0, False, None, None
        self.fixed[:] = False

    def touched(self, keys: Mask) -> bool:
        return bool(np.any(keys[self.keys] & ~self.fixed))

    def offer(self, plan: Iterable[int], costs: Costs) -> None:
        """Take `plan` as the incumbent if it is realisable, measured and better."""
        part, pieces = self.program.part, sorted(set(plan))
        keys = self.keys[pieces]
        if not np.all(costs.known[keys] & ~costs.failed[keys]):
            return
        run = run_order(part.reads, part.writes, pieces)
        if not all(v in run.available for v, forced in enumerate(part.forced) if forced):
            return
        cost = float(costs.current()[self.keys[list(run.order)]].sum())
        if self.incumbent is None or cost < self.incumbent:
            self.incumbent, self.plan = cost, run.order

    def improve(self, costs: Costs, left_s: LeftS = no_limit) -> None:
        """The incumbent becomes the best plan of measured pieces."""
        ok = (costs.known & ~costs.failed)[self.keys] & ~self.fixed
        part = self.program.part
        run = run_order(part.reads, part.writes, np.flatnonzero(ok).tolist())
        if all(v in run.available for v, forced in enumerate(part.forced) if forced):
            solved = self.program.solve(costs.current()[self.keys], ok, left_s=left_s)
            if solved is not None:
                self.offer(solved.plan, costs)

    def tighten(self, costs: Costs, left_s: LeftS = no_limit) -> None:
        """Solve with optimistic costs: the bound rises, pieces are fixed out, some are wanted.

        `wanted` becomes the unmeasured pieces that the optimistic optimum uses, with their share of
        its cost; none means that no plan is better than the incumbent, or that there was no time to
        say.
        """
        current = costs.current()[self.keys]
        if self.opened is None:
            self.opened = self.program.open(current)
            self.bound = max(self.bound, self.opened.bound)
        self.fix()
        out = self.fixed | costs.failed[self.keys]
        limit = np.inf if self.incumbent is None else self.incumbent
        self.relaxed = self.program.relax(current, out, limit, left_s)
        self.wanted = {}
        if self.relaxed is None:
            self._close()
            return
        self.bound = max(self.bound, self.relaxed.bound)
        self.fix()
        if self._is_closed():
            return
        self._want(costs, self.relaxed.shares, current)
        if not self.wanted:
            self._decide(costs, current, left_s)

    def first_plan(self, costs: Costs, left_s: LeftS = no_limit) -> list[int]:
        """The keys of the optimistic optimum that are not measured yet."""
        current = costs.current()[self.keys]
        solved = self.program.solve(current, ~self.fixed & ~costs.failed[self.keys], left_s=left_s)
        if solved is None:
            return []
        keys = dict.fromkeys(self.keys[list(solved.plan)].tolist())
        return [key for key in keys if not costs.known[key]]

    def _decide(self, costs: Costs, current: Floats, left_s: LeftS) -> None:
        """The relaxation rests on measured pieces alone: only whole plans can say more."""
        out = self.fixed | costs.failed[self.keys]
        solved = self.program.solve(current, ~out, left_s=left_s)
        if solved is None:
            self._close()
            return
        self.bound = max(self.bound, solved.bound)
        self.offer(solved.plan, costs)
        if self._is_closed():
            return
        shares = np.zeros(self.program.size)
        shares[list(solved.plan)] = 1.0
        self._want(costs, shares, current)

    def _want(self, costs: Costs, shares: Floats, current: Floats) -> None:
        for p in np.flatnonzero((shares > 1e-6) & ~costs.known[self.keys] & ~self.fixed).tolist():
            key = int(self.keys[p])
            share = float(shares[p] * current[p]) * len(self.copies)
            self.wanted[key] = self.wanted.get(key, 0.0) + share

    def fix(self) -> None:
        """Fix out for good what no better plan than the incumbent holds.

        A plan with piece p costs at least bound + reduced[p] by today's costs. Costs only rise,
        from bound to measured, and the incumbent only falls; so what is above it stays above.
        (Where a bound proves too high, `reopen` takes all of this back.)
        """
        if self.incumbent is None:
            return
        limit = self.incumbent * (1 - TOLERANCE)
        for known in (self.opened, self.relaxed):
            if known is not None:
                self.fixed |= known.bound + known.reduced >= limit

    def _is_closed(self) -> bool:
        if self.incumbent is not None and self.bound >= self.incumbent * (1 - CLOSE):
            self._close()
        return self.solved

    def _close(self) -> None:
        """No plan is better than the incumbent (or there is none at all)."""
        self.solved = True
        self.wanted = {}
        if self.incumbent is not None:
            self.bound = self.incumbent


def part_states(prepared: Prepared) -> list[PartState]:
    copies = prepared.presolved.copies
    return [PartState(*one) for one in zip(prepared.programs, copies, strict=True)]


def known_costs(presolved: Presolved, known: Mapping[str, Measured]) -> Costs:
    costs = Costs(presolved.bounds)
    for number, key in enumerate(presolved.keys):
        if key in known:
            costs.take(number, known[key])
    return costs
