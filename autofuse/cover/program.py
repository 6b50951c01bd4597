"""One part of a problem as a 0/1 program, its linear relaxation kept warm and cut lazily.

Columns: x[p], whether piece p is chosen, then y[v] for each value that may or may not be written.
Rows, all `>=`: the writers of v outnumber y[v] (or 1, where v is forced); y[v] outnumbers the
pieces that read v and write the same values W: of two pieces that write the same, the later one of
a plan is useless, so at most one of them is chosen, and one row holds them all. Rows that forbid
values to wait for each other come as they are needed (see cuts.py); without them the relaxation is
worth little (on a random graph of 100 operations it bounds 835 us by 339 us, with them by 831 us),
and with them the 0/1 program that is left after fixing by reduced cost is small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autofuse.cover.ascent import opening
from autofuse.cover.cuts import broken_cuts
from autofuse.cover.highs import OutOfTimeError, Relaxation, solve_integer
from autofuse.cover.order import cheap_plan, run_order, waiting_values
from autofuse.cover.presolve import Part
from autofuse.cover.protocol import LeftS, no_limit
from autofuse.cover.rows import Floats, Row, Rows

# Further than HiGHS's own tolerance (1e-6) from a whole number.
FRACTIONAL = 1e-5
# Rounds of cuts end when the last few moved the bound by less than this part of it.
STALL_ROUNDS, STALL = 6, 2e-4
MAX_ROUNDS = 300
# A plan must be better by this part to be looked for.
TOLERANCE = 1e-9
# Of costs that are expectations, a rough plan need not be nearer to the least.
ROUGHLY = 0.03
# Pieces in the first, small 0/1 program, for each piece in the relaxation's solution.
NEAR = 3
# What a piece costs a plan that the relaxation leads to, beside its reduced cost.
LED = 0.1
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The linear relaxation: `bound` on every plan, and `reduced` cost of each piece (>= 0).

    Every plan with piece p costs at least bound + reduced[p], whatever HiGHS's tolerances.
    `plan`: the solution, where it is a plan.
    """

    bound: float
    shares: Floats
    reduced: Floats
    plan: tuple[int, ...] | None


@dataclass(frozen=True, slots=True)
class Solved:
    """A plan in an order it can run in, what it costs, a bound on what any costs, and whether it
    was proved to be a least one in the time there was."""

    plan: tuple[int, ...]
    cost: float
    bound: float
    proved: bool = True


class CoverProgram:
    """The program of one part. Costs are per piece, finite and >= 0."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.size = len(part.keys)
        self._writers: list[list[int]] = [[] for _ in part.forced]
        self._readers: list[list[int]] = [[] for _ in part.forced]
        for p in range(self.size):
            for v in part.writes[p]:
                self._writers[v].append(p)
            for v in part.reads[p]:
                self._readers[v].append(p)
        free = [v for v, forced in enumerate(part.forced) if not forced and self._readers[v]]
        self._y = {v: self.size + i for i, v in enumerate(free)}
        self._columns = self.size + len(free)
        self._rows = self._cover_rows()
        # Thousands of rows of which few ever matter: the relaxation takes in those it breaks.
        self._use_rows = self._make_use_rows()
        self._uses = Rows.of(self._use_rows, self._columns)
        self._used: Mask = np.zeros(len(self._use_rows), dtype=bool)
        # Rows a 0/1 program is given: of the cuts only those that a relaxation leaned on.
        self._active = np.ones(len(self._rows), dtype=bool)
        self._packed = Rows.of(self._rows, self._columns)
        self._relaxation: Relaxation | None = None
        self._is_open = False

    def _produced(self, writers: Sequence[int], v: int) -> Row | None:
        """At least one of `writers` where v is forced, at least y[v] of them where it is not."""
        ones = (1.0,) * len(writers)
        if self.part.forced[v]:
            return Row(tuple(writers), ones, 1.0)
        if v in self._y:
            return Row((*writers, self._y[v]), (*ones, -1.0), 0.0)
        return None

    def _cover_rows(self) -> list[Row]:
        rows = (self._produced(writers, v) for v, writers in enumerate(self._writers))
        return [row for row in rows if row is not None]

    def _make_use_rows(self) -> list[Row]:
        rows = []
        for v, y in self._y.items():
            same: dict[tuple[int, ...], list[int]] = {}
            for p in self._readers[v]:
                same.setdefault(self.part.writes[p], []).append(p)
            rows += [Row((y, *ps), (1.0, *(-1.0,) * len(ps)), 0.0) for ps in same.values()]
        return rows

    def _add(self, rows: list[Row], active: bool = True) -> None:
        self._rows += rows
        self._active = np.concatenate([self._active, np.full(len(rows), active)])
        more = Rows.of(rows, self._columns)
        self._packed = self._packed.with_more(more)
        if self._relaxation is not None:
            self._relaxation.add(more)

    def _cut(self, values: frozenset[int], of: Iterable[int]) -> list[Row]:
        """Of `values`, the first to be written comes from a piece that reads none of them.

        A row for each v in `of`; true of every plan, so these rows stay for good.
        """
        writers = sorted({p for v in values for p in self._writers[v]})
        first = [p for p in writers if values.isdisjoint(self.part.reads[p])]
        rows = (self._produced(first, v) for v in of)
        return [row for row in rows if row is not None]

    def open(self, costs: Floats) -> Relaxed:
        """What dual ascent says at these costs, before anything is solved; its cuts are the first
        that a relaxation has."""
        part = self.part
        found = opening(part.reads, part.writes, costs.tolist(), part.forced)
        if not self._is_open:
            self._is_open = True
            self._add([Row(cut, (1.0,) * len(cut), 1.0) for cut in found.cuts])
        return Relaxed(found.bound, np.zeros(self.size), np.array(found.left), None)

    def _order(self, chosen: Sequence[int]) -> tuple[int, ...] | None:
        """The chosen pieces in order; None, and the cuts that say why, where there is none."""
        run = run_order(self.part.reads, self.part.writes, chosen)
        if all(v in run.available for v, forced in enumerate(self.part.forced) if forced):
            return run.order
        for values in waiting_values(self.part.reads, self.part.writes, run):
            self._add(self._cut(values, sorted(values)))
        return None

    def _add_uses(self, x: Floats) -> bool:
        """Add the rows of reads that `x` breaks; whether there were any."""
        broken = (self._uses.dot(x) < -FRACTIONAL / 10) & ~self._used
        self._used |= broken
        if broken.any():
            self._add([self._use_rows[i] for i in np.flatnonzero(broken).tolist()], active=False)
        return bool(broken.any())

    def _separate(self, x: Floats) -> bool:
        """Add the cuts that the fractional solution `x` breaks; whether there were any."""
        shares = {int(p): float(x[p]) for p in np.flatnonzero(x[: self.size] > FRACTIONAL)}
        levels = {v: float(x[y]) for v, y in self._y.items()}
        levels |= {v: 1.0 for v, forced in enumerate(self.part.forced) if forced}
        rows: list[Row] = []
        for values in broken_cuts(self.part.reads, self.part.writes, shares, levels):
            most = max(sorted(values), key=lambda v: levels.get(v, 0.0))
            rows += self._cut(values, [most])
        if rows:
            self._add(rows)
        return bool(rows)

    def relax(
        self, costs: Floats, out: Mask, enough: float = np.inf, left_s: LeftS = no_limit
    ) -> Relaxed | None:
        """The relaxation without the pieces `out`; None where no plan is left.

        It is cut until that stops paying, the bound has reached `enough` or time is up. Where that
        is before it is solved at all, the first time dual ascent says what it can, and later
        nothing is known but that each piece costs its own.
        """
        upper = np.ones(self._columns)
        upper[: self.size] = ~out
        scale = float(costs.mean()) or 1.0
        scaled = np.zeros(self._columns)
        scaled[: self.size] = costs / scale
        bounds: list[float] = []
        last = Relaxed(0.0, np.zeros(self.size), costs, None)
        if self._relaxation is None:
            last = self.open(costs)
        relaxation = self._relaxation or Relaxation(self._packed, self._columns)
        self._relaxation = relaxation
        while True:
            try:
                answer = relaxation.solve(scaled, upper, left_s())
            except OutOfTimeError:
                return last
            if answer is None:
                return None
            x, share = answer[0], answer[0][: self.size]
            bound, reduced = self._safe(scaled, upper, answer[1])
            loose = self._add_uses(x)
            whole = not loose and _is_whole(share)
            plan = self._order(np.flatnonzero(share > 0.5).tolist()) if whole else None
            if whole and plan is None:
                continue
            bounds.append(bound)
            last = Relaxed(bound * scale, share, reduced * scale, plan)
            done = whole or last.bound >= enough or _stalled(bounds) or left_s() <= 0
            if done or not (self._separate(x) or loose):
                return last

    def _safe(self, costs: Floats, upper: Floats, duals: Floats) -> tuple[float, Floats]:
        """A bound and reduced costs that hold for any duals >= 0, so rounding cannot break them."""
        rows = self._packed
        duals = np.maximum(duals, 0.0)
        reduced = costs - rows.weighed(duals)
        bound = float(rows.lower @ duals + np.minimum(reduced, 0.0) @ upper)
        return bound, np.maximum(reduced[: self.size], 0.0)

    def solve(
        self, costs: Floats, allowed: Mask, forbidden: Sequence[Sequence[int]] = (),
        left_s: LeftS = no_limit, rough: bool = False, guess: bool = False,
    ) -> Solved | None:  # fmt: skip
        """A least plan of the `allowed` pieces that holds none of the plans `forbidden`, or where
        time is up the best that was found, or one that no solver was asked for. A `rough` one is
        what a solver finds before it begins to search, of pieces of least reduced cost, and ends
        with once it is no worse than by the fraction ROUGHLY. A `guess` is a rough one that no
        solver is asked for where the relaxation leads to one that is no worse.

        None where there is none. A small program of the pieces with least reduced cost gives a
        first plan; what the relaxation then shows to be in no better one is left out of the second.
        """
        rough = rough or guess
        relaxed = self.relax(costs, ~allowed, left_s=left_s)
        if relaxed is None:
            return None
        if relaxed.plan is not None and not forbidden:
            cost = float(costs[list(relaxed.plan)].sum())
            return Solved(relaxed.plan, cost, min(cost, relaxed.bound))
        led = self._led(costs, relaxed, allowed) if guess and not forbidden else None
        if led is not None and led.cost <= (1 + ROUGHLY) * relaxed.bound:
            return led
        best: Solved | None = None
        try:
            best, near = self._first(costs, relaxed, allowed, forbidden, left_s, rough)
            limit = np.inf if best is None else best.cost * (1 - TOLERANCE)
            rest = allowed & (relaxed.bound + relaxed.reduced < limit)
            if best is None or (np.any(rest & ~near) and not rough):
                better = self._integer(costs, rest, forbidden, left_s)
                best = _better(best, better)
        except OutOfTimeError:
            cheap = self._cheap(costs, allowed, forbidden)
            best = _better(cheap, best and replace(best, proved=False))
        if best is None:
            return None
        # Nothing outside `rest` is better than the best, so nothing at all is.
        is_least = best.proved and not rough
        bound = best.cost * (1 - TOLERANCE) if is_least else min(relaxed.bound, best.cost)
        return Solved(best.plan, best.cost, bound, is_least)

    def _led(self, costs: Floats, relaxed: Relaxed, allowed: Mask) -> Solved | None:
        """A plan of allowed pieces that the relaxation leads to, of which nothing is proved: what
        it is made of has no reduced cost."""
        part, pieces = self.part, np.flatnonzero(allowed).tolist()
        wanted = [v for v, forced in enumerate(part.forced) if forced]
        led = relaxed.reduced + LED * costs
        plan = cheap_plan(part.reads, part.writes, led.tolist(), pieces, wanted)
        if plan is None:
            return None
        return Solved(plan, float(costs[list(plan)].sum()), relaxed.bound, proved=False)

    def _cheap(
        self, costs: Floats, allowed: Mask, forbidden: Sequence[Sequence[int]]
    ) -> Solved | None:
        """A plan of allowed pieces, none of the forbidden ones, of which nothing is proved."""
        part, pieces = self.part, np.flatnonzero(allowed).tolist()
        wanted = [v for v, forced in enumerate(part.forced) if forced]
        plan = cheap_plan(part.reads, part.writes, costs.tolist(), pieces, wanted)
        if plan is None or any(set(one) <= set(plan) for one in forbidden):
            return None
        return Solved(plan, float(costs[list(plan)].sum()), 0.0, proved=False)

    def _first(
        self, costs: Floats, relaxed: Relaxed, allowed: Mask, forbidden: Sequence[Sequence[int]],
        left_s: LeftS, rough: bool,
    ) -> tuple[Solved | None, Mask]:  # fmt: skip
        """A least plan of some allowed pieces of least reduced cost, of more until there is one."""
        rank = np.argsort(np.where(allowed, relaxed.reduced, np.inf), kind="stable")
        total = int(allowed.sum())
        count = NEAR * int(np.count_nonzero(relaxed.shares > FRACTIONAL)) + 20
        while True:
            near = np.zeros(self.size, dtype=bool)
            near[rank[: min(count, total)]] = True
            best = self._integer(costs, near, forbidden, left_s, rough)
            if best is not None or count >= total:
                return best, near
            count *= 3

    def _integer(
        self, costs: Floats, allowed: Mask, forbidden: Sequence[Sequence[int]], left_s: LeftS,
        rough: bool = False,
    ) -> Solved | None:  # fmt: skip
        kept = np.concatenate([np.flatnonzero(allowed), np.arange(self.size, self._columns)])
        chosen = np.zeros(self._columns, dtype=bool)
        chosen[: self.size] = allowed
        integers = int(allowed.sum())
        scale = (float(costs[allowed].mean()) if integers else 0.0) or 1.0
        scaled = np.zeros(len(kept))
        scaled[:integers] = costs[allowed] / scale
        bans = [Row(tuple(plan), (-1.0,) * len(plan), 1.0 - len(plan)) for plan in forbidden]
        while True:
            active = [row for row, on in zip(self._rows, self._active, strict=True) if on]
            some = np.flatnonzero(self._uses.counts(chosen))
            uses = [self._use_rows[i] for i in some.tolist()]
            rows = Rows.of(active + uses + bans, self._columns)
            rows = rows.narrowed(kept)
            nodes, gap = (1, ROUGHLY) if rough else (None, 0.0)
            answer = solve_integer(rows, scaled, integers, left_s(), nodes, gap)
            if answer is None:
                return None
            plan = self._order(kept[:integers][answer.x[:integers] > 0.5].tolist())
            if plan is not None:
                cost = float(costs[list(plan)].sum())
                return Solved(plan, cost, answer.bound * scale, answer.proved)


def _better(one: Solved | None, other: Solved | None) -> Solved | None:
    """The cheaper of two plans, proved when both are."""
    if one is None or other is None:
        return one or other
    best = min(one, other, key=lambda s: s.cost)
    return replace(best, proved=one.proved and other.proved)


def _is_whole(x: Floats) -> bool:
    return bool(np.all(np.minimum(np.abs(x), np.abs(1 - x)) < FRACTIONAL))


def _stalled(bounds: list[float]) -> bool:
    if len(bounds) <= STALL_ROUNDS:
        return False
    return len(bounds) > MAX_ROUNDS or bounds[-1] - bounds[-1 - STALL_ROUNDS] < STALL * abs(
        bounds[-1]
    )
