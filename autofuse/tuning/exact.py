"""The exact strategy: candidate kernels, a 0/1 program over them, and plans that measure kernels.

A kernel is timed inside a plan that uses it, so in the cache state it will meet, and every plan is
checked whole against the reference. Costs are optimistic until measured; what the least plan by
these costs is made of is measured next. When it is all measured, no plan of the enumerated kernels
is better (by added costs); until then incumbent and bound say how far off it can be. A large graph
is planned window by window, and what is proved then holds per window.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from autofuse.cost.bounds import Calibration
from autofuse.cost.features import kind_of_work
from autofuse.cover import (
    Options,
    Piece,
    PlanResult,
    Step,
    k_best,
    plan,
)
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window, windows
from autofuse.ops.types import AutofuseError
from autofuse.plan.groups import ordered_plan
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.tuning.candidates import candidate_kernels
from autofuse.tuning.cover import cover_problem
from autofuse.tuning.hope import VAIN, WORTH, hopeful_costs
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.profiling import Kernels
from autofuse.tuning.regions import WHOLE_NODES, nodes_to_plan, plan_by_bounds, region_of
from autofuse.tuning.session import Session
from autofuse.tuning.turns import Outlook, Turns
from autofuse.tuning.worth import expected_gain_us, pace_of
from search_spaces import FusionSpace

# Rounds of new launch configurations between two times of planning.
ROUNDS = 4
# Far below any real cost: a piece this cheap is in the least plan if it can be in any.
ALMOST_FREE = 1e-6
# Microseconds far above any real cost: a piece this dear is only in plans that need it.
DEAR = 1e9
# Plans that promise most when kernels not measured yet are so many deviations faster than usual.
PROMISES = (-1.0, -2.0, -3.0)
# Candidate kernels up to which it is worked out what measuring promises.
JUDGED_KERNELS = 4000
# A kernel below its lower bound matters from this fraction of the plan's time on.
TELLING = 0.01
# How many of the best plans are looked at for one that fits the memory.
LOOKED_AT = (4, 16, 64)


class ExactSearch:
    """One session's exact planning."""

    def __init__(
        self, session: Session, calibration: Calibration, gap: float, runs: float | None
    ) -> None:
        self.session, self.graph = session, session.graph
        self.gap, self.runs = gap, runs
        self.enumeration = self._enumerate(calibration)
        # What is being planned, and the groups that stay while it is.
        self.cover = cover_problem(self.enumeration, digests=True)
        self.rest: tuple[FusionGroup, ...] = ()
        pieces = self.cover.problem.pieces
        self.bounds = {piece.key: piece.bound_us for piece in pieces}
        places = {self.cover.group(i): piece.key for i, piece in enumerate(pieces)}
        self.kinds = {key: kind_of_work(self.graph, group) for group, key in places.items()}
        self.kernels = Kernels(session, places, self.bounds)
        self.windows: tuple[Window, ...] = ()
        if nodes_to_plan(self.graph) > WHOLE_NODES:
            self.windows = windows(self.graph, WHOLE_NODES, atoms=self.enumeration.atoms)
        session.certificate = "per window" if self.windows else "whole"
        if self.windows:
            tiles = sum(window.kind == "tile" for window in self.windows)
            session.notes.append(
                f"planned in {tiles} windows of at most {WHOLE_NODES} nodes: "
                "the gap is proved per window, not for the graph"
            )
        self.current: FusionPlan | None = None
        self.turns = Turns(runs)
        # Whether the planner has a plan to go on from.
        self._has_plan = False

    def _enumerate(self, calibration: Calibration) -> Enumeration:
        """Candidate kernels, among them those of every baseline and of everything fused."""
        self.fused = FusionSpace(self.graph).choose(lambda _, options: options[0])
        session = self.session
        enumeration = candidate_kernels(
            self.graph, [*session.plans.values(), self.fused], calibration,
            rules=session.plans,
        )  # fmt: skip
        session.counts = dict(enumeration.counts)
        return enumeration

    def run(self) -> None:
        """Plan, tune the kernels of the plan, and plan again while there is budget."""
        self._search()
        below = self.kernels.below_bounds(TELLING * (self.session.planned_us or 0.0))
        if below:
            self.session.notes.append(
                f"{len(below)} of {len(self.kernels.known())} kernels took as little as "
                f"{min(below.values()):.0%} of their lower bound: the calibrated peaks of this "
                "device are too low, and the gap is not proved"
            )

    def _search(self) -> None:
        """Everything fused, then plans and launch configurations in turns."""
        if not self.session.is_over() and self.session.fits(self.fused):
            space = self.kernels.space
            self.session.measure_once(default_candidate(self.graph, self.fused, space, "fused"))
        vain = 0
        while (found := self._planned()) is not None:
            before = self.session.planned_us
            if self._tune(found):
                continue
            if self.turns.is_paused:
                self.turns.may_pause = False
                continue
            hoped = self._hopeful() if vain < VAIN else None
            if hoped is None or not self._tune(hoped):
                return
            vain = vain + 1 if self.session.planned_us == before else 0

    def _tune(self, found: FusionPlan) -> int:
        """Rounds of new launch configurations for the kernels of a plan: how many there were."""
        rounds = 0
        while rounds < ROUNDS and self._goes_on(found) and not (rounds and self._is_planning_due()):
            before = self.kernels.cost_us(found.groups)
            if not self.kernels.tune_launches(found):
                break
            rounds += 1
            self.turns.round_done(self.kernels.cost_us(found.groups) < before)
        return rounds

    def _is_planning_due(self) -> bool:
        """Whether planning was put off and promises more now than new configurations do."""
        turns = self.turns
        return turns.is_paused and turns.is_planning_due(
            self._outlook(), self.session.planned_us or 0.0
        )

    def _planned(self) -> FusionPlan | None:
        """The best plan by what is known now, timed as a whole."""
        found = self._plan_windows() if self.windows else self._plan_whole()
        if found is not None:
            self.kernels.measure_whole(found)
        return found

    def _hopeful(self) -> FusionPlan | None:
        """A plan that would be the best if tuning gave its kernels what it gave others."""
        planned = self.session.planned_us
        near_enough = self.session.gap is not None and self.session.gap <= self.gap
        if self.windows or planned is None or near_enough or self.session.is_over():
            return None
        turns = self.turns
        if not turns.round_pays(turns.round_gain_us(planned), self.kernels.per_plan_s):
            return None
        costs = self._supposed() | hopeful_costs(self.kernels.by_key, self.bounds)
        best = k_best(self.cover.problem, costs, 1)[0]
        found = self._plan_of(best.plan)
        if best.cost_us >= (1 - WORTH) * planned or not self.session.fits(found):
            return None
        return found if self._is_timed(found) and self._goes_on(found) else None

    def _supposed(self) -> dict[str, float | None]:
        """What kernels that were not measured are hoped to take, where that is above the bound."""
        return {}

    def _goes_on(self, found: FusionPlan) -> bool:
        """Whether there is time for new configurations of a plan's kernels, and the runs to come
        could gain what a round takes."""
        if self.session.is_over():
            return False
        kernels = self.kernels
        times = ((key, kernels.by_key[key].best[0]) for key in kernels.keys(found))
        least = sum(min(self.bounds[key], us) for key, us in times)
        cost = kernels.cost_us(found.groups)
        gain = min(cost - least, self.turns.round_gain_us(cost))
        return self.turns.round_pays(gain, kernels.per_plan_s)

    def _is_enough(self) -> bool:
        """Whether planning must end, or pause: no time is left, or kernels not measured yet are
        expected to gain less than another plan takes in so many runs, or less than new launch
        configurations of those that were."""
        if self.session.is_over():
            return True
        if not self._has_plan or self.windows or len(self.bounds) > JUDGED_KERNELS:
            return False
        known = len(self.kernels.known())
        return self.turns.is_enough(known, self._outlook, self.kernels.per_plan_s)

    def _outlook(self) -> Outlook:
        """What the kernels measured by now let expect of the others."""
        problem, costs = self.cover.problem, self._costs()
        try:
            incumbent = k_best(problem, dict.fromkeys(self.bounds) | costs, 1)[0].cost_us
        except AutofuseError:  # what is known makes no plan yet
            return Outlook()
        kinds, bounds = self.kinds, self.bounds
        pace = pace_of((kinds[k], us, bounds[k]) for k, us in costs.items() if us is not None)
        gains = []
        for deviations in PROMISES:
            hoped = {k: pace.time_us(kinds[k], us, deviations) for k, us in bounds.items()}
            keys = [problem.pieces[i].key for i in k_best(problem, {**hoped, **costs}, 1)[0].plan]
            measured = sum(costs.get(key) or 0.0 for key in keys)
            others = [(kinds[key], bounds[key]) for key in keys if key not in costs]
            gains.append(expected_gain_us(incumbent, measured, others, pace))
        return Outlook(incumbent, max(gains))

    # --- planning ---------------------------------------------------------------------------

    def _plan_whole(self) -> FusionPlan | None:
        plans = (self.fused, *self.session.plans.values())
        result = self._plan([p for p in map(self.cover.pieces_of, plans) if p])
        found = None if result.plan is None else self._fitting(result.plan)
        self._state(result.bound_us, found)
        return found

    def _plan_windows(self) -> FusionPlan | None:
        """Plan every window anew, tiles first, the rest of the plan standing still."""
        self.current = self.current or self._start_by_windows()
        if self.current is None:
            return None
        open_us = 0.0
        for window in self.windows:
            slack = self._plan_window(window, self.current)
            open_us += slack if window.kind == "tile" else 0.0
        cost = self.kernels.cost_us(self.current.groups)
        self._state(max(cost - open_us, 0.0), self.current)
        return self.current

    def _start_by_windows(self) -> FusionPlan | None:
        """The first plan that works, so that all its kernels are known."""
        begun, kernels = time.perf_counter(), self.kernels
        guess = plan_by_bounds(self.enumeration, self.windows)
        self.session.sampler_s += time.perf_counter() - begun
        for found in (guess, self.fused, *self.session.plans.values()):
            if found is None or not self.session.fits(found):
                continue
            if all(g in kernels.places for g in found.groups) and self._is_timed(found):
                return found
        return None

    def _plan_window(self, window: Window, current: FusionPlan) -> float:
        """Improve the plan inside a window; microseconds that the window may still gain."""
        region, cost_us = region_of(self.graph, window, current), self.kernels.cost_us
        before = cost_us(region.inner)
        if not region.inner or self.session.is_over():
            return before
        self.cover = cover_problem(self.enumeration, region.window, digests=True)
        self.rest = region.rest
        start = self.cover.pieces_of(FusionPlan(region.inner))
        try:
            result = self._plan([start] if start else [])
        except AutofuseError:  # what the window may read is not enough for any plan of it
            return before
        found = None if result.plan is None else self._fitting(result.plan)
        after = before
        if found is not None and cost_us(found.groups) < cost_us(current.groups):
            self.current = found
            after = cost_us(found.groups) - cost_us(region.rest)
        return max(0.0, after - result.bound_us)

    def _state(self, bound_us: float, found: FusionPlan | None) -> None:
        """Tell the session how far the plan can be off."""
        session = self.session
        planned = None if found is None else self.kernels.cost_us(found.groups)
        session.planned_us = planned
        session.bound_us = bound_us if planned is None else min(bound_us, planned)
        session.gap = 1.0 if planned is None else 1 - session.bound_us / max(planned, ALMOST_FREE)

    def _plan(self, start: Sequence[Sequence[int]]) -> PlanResult:
        begun, before = time.perf_counter(), self.session.evaluator.spent.total
        self.turns.begin_planning()
        self._has_plan = False
        result = plan(
            self.cover.problem,
            lambda piece: self.kernels.measured(piece.key),
            options=Options(self.gap, 16, False, self.runs, lambda _: self.kernels.per_plan_s),
            start=start,
            known=self.kernels.known(),
            prepare=self._prepare,
            should_stop=self._is_enough,
            on_step=self._on_step,
        )
        solving = time.perf_counter() - begun - (self.session.evaluator.spent.total - before)
        self.session.sampler_s += max(solving, 0.0)
        return result

    def _on_step(self, step: Step) -> None:
        self.session.trials += 1
        self._has_plan = step.incumbent_us is not None
        if not self.windows:  # a window's own numbers say nothing about the graph
            self.session.bound_us, self.session.gap = step.bound_us, step.gap
        self.session.tell("planning")

    def _fitting(self, chosen: Sequence[int]) -> FusionPlan | None:
        """The plan if it fits the memory, else the best of those looked at that does, else the one
        that keeps least in memory."""
        found = self._plan_of(chosen)
        if self.session.fits(found):
            return found
        seen = 0
        for count in LOOKED_AT:
            ranked = k_best(self.cover.problem, self._costs(), count)
            for one in ranked[seen:]:
                found = self._plan_of(one.plan)
                if self.session.fits(found) and self._is_timed(found):
                    return found
            seen = len(ranked)
        found = self._plan_of(self.cover.lightest())
        return found if self.session.fits(found) and self._is_timed(found) else None

    def _plan_of(self, chosen: Iterable[int]) -> FusionPlan:
        return ordered_plan(self.graph, dict.fromkeys((*self.rest, *self.cover.groups(chosen))))

    # --- what to measure --------------------------------------------------------------------

    def _is_timed(self, found: FusionPlan) -> bool:
        """Whether all kernels of a plan have times, after running it if need be."""
        if self.kernels.all_timed(found):
            return True
        return not self.session.is_over() and self.kernels.profile(found, {})

    def _costs(self) -> dict[str, float | None]:
        return {key: measured.cost_us for key, measured in self.kernels.known().items()}

    def _prepare(self, batch: Sequence[Piece]) -> None:
        """Measure kernels in as few plans as hold them all."""
        todo = {piece.key for piece in batch} - set(self.kernels.known())
        while todo and not self.session.is_over():
            chosen = self._plan_with(self._costs() | dict.fromkeys(todo, ALMOST_FREE))
            new = self._unknown(chosen) if chosen is not None else set()
            if chosen is None or not new & todo:
                self.kernels.give_up(todo)  # in no plan at any price: nothing can be said here
                return
            if not self.kernels.profile(self._plan_of(chosen), {}) and len(new) > 1:
                self._find_culprits(new)
            todo -= set(self.kernels.known())

    def _plan_with(self, costs: dict[str, float | None]) -> tuple[int, ...] | None:
        try:
            return k_best(self.cover.problem, costs, 1)[0].plan
        except AutofuseError:  # the pieces that are left make no plan
            return None

    def _unknown(self, chosen: Sequence[int]) -> set[str]:
        known = self.kernels.known()
        return {k for k in (self.cover.problem.pieces[p].key for p in chosen) if k not in known}

    def _find_culprits(self, suspects: set[str]) -> None:
        """A plan failed and several kernels in it were new: try each among kernels that work."""
        for key in sorted(suspects):
            if self.session.is_over() or key in self.kernels.known():
                continue
            costs: dict[str, float | None] = dict.fromkeys(self.bounds, DEAR)
            costs |= dict.fromkeys(suspects)
            costs |= self._costs() | {key: ALMOST_FREE}
            chosen = self._plan_with(costs)
            if chosen is not None:
                self.kernels.profile(self._plan_of(chosen), {})
            if key not in self.kernels.known():
                self.kernels.give_up([key])
