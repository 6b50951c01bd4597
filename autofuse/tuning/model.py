"""The model strategy: as the exact one, but kernels not measured yet cost what a model predicts.

The plan that is likely best is measured next, so every run tries a plan worth having. When it is
measured whole, plans are looked for that may still beat it if their kernels are as fast as nine in
ten predictions leave room for; the kernels of all others are skipped. That proves nothing: the
gap that is reported is still the one that true lower bounds prove, and is seldom closed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from autofuse.cost.bounds import Calibration
from autofuse.cost.features import group_features
from autofuse.cover import Options, PlanResult, plan
from autofuse.tuning.exact import ExactSearch
from autofuse.tuning.learned import (
    Lesson,
    Model,
    Sample,
    fit,
    held_out,
    low_factor,
    rank_correlation,
)
from autofuse.tuning.session import Session
from autofuse.tuning.worth import pays

# Kernels of this session from which its own errors say how far predictions can be off.
OWN = 20
# A plan has to be this much better, as a fraction, to count as better.
CLOSE = 1e-6


class ModelSearch(ExactSearch):
    """One session's planning with learned kernel times."""

    def __init__(
        self,
        session: Session,
        calibration: Calibration,
        gap: float,
        runs: float | None,
        lessons: Sequence[Lesson],
    ) -> None:
        super().__init__(session, calibration, gap, runs)
        session.certificate = f"learned, {session.certificate}"
        self.samples = {
            key: Sample(group_features(self.graph, group, self.bounds[key]), self.bounds[key])
            for key, group in self.kernels.samples.items()
        }
        self.taught = [one for one in lessons if one.key not in self.samples]
        self.quality = held_out(lessons, session.seed)
        # What was predicted of each kernel before it was measured.
        self.foretold: dict[str, float] = {}
        self._learn()

    def run(self) -> None:
        """As exact, and say what the model was."""
        super().run()
        self._report()
        self.session.notes.append(
            f"went by kernel times learned from {len(self.taught)} kernels of other graphs: "
            f"{self._skipped()} kernels were never measured, which proves nothing about them"
        )

    # --- learning ---------------------------------------------------------------------------

    def _learn(self) -> None:
        """Fit the model to all that is known by now, and predict the kernels."""
        own = [
            Lesson(key, "", self.samples[key], kernel.first_us)
            for key, kernel in self.kernels.by_key.items()
            if kernel.us
        ]
        self.model: Model = fit([*self.taught, *own], self.session.seed)
        keys = list(self.samples)
        predicted = self.model.predict([self.samples[key] for key in keys])
        self.guesses = dict(zip(keys, predicted.tolist(), strict=True))

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

    def _report(self) -> None:
        predicted, times = self._foretold()
        quality = self.quality
        self.session.model = {
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

    def _plan(self, start: Sequence[Sequence[int]]) -> PlanResult:
        """Measure plans while one is likely, then possibly, better than all that are measured."""
        begun, before = time.perf_counter(), self.session.evaluator.spent.total
        for pieces in start if self.model.forest is None else ():
            if self._unknown(pieces) and not self.session.is_over():
                self._try(pieces)
        result = self._proved()
        while not self.session.is_over():
            chosen = self._next(result.incumbent_us)
            if chosen is None:
                break
            self._try(chosen)
            result = self._proved()
        solving = time.perf_counter() - begun - (self.session.evaluator.spent.total - before)
        self.session.sampler_s += max(solving, 0.0)
        return result

    def _next(self, incumbent_us: float | None) -> tuple[int, ...] | None:
        """The plan to measure next; None when none may be better, or none is worth measuring."""
        low = self._low()
        lows = {key: max(low * us, self.bounds[key]) for key, us in self.guesses.items()}
        for guesses in (self.guesses, lows):
            costs: dict[str, float | None] = {**guesses, **self._costs()}
            chosen = self._plan_with(costs)
            if chosen is not None and self._unknown(chosen):
                expected = sum(costs[self.cover.problem.pieces[p].key] or 0.0 for p in chosen)
                if self._is_worth(expected, incumbent_us):
                    return chosen
        return None

    def _supposed(self) -> dict[str, float | None]:
        return dict(self.guesses)

    def _is_worth(self, expected_us: float, incumbent_us: float | None) -> bool:
        """Whether a plan that may take `expected_us` is worth measuring."""
        if incumbent_us is None:
            return True
        if expected_us >= incumbent_us * (1 - max(self.gap, CLOSE)):
            return False
        return pays(incumbent_us - expected_us, self.runs, self.kernels.per_plan_s)

    def _try(self, chosen: Sequence[int]) -> None:
        """Measure what is new in a plan, and learn from it."""
        new = self._unknown(chosen)
        self.foretold |= {key: self.guesses[key] for key in new}
        if not self.kernels.profile(self._plan_of(chosen), {}) and len(new) > 1:
            self._find_culprits(new)
        self._learn()
        self.session.trials += 1

    def _proved(self) -> PlanResult:
        """The best plan of what is measured, and what the true bounds prove of it."""
        result = plan(
            self.cover.problem,
            lambda piece: self.kernels.measured(piece.key),
            options=Options(),
            known=self.kernels.known(),
            should_stop=lambda: True,
        )
        if not self.windows:
            self.session.bound_us, self.session.gap = result.bound_us, result.gap
        self.session.tell("planning")
        return result
