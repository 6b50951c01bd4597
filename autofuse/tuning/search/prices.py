"""What plans of rules are predicted to take, from kernels that they share with plans that were run.

Ten rules on one graph share most of their kernels. Each run of one plan times all of its kernels
(`Kernels.learn`); the others are predicted as sums. A kernel that none of these had counts at what
is expected of it, times what the expectations of others were off (`allocation.bias_of`).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from autofuse.cost.bounds import Calibration, group_bound_us
from autofuse.cost.kinds import kind_of_work
from autofuse.graph.canonical import group_digest
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.tuning.bench import Bench
from autofuse.tuning.search.allocation import ModelBias, bias_of, deviation
from autofuse.tuning.search.cover import kernel_key
from autofuse.tuning.search.profiling import NOISE, Kernels
from autofuse.tuning.search.prospects import expectations


@dataclass(frozen=True, slots=True)
class Price:
    """Microseconds that a plan is predicted to take; `least_us`: what it may take at least, by the
    spread of what kernels took beside their expectations. `unknown` kernels were never timed."""

    us: float
    least_us: float
    unknown: int


class Prices:
    """Predictions for some plans of one graph, better with each of them that is run."""

    def __init__(
        self, bench: Bench, plans: Iterable[FusionPlan], peaks: Calibration,
    ) -> None:  # fmt: skip
        graph = bench.graph
        groups = dict.fromkeys(group for plan in plans for group in plan.groups)
        places = {g: kernel_key(group_digest(graph, g.nodes, g.outputs), g) for g in groups}
        bounds: dict[str, float] = {}
        for group, key in places.items():
            if key not in bounds:
                bounds[key] = group_bound_us(graph, group, peaks)
        self.kernels = Kernels(bench, places, bounds)
        samples: Mapping[str, FusionGroup] = self.kernels.samples
        likely = expectations(graph, samples, bounds, bench.space, peaks, lambda: False)
        self._guesses = likely or bounds
        self._kinds: dict[str, Hashable] = {k: kind_of_work(graph, g) for k, g in samples.items()}
        # What plans took as wholes over the sums of their kernels, at least: kernels that are timed
        # one by one are slower than in their places.
        self._together = 1.0
        # What the fastest plan took, and its kernels: another one is no faster for having the same.
        self._fastest_us = math.inf
        self._fastest: frozenset[tuple[str, LaunchConfig]] = frozenset()

    def learn(self, candidate: Candidate, whole_us: float = math.inf) -> bool:
        """Time all kernels of a plan that took `whole_us` as a whole, unless that is known; whether
        it works."""
        worked = self._is_known(candidate) or self.kernels.learn(candidate)
        if worked and whole_us < self._fastest_us:
            self._fastest_us, self._fastest = whole_us, frozenset(self._pairs(candidate))
        if worked and (alone_us := self._known_us(candidate)) > 0:
            self._together = min(self._together, whole_us / alone_us)
        return worked

    def _known_us(self, candidate: Candidate) -> float:
        """The sum of a plan's kernels under its launches, as far as they are known."""
        return sum(us for _, us in self._times(candidate) if us is not None)

    def _is_known(self, candidate: Candidate) -> bool:
        """Whether all kernels of a plan were timed under its launches."""
        return all(us is not None for _, us in self._times(candidate))

    def _pairs(self, candidate: Candidate) -> Iterator[tuple[str, LaunchConfig]]:
        """The key and the launch of each kernel of a plan."""
        return zip(self.kernels.keys(candidate.plan), candidate.launches, strict=True)

    def _times(
        self, candidate: Candidate
    ) -> Iterator[tuple[tuple[str, LaunchConfig], float | None]]:
        """What each kernel of a plan took under its launch, None where it was not timed."""
        for key, launch in self._pairs(candidate):
            times = self.kernels.by_key.get(key)
            yield (key, launch), None if times is None else times.us.get(launch)

    def of(self, candidate: Candidate) -> Price:
        """What is predicted of a candidate now."""
        bias, known_us, guessed_us, noise_us = self._bias(), 0.0, 0.0, 0.0
        slack_us: list[float] = []
        for pair, known in self._times(candidate):
            if known is not None:
                known_us += known
                noise_us += 0.0 if pair in self._fastest else NOISE * known
                continue
            key, _ = pair
            likely_us = bias.time_us(self._kinds[key], self._guesses[key])
            guessed_us += likely_us
            slack_us.append(likely_us - bias.time_us(self._kinds[key], self._guesses[key], -1.0))
        least_us = known_us - noise_us + guessed_us - deviation(slack_us)
        return Price(known_us + guessed_us, least_us * self._together, len(slack_us))

    def _bias(self) -> ModelBias:
        costs = self.kernels.costs()
        return bias_of(
            (self._kinds[key], us, self._guesses[key])
            for key, us in costs.items()
            if us is not None
        )
