"""The exact strategy: candidate kernels, a 0/1 program over them, and plans that measure kernels.

Costs are optimistic until measured; what the least plan by these costs is made of is measured next.
Until it is all measured, incumbent and floor say how much better a plan of these kernels at the
launches tried can be: the gap of this search, proved window by window in large graphs.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autofuse.baselines import BASELINES
from autofuse.cost.kinds import kind_of_work
from autofuse.cover import Options, PlanningStep, PlanResult, k_best, plan
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window, windows
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import FusionPlan
from autofuse.records import Proof
from autofuse.tuning.bench import Bench, Findings, Standing
from autofuse.tuning.budget import ENUMERATING_SHARE, NAMING_SHARE, Share, recalling, solving
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.search.allocation import (
    ROUND_GAIN,
    TILE_ROUND_GAIN,
    VAIN,
    WORTH,
    Allocation,
    Next,
    Outlook,
    optimistic_costs,
)
from autofuse.tuning.search.candidates import candidate_kernels
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.notes import notes
from autofuse.tuning.search.profiling import Kernels, Round, measured_first
from autofuse.tuning.search.promising import LookAhead
from autofuse.tuning.search.prospects import Prospect, expectations, is_library, prospect
from autofuse.tuning.search.regions import (
    WHOLE_NODES,
    nodes_to_plan,
    plan_by_bounds,
    region_of,
    starts,
)
from autofuse.tuning.search.selection import Selection
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace, first_option

# Rounds of new launch configurations between two times of planning.
ROUNDS = 4
# Candidate kernels up to which it is worked out what can be expected of measuring.
JUDGED_KERNELS = 4000
BATCH = 16


@dataclass(frozen=True, slots=True)
class Goal:
    """A search may end before its budget at this gap of the search, or when `runs` runs no longer
    repay more tuning (None: only the plan counts)."""

    search_gap: float = 0.0
    runs: float | None = None


class ExactSearch:
    """One search; `run` may be called once."""

    def __init__(
        self,
        bench: Bench,
        goal: Goal,
        enumeration: Enumeration | None = None,
        fused: FusionPlan | None = None,
        space: LaunchSpace | None = None,
    ) -> None:
        """`enumeration`, `fused` ("everything fused", tried first) and `space` stand for what
        follows from the graph and the bench where they are not given."""
        self.bench, self.graph, self.goal = bench, bench.graph, goal
        enumerating = Share(bench.left_s, ENUMERATING_SHARE)
        if fused is None:
            fused = FusionSpace(self.graph).choose(first_option, enumerating.is_over)
        self.fused = fused
        bench.ahead(measured_first(bench, fused, space or bench.space))
        candidates = enumeration or self._enumerate(enumerating)
        naming = Share(bench.left_s, NAMING_SHARE)
        self.enumeration = candidates.named(naming.is_over)
        cover = cover_problem(self.enumeration, digests=True)
        self.bounds = cover.bounds()
        recall = recalling(bench.left_s)
        self.kernels = Kernels(bench, cover.places(), self.bounds, space, recall.is_over)
        self.solving = solving(bench.left_s)
        self.whole = Selection(self.kernels, cover)
        self.windows: tuple[Window, ...] = ()
        if nodes_to_plan(self.graph) > WHOLE_NODES:
            found = windows(self.graph, WHOLE_NODES, supernodes=self.enumeration.supernodes)
            # What is chosen together may be few nodes: a window of all of them is the graph.
            self.windows = found if len(found) > 1 else ()
        # What kernels are expected to take, where that differs from their bounds.
        self.expected: Mapping[str, float] = self._expectations()
        share = TILE_ROUND_GAIN if self.expected else ROUND_GAIN
        self.allocation = Allocation(goal.runs, round_share=share)
        # The plan so far of a graph planned by windows.
        self.current: FusionPlan | None = None
        self.trials = 0
        self.planned = ""
        self.proof = Proof(certificate="per window" if self.windows else "whole")

    @cached_property
    def kinds(self) -> Mapping[str, Hashable]:
        """What kind of work each kernel is, for graphs where it is worked out what to expect."""
        return {key: kind_of_work(self.graph, g) for key, g in self.kernels.samples.items()}

    def _enumerate(self, time: Share) -> Enumeration:
        """Candidate kernels, among them those of every baseline and of everything fused."""
        plans, calibration = self.bench.plans, self.bench.calibration()
        time.renew()  # calibrating is no part of it
        return candidate_kernels(
            self.graph, [*plans.values(), self.fused], calibration,
            rules=[name for name in plans if name in BASELINES], should_stop=time.is_over,
        )  # fmt: skip

    def _expectations(self) -> Mapping[str, float]:
        """For graphs for which it is worked out what to expect."""
        if not self.windows and len(self.bounds) > JUDGED_KERNELS:
            return {}
        time = Share(self.bench.left_s, NAMING_SHARE)
        return expectations(
            self.graph, self.kernels.samples, self.bounds, self.kernels.space,
            self.bench.calibration(), time.is_over,
        )  # fmt: skip

    def run(self) -> Findings:
        """Plan, tune the kernels of the plan, and plan again while there is budget."""
        self._search()
        return Findings(
            trials=self.trials,
            planned=self.planned,
            proof=self.proof,
            notes=notes(self.enumeration, self.windows, self.kernels, self.proof.planned_us),
            counts=dict(self.enumeration.counts),
        )

    def _search(self) -> None:
        """Everything fused, then planning and launch configurations as the allocation says."""
        if not self.expected and not self.bench.is_over() and self.bench.fits(self.fused):
            space = self.kernels.space
            self.bench.measure(default_candidate(self.graph, self.fused, space, "fused"))
        vain, may_yield = 0, True
        # What the plan took when an optimistic estimate was last followed, until it is known what
        # came of it.
        followed_us: float | None = None
        while True:
            left_s = self.bench.left_s()
            found, yielded = self._planned(may_yield)
            self.allocation.planning_s += left_s - self.bench.left_s()
            if found is None:
                return
            if followed_us is not None:
                vain = 0 if (self.proof.planned_us or math.inf) < followed_us else vain + 1
                followed_us = None
            if self._tune(found, yielded):
                may_yield = True
                continue
            if yielded:
                may_yield = False
                continue
            optimistic = self._optimistic() if vain < VAIN else None
            if optimistic is None or not self._tune(optimistic, False):
                return
            may_yield, followed_us = True, self.proof.planned_us

    def _tune(self, found: FusionPlan, yielded: bool) -> int:
        """Rounds of new launch configurations for the kernels of a plan: how many there were.
        `yielded`: planning gave way to them, and goes on once more is expected of it."""
        rounds, allocation, drawn = 0, self.allocation, deque[Round]()
        while rounds < ROUNDS and self._goes_on(found):
            before, left_s = self.kernels.cost_us(found.groups), self.bench.left_s()
            waits = rounds and yielded and not self.windows
            if waits and allocation.is_planning_due(self._outlook(), before):
                break
            drawn = drawn or deque(self.kernels.draw_rounds(found, ROUNDS - rounds))
            if not drawn:
                break
            self.kernels.tune_launches(found, drawn.popleft())
            rounds += 1
            self.trials += 1
            allocation.rounds_s += left_s - self.bench.left_s()
            allocation.round_done(self.kernels.cost_us(found.groups) < before)
            self._tell("launches")
        return rounds

    def _optimistic(self) -> FusionPlan | None:
        """A plan that would be the best if tuning gave its kernels what it gave others."""
        planned, gap = self.proof.planned_us, self.proof.search_gap
        near_enough = gap is not None and gap <= self.goal.search_gap
        if self.windows or planned is None or near_enough or self.bench.is_over():
            return None
        allocation = self.allocation
        if not allocation.round_repays(allocation.round_gain_us(planned), self.kernels.per_plan_s):
            return None
        costs = optimistic_costs(self.kernels.by_key, self.bounds)
        self.solving.renew()
        best = k_best(self.whole.prepared, costs, 1, self.solving.left_s)[0]
        found = self.whole.plan_of(best.plan)
        if best.cost_us >= (1 - WORTH) * planned or not self.bench.fits(found):
            return None
        return found if self.kernels.is_timed(found) and self._goes_on(found) else None

    def _goes_on(self, found: FusionPlan) -> bool:
        """Whether there is time for new configurations of a plan's kernels, and the runs to come
        could gain what a round takes."""
        if self.bench.is_over():
            return False
        kernels = self.kernels
        times = ((key, kernels.by_key[key].best[0]) for key in kernels.keys(found))
        least = sum(min(self.bounds[key], us) for key, us in times)
        cost = kernels.cost_us(found.groups)
        gain = min(cost - least, self.allocation.round_gain_us(cost))
        return self.allocation.round_repays(gain, kernels.per_plan_s)

    def _outlook(self) -> Outlook:
        """What the kernels measured by now let expect of the others."""
        return self._prospect().outlook

    def _prospect(self) -> Prospect:
        self.solving.renew()
        guesses, costs = self.expected or self.bounds, self.kernels.costs()
        return prospect(self.whole.prepared, guesses, costs, self.kinds, self.solving.left_s)

    def _try_promising(self) -> None:
        """Measure the plan of which most is expected while that is more than of a round of launch
        configurations: bounds alone would have every hopeless kernel measured first."""
        while self.expected and not self.windows and not self.bench.is_over():
            try:
                found = self._prospect()
            except AutofuseError:  # the kernels that are left make no plan
                return
            unknown = self.whole.unknown(found.plan)
            if not unknown or not self.allocation.is_promising(found.outlook):
                return
            known, worth = len(self.kernels.known()), self.allocation.is_worth
            others = [plan for gain, plan in found.others if worth(gain, found.outlook)]
            self.trials += self.whole.measure_some([found.plan, *others])
            self._tell()
            if len(self.kernels.known()) == known:
                return

    def _planned(self, may_yield: bool) -> tuple[FusionPlan | None, bool]:
        """The best plan by what is known now, timed as a whole, and whether planning gave way to
        launch configurations before it came to its end."""
        found, yielded = (self._plan_windows if self.windows else self._plan_whole)(may_yield)
        if found is not None:
            self.planned, residual = self.kernels.residual_us(found)
            if residual is not None:
                self.proof = replace(self.proof, residual_us=residual)
        return found, yielded

    def _plan_whole(self, may_yield: bool) -> tuple[FusionPlan | None, bool]:
        self._try_promising()
        plans = [self.fused, *self.bench.plans.values()]
        if self.expected:  # what is worth measuring was; what libraries take is worth knowing
            plans = [p for p in plans if any(is_library(self.graph, g) for g in p.groups)][:1]
        start = [p for p in map(self.whole.cover.pieces_of, plans) if p]
        result, yielded = self._solve(self.whole, start, may_yield)
        found = None if result.plan is None else self.whole.fitting(result.plan)
        self._state(result.bound_us, found)
        return found, yielded

    def _plan_windows(self, may_yield: bool) -> tuple[FusionPlan | None, bool]:
        """Run what is promising in all windows at once; then plan every window anew, tiles first,
        the rest of the plan standing still, unless launch configurations are to come first."""
        self.current = self.current or self._start_by_windows()
        if self.current is None:
            return None, False
        self._try_windows()
        if self.expected and may_yield:
            return self.current, True
        open_us = 0.0
        for window in self.windows:
            slack = self._plan_window(window, self.current)
            open_us += slack if window.kind == "tile" else 0.0
        cost = self.kernels.cost_us(self.current.groups)
        self._state(max(cost - open_us, 0.0), self.current)
        return self.current, False

    def _try_windows(self) -> None:
        """Run the plan that has in every window what most is expected of, while that is worth more
        than a round of launch configurations."""
        ahead = LookAhead(self.kernels, self.enumeration, self.windows, self.expected, self.kinds)
        while self.expected and self.current is not None and not self.bench.is_over():
            self.solving.renew()
            promise = ahead.promise(self.current, self.solving.left_s)
            self.current = promise.settled
            if not (self.allocation.is_promising(promise.outlook) and ahead.run(promise)):
                return
            self.trials += 1
            self._tell()

    def _start_by_windows(self) -> FusionPlan | None:
        """The fastest plan that was measured, where it is worked out what to expect; else that of
        least bounds that works. All its kernels are known then. Kernels fused horizontally across
        windows come from given plans only."""
        if self.expected:
            places = self.kernels.places.keys()
            ready = (p for p in self.bench.plans.values() if places >= set(p.groups))
            return next(filter(self._serves, ready), None)
        self.solving.renew()
        guess = plan_by_bounds(self.enumeration, self.windows, self.solving.left_s)
        given = (self.fused, *self.bench.plans.values())
        bounds = {group: self.bounds[key] for group, key in self.kernels.places.items()}
        for found in starts(self.graph, given, () if guess is None else (guess,), bounds):
            if self._serves(found):
                return found
        return None

    def _serves(self, found: FusionPlan) -> bool:
        """Whether a plan fits the memory and works."""
        return self.bench.fits(found) and self.kernels.is_timed(found)

    def _plan_window(self, window: Window, current: FusionPlan) -> float:
        """Improve the plan inside a window; microseconds that the window may still gain."""
        region, cost_us = region_of(self.graph, window, current), self.kernels.cost_us
        before = cost_us(region.inner)
        if not region.inner or self.bench.is_over():
            return before
        cover = cover_problem(self.enumeration, region.window, digests=True)
        start = cover.pieces_of(FusionPlan(region.inner))
        try:
            selection = Selection(self.kernels, cover, region.rest)
            result, _ = self._solve(selection, [start] if start else [], may_yield=False)
        except AutofuseError:  # what the window may read is not enough for any plan of it
            return before
        found = None if result.plan is None else selection.fitting(result.plan)
        after = before
        if found is not None and cost_us(found.groups) < cost_us(current.groups):
            self.current = found
            after = cost_us(found.groups) - cost_us(region.rest)
        return max(0.0, after - result.bound_us)

    def _state(self, bound_us: float, found: FusionPlan | None) -> None:
        """Note how far the plan can be off."""
        planned_us = None if found is None else self.kernels.cost_us(found.groups)
        self.proof = self.proof.searched(bound_us, planned_us)
        self._tell()

    def _solve(
        self, selection: Selection, start: Sequence[Sequence[int]], may_yield: bool
    ) -> tuple[PlanResult, bool]:
        """The best plan of a selection, measuring lazily; and whether planning gave way."""
        self.allocation.begin_planning()
        self.solving.renew()
        judged = Next.PLANNING
        has_plan = False

        def should_stop() -> bool:
            nonlocal judged
            if self.bench.is_over():
                judged = Next.NOTHING
            elif has_plan and not self.windows and len(self.bounds) <= JUDGED_KERNELS:
                judged = self._judge(may_yield)
            return judged is not Next.PLANNING

        def on_step(step: PlanningStep) -> None:
            nonlocal has_plan
            self.trials += 1
            self.solving.renew()
            has_plan = step.incumbent_us is not None
            if not self.windows:  # a window's own numbers say nothing about the graph
                self.proof = self.proof.searched(step.bound_us, step.incumbent_us)
            self._tell()

        goal, kernels = self.goal, self.kernels
        result = plan(
            selection.cover.problem,
            lambda piece: kernels.measured(piece.key),
            options=Options(goal.search_gap, BATCH, False, goal.runs, lambda _: kernels.per_plan_s),
            start=start,
            known=kernels.known(),
            prepare=selection.prepare,
            should_stop=should_stop,
            left_s=self.solving.left_s,
            on_step=on_step,
        )
        return result, judged is Next.LAUNCHES

    def _judge(self, may_yield: bool) -> Next:
        allocation, kernels = self.allocation, self.kernels
        may_yield = may_yield and not allocation.owes_proof(self.proof.search_gap)
        known, per_plan_s = len(kernels.known()), kernels.per_plan_s
        return allocation.judge(known, self._outlook, per_plan_s, may_yield=may_yield)

    def _tell(self, phase: str = "planning") -> None:
        self.bench.tell(Standing(phase, self.trials, self.proof))
