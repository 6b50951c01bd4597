"""A large graph's next plan: in every window what most is expected of, all of it in one run."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.cover import LeftS
from autofuse.enumerate.enumeration import Enumeration
from autofuse.enumerate.windows import Window
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import FusionPlan
from autofuse.tuning.budget import Share
from autofuse.tuning.search.allocation import WORTH, Outlook
from autofuse.tuning.search.cover import cover_problem
from autofuse.tuning.search.profiling import Kernels
from autofuse.tuning.search.prospects import least_known, prospect
from autofuse.tuning.search.regions import region_of
from autofuse.tuning.search.selection import Selection


@dataclass(frozen=True, slots=True)
class Promise:
    """`settled` is the plan there is with each window at its best of known kernels, `wanted` what
    to run next; the outlook says what is expected of it in all windows together."""

    settled: FusionPlan
    wanted: FusionPlan
    outlook: Outlook


@dataclass(frozen=True, slots=True)
class LookAhead:
    """What a search by windows looks at: `guesses` are what kernels are expected to take
    (microseconds, by key), `kinds` the kind of work of each."""

    kernels: Kernels
    enumeration: Enumeration
    windows: Sequence[Window]
    guesses: Mapping[str, float]
    kinds: Mapping[str, Hashable]

    def promise(self, current: FusionPlan, left_s: LeftS) -> Promise:
        """Improve `current`, whose kernels are known, window by window in the seconds left."""
        settled = current
        for window, fair in self._in_turn(left_s, 1 / 2):
            settled = self._settled(window, settled, fair)
        wanted, gain_us = settled, 0.0
        for window, fair in self._in_turn(left_s, 1.0):
            wanted, gain = self._wanted(window, wanted, fair)
            gain_us += gain
        return Promise(settled, wanted, Outlook(self.kernels.cost_us(settled.groups), gain_us))

    def run(self, promise: Promise) -> bool:
        """Time the kernels that are new in what is wanted; whether there were any and it fits the
        memory. Those of a plan that does not work are given up."""
        wanted = promise.wanted
        new = set(self.kernels.keys(wanted)) - self.kernels.known().keys()
        if not new or not self.kernels.bench.fits(wanted):
            return False
        if not self.kernels.profile(wanted, {}):
            self.kernels.give_up(new)
        return True

    def _in_turn(self, left_s: LeftS, share: float) -> list[tuple[Window, LeftS]]:
        """Tiles, each with its part of a share of the seconds that are left."""
        tiles = [window for window in self.windows if window.kind == "tile"]
        whole = Share(left_s, share)
        return [(w, Share(whole.left_s, 1 / (len(tiles) - k)).left_s)
                for k, w in enumerate(tiles)]  # fmt: skip

    def _selection(self, window: Window, plan: FusionPlan) -> Selection | None:
        """What may be chosen anew in a window; None where that is nothing."""
        region = region_of(self.enumeration.graph, window, plan)
        if not region.inner:
            return None
        cover = cover_problem(self.enumeration, region.window, digests=True)
        try:
            return Selection(self.kernels, cover, region.rest)
        except AutofuseError:  # what the window may read is not enough for any plan of it
            return None

    def _settled(self, window: Window, plan: FusionPlan, left_s: LeftS) -> FusionPlan:
        selection = self._selection(window, plan)
        if selection is None:
            return plan
        costs = self.kernels.costs()
        least = least_known(selection.prepared, self.guesses, costs, left_s)
        found = plan if least is None else selection.plan_of(least.plan)
        cost_us = self.kernels.cost_us
        better = cost_us(found.groups) < cost_us(plan.groups)
        return found if better and self.kernels.bench.fits(found) else plan

    def _wanted(self, window: Window, plan: FusionPlan, left_s: LeftS) -> tuple[FusionPlan, float]:
        selection = self._selection(window, plan)
        if selection is None:
            return plan, 0.0
        try:
            found = prospect(
                selection.prepared, self.guesses, self.kernels.costs(), self.kinds, left_s
            )
        except AutofuseError:  # the kernels that are left make no plan
            return plan, 0.0
        outlook = found.outlook
        # Of a window without a plan of known kernels nothing can be expected.
        if not WORTH * outlook.incumbent_us < outlook.gain_us < outlook.incumbent_us:
            return plan, 0.0
        return selection.plan_of(found.plan), outlook.gain_us
