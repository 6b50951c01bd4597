"""The model strategy: as the exact one, but kernels not measured yet cost what a model predicts.

The plan that is likely best is measured next, so every run tries a plan worth having. When it is
measured whole, plans are looked for that may still beat it if their kernels are as fast as nine in
ten predictions leave room for; the kernels of all others are skipped. That proves nothing: the
gap of this search is still the one that true lower bounds prove, and is seldom closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autofuse.cost.features import group_features
from autofuse.cover import Options, PlanResult, plan
from autofuse.enumerate.enumeration import Enumeration
from autofuse.plan.types import FusionPlan
from autofuse.tuning.allocation import repays
from autofuse.tuning.bench import Bench, Findings
from autofuse.tuning.budget import NAMING_SHARE, Share, solving
from autofuse.tuning.exact import ExactSearch, Goal
from autofuse.tuning.learned import (
    KernelSample,
    Lesson,
    Model,
    fit,
    held_out,
    low_factor,
    rank_correlation,
)
from autofuse.tuning.selection import Selection
from search_spaces.launch import LaunchSpace

# Kernels of this search from which its own errors say how far predictions can be off.
OWN = 20
# A plan has to be this much better, as a fraction, to count as better.
CLOSE = 1e-6


class ModelSearch(ExactSearch):
    """One search with learned kernel times, which take the place of expected ones."""

    expects = False

    def __init__(
        self,
        bench: Bench,
        goal: Goal,
        lessons: Sequence[Lesson],
        enumeration: Enumeration | None = None,
        fused: FusionPlan | None = None,
        space: LaunchSpace | None = None,
    ) -> None:
        super().__init__(bench, goal, enumeration, fused, space)
        describing = Share(bench.left_s, NAMING_SHARE)
        # Kernels that there is no time to describe are taken to cost their bounds.
        self.samples = {
            key: KernelSample(group_features(self.graph, group, self.bounds[key]), self.bounds[key])
            for key, group in self.kernels.samples.items()
            if not describing.is_over()
        }
        self.taught = [one for one in lessons if one.key not in self.samples]
        self.quality = held_out(lessons, bench.seed)
        # What was predicted of each kernel before it was measured.
        self.foretold: dict[str, float] = {}
        self._learn()

    def _findings(self) -> Findings:
        """As exact, and say what the model was."""
        found = super()._findings()
        note = (
            f"went by kernel times learned from {len(self.taught)} kernels of other graphs: "
            f"{self._skipped()} kernels were never measured, which proves nothing about them"
        )
        return replace(
            found,
            certificate=f"learned, {found.certificate}",
            notes=(*found.notes, note),
            model=self._report(),
        )

    # --- learning ---------------------------------------------------------------------------

    def _learn(self) -> None:
        """Fit the model to all that is known by now, and predict the kernels."""
        own = [
            Lesson(key, "", self.samples[key], kernel.first_us)
            for key, kernel in self.kernels.by_key.items()
            if kernel.us and key in self.samples
        ]
        self.model: Model = fit([*self.taught, *own], self.bench.seed)
        keys = list(self.samples)
        predicted = self.model.predict([self.samples[key] for key in keys])
        self.guesses = {**self.bounds, **dict(zip(keys, predicted.tolist(), strict=True))}

    def _foretold(self) -> tuple[list[float], list[float]]:
        """Predictions made before measuring, and the times that followed."""
        pairs = [
            (guess, self.kernels.by_key[key].first_us)
            for key, guess in self.foretold.items()
            if self.kernels.by_key[key].us
        ]
        return [guess for guess, _ in pairs], [us for _, us in pairs]

    def _low(self) -> float:
        """The factor below predictions that is still thought possible; 0: no more than bounds."""
        predicted, times = self._foretold()
        if len(times) >= OWN:
            return low_factor(predicted, times)
        return 0.0 if self.quality is None else self.quality.low

    def _report(self) -> dict[str, object]:
        predicted, times = self._foretold()
        quality = self.quality
        return {
            "trained_on": len(self.taught),
            "held_out": None if quality is None else quality.by,
            "rank_correlation": None if quality is None else quality.rank_correlation,
            "bound_rank_correlation": None if quality is None else quality.bound_rank_correlation,
            "here": {"kernels": len(times), "rank_correlation": rank_correlation(predicted, times)},
            "skipped": self._skipped(),
        }

    def _skipped(self) -> int:
        return len(self.samples.keys() - self.kernels.known().keys())

    # --- planning ---------------------------------------------------------------------------

    def _solve(
        self, selection: Selection, start: Sequence[Sequence[int]], may_yield: bool
    ) -> tuple[PlanResult, bool]:
        """Measure plans while one is likely, then possibly, better than all that are measured."""
        for pieces in start if self.model.forest is None else ():
            if selection.unknown(pieces) and not self.bench.is_over():
                self._try(selection, pieces)
        result = self._proved(selection)
        while not self.bench.is_over():
            chosen = self._next(selection, result.incumbent_us)
            if chosen is None:
                break
            self._try(selection, chosen)
            result = self._proved(selection)
        return result, False

    def _next(self, selection: Selection, incumbent_us: float | None) -> tuple[int, ...] | None:
        """The plan to measure next; None when none may be better, or none is worth measuring."""
        low = self._low()
        lows = {key: max(low * us, self.bounds[key]) for key, us in self.guesses.items()}
        for guesses in (self.guesses, lows):
            costs: dict[str, float | None] = {**guesses, **self.kernels.costs()}
            chosen = selection.least(costs)
            if chosen is not None and selection.unknown(chosen):
                pieces = selection.problem.pieces
                expected = sum(costs[pieces[p].key] or 0.0 for p in chosen)
                if self._is_worth(expected, incumbent_us):
                    return chosen
        return None

    def _supposed(self) -> dict[str, float | None]:
        return dict(self.guesses)

    def _is_worth(self, expected_us: float, incumbent_us: float | None) -> bool:
        """Whether a plan that may take `expected_us` is worth measuring."""
        if incumbent_us is None:
            return True
        if expected_us >= incumbent_us * (1 - max(self.goal.search_gap, CLOSE)):
            return False
        return repays(incumbent_us - expected_us, self.goal.runs, self.kernels.per_plan_s)

    def _try(self, selection: Selection, chosen: Sequence[int]) -> None:
        """Measure what is new in a plan, and learn from it."""
        new = selection.unknown(chosen)
        self.foretold |= {key: self.guesses[key] for key in new}
        selection.measure(chosen, new)
        self._learn()
        self.trials += 1

    def _proved(self, selection: Selection) -> PlanResult:
        """The best plan of what is measured, and what the true bounds prove of it."""
        result = plan(
            selection.problem,
            lambda piece: self.kernels.measured(piece.key),
            options=Options(),
            known=self.kernels.known(),
            should_stop=lambda: True,
            left_s=solving(self.bench.left_s).left_s,
        )
        if not self.windows:
            self.search_floor_us, self.search_gap = result.bound_us, result.gap
        self._tell()
        return result
