"""Selections: plans chosen by set cover from candidate kernels, as far as these have times.

A kernel is timed inside a plan that uses it, so in the cache state it will meet, and every plan is
checked whole against the reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autofuse.cover import Piece, Prepared, k_best
from autofuse.ops.types import AutofuseError
from autofuse.plan.fusion.groups import ordered_plan
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.tuning.budget import solving
from autofuse.tuning.search.cover import Cover
from autofuse.tuning.search.profiling import Kernels

# Far below any real cost: a piece this cheap is in the least plan if it can be in any.
ALMOST_FREE = 1e-6
# Microseconds far above any real cost: a piece this dear is only in plans that need it.
DEAR = 1e9
# How many of the best plans are looked at for one that fits the memory.
LOOKED_AT = (4, 16, 64)

KernelCosts = dict[str, float | None]


class Selection:
    """A set-cover problem and what is known of its pieces; `rest` are groups that stay in the plan
    whatever is chosen (those outside a window). Raises AutofuseError where the pieces make no
    plan."""

    def __init__(self, kernels: Kernels, cover: Cover, rest: tuple[FusionGroup, ...] = ()) -> None:
        self.kernels, self.cover, self.rest = kernels, cover, rest
        self.bench = kernels.bench
        # For guesses, which change many costs at a time. Planning takes programs of its own: cuts
        # that other costs asked for would be in the way of its proof (a network of 253 nodes had
        # no bound after 20 s).
        self.prepared = Prepared(cover.problem)

    def plan_of(self, chosen: Iterable[int]) -> FusionPlan:
        """The plan of chosen pieces and the rest."""
        groups = dict.fromkeys((*self.rest, *self.cover.groups(chosen)))
        return ordered_plan(self.bench.graph, groups)

    def least(
        self, costs: Mapping[str, float | None], guess: bool = False
    ) -> tuple[int, ...] | None:
        """The least plan by given costs (bounds where there are none), or nearly; None where there
        is none, or none was found in time."""
        left_s = solving(self.bench.left_s).left_s
        try:
            found = k_best(self.prepared, costs, 1, left_s, guess=guess)
        except AutofuseError:  # the pieces that are left make no plan
            return None
        return found[0].plan if found else None

    def unknown(self, chosen: Iterable[int]) -> set[str]:
        """Keys of chosen pieces of which nothing is known."""
        known = self.kernels.known()
        return {k for k in (self.cover.problem.pieces[p].key for p in chosen) if k not in known}

    def fitting(self, chosen: Sequence[int]) -> FusionPlan | None:
        """The plan if it fits the memory, else the best of those looked at that does, else the one
        that keeps least in memory; None where that does not fit or does not work."""
        found = self.plan_of(chosen)
        if self.bench.fits(found):
            return found
        seen = 0
        for count in LOOKED_AT:
            left_s = solving(self.bench.left_s).left_s
            ranked = k_best(self.prepared, self.kernels.costs(), count, left_s)
            for one in ranked[seen:]:
                found = self.plan_of(one.plan)
                if self.bench.fits(found) and self.kernels.is_timed(found):
                    return found
            seen = len(ranked)
        found = self.plan_of(self.cover.lightest())
        return found if self.bench.fits(found) and self.kernels.is_timed(found) else None

    def prepare(self, batch: Sequence[Piece]) -> None:
        """Measure kernels in as few plans as hold them all."""
        todo = {piece.key for piece in batch}
        while not self.bench.is_over():
            self.kernels.hear()
            todo -= set(self.kernels.known())
            if not todo:
                return
            chosen = self._holding(todo)
            if chosen is None:
                self.kernels.give_up(todo)  # in no plan at any price: nothing can be said here
                return
            self.measure(chosen, self.unknown(chosen))

    def _holding(self, todo: set[str]) -> tuple[int, ...] | None:
        """A plan that holds some kernels of `todo`, as many as a guess does, or None where the
        least one by costs that ask for them holds none."""
        costs = self.kernels.costs() | dict.fromkeys(todo, ALMOST_FREE)
        for guess in (True, False):
            chosen = self.least(costs, guess)
            if chosen is not None and self.unknown(chosen) & todo:
                return chosen
        return None

    def measure_some(self, plans: Sequence[Sequence[int]]) -> int:
        """Run those of some plans, by their pieces, of which kernels are unknown and for which
        there is time; how many. They are built side by side: to choose one costs as much as to run
        it."""
        todo = self._in_time([chosen for chosen in plans if self.unknown(chosen)])
        if len(todo) > 1:
            self.kernels.build_ahead(list(map(self.plan_of, todo)))
        run = 0
        for chosen in todo:
            new = self.unknown(chosen)
            if new and not (run and self.bench.is_over()):
                self.measure(chosen, new)
                run += 1
        return run

    def _in_time(self, plans: Sequence[Sequence[int]]) -> Sequence[Sequence[int]]:
        """The first of some plans, and as many more as there is time to run."""
        each_s, left_s = self.kernels.per_plan_s, self.bench.left_s()
        return [one for k, one in enumerate(plans) if not k or (k + 1) * each_s <= left_s]

    def measure(self, chosen: Sequence[int], new: set[str]) -> None:
        """Run the plan of chosen pieces, of which `new` are unknown; if it fails, find out why."""
        if not self.kernels.profile(self.plan_of(chosen), {}) and len(new) > 1:
            self._find_culprits(new)

    def _find_culprits(self, suspects: set[str]) -> None:
        """A plan failed and several kernels in it were new: try each among kernels that work."""
        for key in sorted(suspects):
            if self.bench.is_over() or key in self.kernels.known():
                continue
            costs: KernelCosts = dict.fromkeys(self.kernels.bounds, DEAR)
            costs |= dict.fromkeys(suspects)
            costs |= self.kernels.costs() | {key: ALMOST_FREE}
            chosen = self.least(costs)
            if chosen is not None:
                self.kernels.profile(self.plan_of(chosen), {})
            if key not in self.kernels.known():
                self.kernels.give_up([key])
