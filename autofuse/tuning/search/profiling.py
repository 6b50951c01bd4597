"""Kernels timed inside whole plans: every run of a plan gives a time to each kernel new in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from autofuse.cost.bounds import ONCE_US
from autofuse.cost.expected import has_products
from autofuse.cover import Measured
from autofuse.plan.program.binding import may_run_once
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Blame, Cost, Failure, KernelMeasurement, Timing
from autofuse.tuning.bench import Bench, KnownKernel, Profiled
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.search.launches import (
    KernelTimes,
    LaunchProblem,
    Trial,
    adopted,
    launch_text,
    next_trial,
)
from search_spaces.launch import LaunchSpace
from search_spaces.tile_facts import TileFacts, tile_facts

# Times may be off by this much: a kernel so much below its bound refutes the bound.
NOISE = 0.05
# A kernel whose part of the plan is below this is not worth tuning.
LEAST_SHARE = 0.02
# Kernels that are compiled side by side at most: what is drawn together cannot learn from each
# other.
SIDE_BY_SIDE = 4

# The configurations of one round, by key of their kernels.
Round = dict[str, Trial]


class Kernels:
    """What one search knows of its kernels, by key: equal groups have equal keys."""

    def __init__(
        self,
        bench: Bench,
        places: Mapping[FusionGroup, str],
        bounds: Mapping[str, float],
        space: LaunchSpace | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        origin: str = "exact",
    ) -> None:
        """`places`: the key of every candidate group; `bounds`: least microseconds by key; `space`:
        launch configurations, the bench's own by default. What was not recalled when `should_stop`
        says so is measured again. `origin` is that of the candidates made here."""
        self.origin = origin
        self.bench, self.graph, self.places = bench, bench.graph, places
        self.bounds, self.samples = bounds, {key: group for group, key in places.items()}
        self.space = space or bench.space
        self.by_key: dict[str, KernelTimes] = {}
        self._tiles: dict[str, TileFacts | None] = {}
        # Seconds that one plan takes to build and run, as far as seen, and plans seen.
        self.per_plan_s = 1.0
        self.plans = 0
        # Seconds that were spent before on building the plan that is profiled next.
        self._ahead_s = 0.0
        for known in bench.kernels(self.samples):
            if should_stop():
                break
            self._recall(known)

    def hear(self) -> None:
        """Take over what other jobs have measured meanwhile, before it is decided what to measure
        next: a plan is run for what nobody knows of its kernels."""
        for known in self.bench.news(self.samples):
            if known.launch not in self._kernel(known.key).us:
                self._recall(known)

    def _recall(self, known: KnownKernel) -> None:
        """What was dropped is no best of few samples where its rival is not known any more."""
        kernel = self._kernel(known.key)
        if known.us is None:
            kernel.bad.add(known.launch)
            kernel.failed = True
        elif not known.dropped or min(kernel.us.values(), default=math.inf) < known.us:
            kernel.us[known.launch] = known.us

    def _kernel(self, key: str) -> KernelTimes:
        return self.by_key.setdefault(key, KernelTimes())

    def known(self) -> dict[str, Measured]:
        """Measured costs by key, each kernel at its best configuration."""
        found: dict[str, Measured] = {}
        for key, kernel in self.by_key.items():
            if kernel.us:
                found[key] = Measured(kernel.best[0])
            elif kernel.failed:
                found[key] = Measured(None)
        return found

    def costs(self) -> dict[str, float | None]:
        """As `known`, in plain microseconds; None for a kernel that does not work."""
        return {key: measured.cost_us for key, measured in self.known().items()}

    def below_bounds(self, least_us: float) -> dict[str, float]:
        """Kernels that took less than their lower bound by NOISE and by `least_us`, with time over
        bound: where there are any, the calibrated peaks are too low and nothing is proved."""
        timed = {key: kernel.best[0] for key, kernel in self.by_key.items() if kernel.us}
        return {
            key: us / self.bounds[key]
            for key, us in timed.items()
            if self.bounds[key] - us > max(least_us, NOISE * self.bounds[key])
        }

    def give_up(self, keys: Iterable[str]) -> None:
        """Count these as failed in this search unless they were timed."""
        for key in keys:
            self._kernel(key).failed = True

    def measured(self, key: str) -> Measured:
        """What is known of one kernel; what was not timed cannot be used."""
        kernel = self.by_key.get(key)
        return Measured(kernel.best[0] if kernel is not None and kernel.us else None)

    def keys(self, found: FusionPlan) -> list[str]:
        """The keys of a plan's groups, in order."""
        return [self.places[group] for group in found.groups]

    def cost_us(self, groups: Iterable[FusionGroup]) -> float:
        """The sum of kernel times, microseconds; every kernel must have been timed."""
        return sum(self.by_key[self.places[group]].best[0] for group in groups)

    def is_timed(self, found: FusionPlan) -> bool:
        """Whether all kernels of a plan have times, after running it if need be."""
        if all(self.measured(key).cost_us is not None for key in self.keys(found)):
            return True
        return not self.bench.is_over() and self.profile(found, {})

    def candidate(self, found: FusionPlan, trial: Mapping[str, LaunchConfig]) -> Candidate:
        """A plan with the best known configuration of every kernel, or the one on trial."""
        base = default_candidate(self.graph, found, self.space, self.origin)
        launches = [
            trial.get(key) or self._best_launch(key, default)
            for key, default in zip(self.keys(base.plan), base.launches, strict=True)
        ]
        return Candidate(base.plan, tuple(launches), self.origin)

    def _best_launch(self, key: str, default: LaunchConfig) -> LaunchConfig:
        """The best known one; of a product in a new kernel what is best for the same product in
        another kernel, as far as it is offered."""
        kernel = self.by_key.get(key)
        if kernel is not None and kernel.us:
            return kernel.best[1]
        relative = self._relative(key)
        if relative is None:
            return default
        return adopted(self.graph, self.samples[key], self.space, relative)

    def _relative(self, key: str) -> LaunchConfig | None:
        """The best configuration of the kernel tried most often that computes products of the same
        extents; None where there is none that was tuned."""
        own = self._tile_facts(key)
        if own is None:
            return None
        tuned = [k for k, found in self.by_key.items() if len(found.us) > 1]
        related = [k for k in tuned if _is_alike(self._tile_facts(k), own)]
        most = max(related, key=lambda k: len(self.by_key[k].us), default=None)
        return None if most is None else self.by_key[most].best[1]

    def _tile_facts(self, key: str) -> TileFacts | None:
        if key not in self._tiles:
            group = self.samples[key]
            product = group.body is None and has_products(self.graph, group.nodes)
            self._tiles[key] = tile_facts(self.graph, group) if product else None
        return self._tiles[key]

    def build_ahead(self, plans: Sequence[FusionPlan]) -> None:
        """Build plans that are profiled next, side by side."""
        self._ahead_s = self.bench.prepare([self.candidate(p, {}) for p in plans]) / len(plans)

    def profile(self, found: FusionPlan, trial: Mapping[str, LaunchConfig]) -> bool:
        """Build and run one plan; whether it works. Every kernel new in it gets its time."""
        return self.learn(self.candidate(found, trial))

    def learn(self, candidate: Candidate) -> bool:
        """As `profile`, for a plan under launch configurations that are given."""
        profiled = self.bench.profile(candidate, self._rivals_us(candidate))
        if not profiled.recalled:
            took, self._ahead_s = profiled.spent_s + self._ahead_s, 0.0
            self.per_plan_s = 0.5 * (self.per_plan_s + took) if self.plans else took
            self.plans += 1
        if profiled.failure is not None:
            self._note_failure(candidate, profiled, profiled.failure)
            return False
        self._note(candidate, profiled)
        return True

    def _rivals_us(self, candidate: Candidate) -> tuple[float, ...]:
        """What each kernel of a plan competes with: its own best time; 0 where it was timed."""
        found = []
        for key, launch in zip(self.keys(candidate.plan), candidate.launches, strict=True):
            us = self._kernel(key).us
            found.append(0.0 if launch in us else min(us.values(), default=math.inf))
        return tuple(found)

    def _note(self, candidate: Candidate, profiled: Profiled) -> None:
        fresh: dict[tuple[str, LaunchConfig], list[Timing]] = {}
        pairs = list(zip(self.keys(candidate.plan), candidate.launches, strict=True))
        # A compiler that says nothing leaves its kernels without facts, a record without codes.
        facts = dict(zip(pairs, profiled.facts, strict=False))
        codes = dict(zip(pairs, profiled.codes, strict=False))
        for (key, launch), timing in zip(pairs, profiled.groups, strict=True):
            if launch not in self._kernel(key).us:
                fresh.setdefault((key, launch), []).append(timing)
        part, cost = 1.0 / max(len(fresh), 1), profiled.cost
        each = Cost(cost.codegen * part, cost.compile * part, cost.measure * part)
        kept = []
        for (key, launch), found in fresh.items():
            timing = sorted(found, key=lambda t: t.median_us)[len(found) // 2]
            self._kernel(key).us[launch] = max(timing.median_us, ONCE_US)
            kept.append(
                KernelMeasurement(
                    key, launch_text(launch), self.bench.cache, codes.get((key, launch), ""),
                    timing, None, profiled.max_rel_error, each, None,
                    facts.get((key, launch), ()),
                )
            )  # fmt: skip
        if not profiled.recalled:
            self._keep(kept)

    def _note_failure(self, candidate: Candidate, profiled: Profiled, failure: Failure) -> None:
        """One new kernel in a failing plan is the culprit; of several nothing is known yet. What is
        the machine's fault is held against it in this search only."""
        pairs = list(zip(self.keys(candidate.plan), candidate.launches, strict=True))
        new = {pair for pair in pairs if pair[1] not in self._kernel(pair[0]).us}
        if len(new) != 1:
            return
        ((key, launch),) = new
        self._kernel(key).bad.add(launch)
        self._kernel(key).failed = True
        if failure.blame is Blame.MACHINE:
            return
        code = dict(zip(pairs, profiled.codes, strict=False)).get((key, launch), "")
        self._keep(
            [
                KernelMeasurement(
                    key, launch_text(launch), self.bench.cache, code, None, failure, None, Cost(),
                    None,
                )
            ]
        )  # fmt: skip

    def _keep(self, records: Iterable[KernelMeasurement]) -> None:
        """Store kernels with their bounds."""
        # No call takes time for the others.
        lasting = [
            one for one in records if not may_run_once(self.graph, self.samples[one.group].nodes)
        ]
        if lasting:
            bounded = [replace(one, bound_us=self.bounds[one.group]) for one in lasting]
            self.bench.keep_kernels(bounded)

    def residual_us(self, found: FusionPlan) -> tuple[str, float | None]:
        """The digest of a plan's candidate and its time end to end less its kernels' together, the
        plan being measured as a whole if need be; None where it does not work."""
        candidate = self.candidate(found, {})
        record = self.bench.measure(candidate)
        if record.timing is None:
            return candidate.digest, None
        return candidate.digest, record.timing.median_us - self.cost_us(found.groups)

    def draw_rounds(self, found: FusionPlan, most: int) -> list[Round]:
        """New configurations for all kernels that matter, for `most` rounds at most, built by now;
        none when every kernel has been through its space.

        Few kernels would leave processors without a compiler, so they get several rounds at
        once."""
        rounds = [asked] if (asked := self._trials(found, ())) else []
        while rounds and len(rounds) < min(most, SIDE_BY_SIDE // len(rounds[0])):
            asked = self._trials(found, rounds)
            if not asked:
                break
            rounds.append(asked)
        if len(rounds) > 1:
            took = self.bench.prepare([self.candidate(found, _launches(asked)) for asked in rounds])
            self._ahead_s = took / len(rounds)
        return rounds

    def tune_launches(self, found: FusionPlan, asked: Round) -> None:
        """One round of new configurations, tried in one plan: kernels add up, so one run answers
        one question about each of them."""
        worked = self.profile(found, _launches(asked))
        for key, trial in asked.items():
            if not worked and len(asked) > 1 and not self.bench.is_over():
                self.profile(found, {key: trial.launch})
            trial.tell(self.by_key[key].us.get(trial.launch))

    def _trials(self, found: FusionPlan, before: Sequence[Round]) -> Round:
        """A configuration never tried for each kernel that has a share in the plan's time, nor
        drawn for the rounds `before`."""
        self.hear()
        keys, total = self.keys(found), self.cost_us(found.groups)
        heavy = {
            key: group
            for key, group in zip(keys, found.groups, strict=True)
            if self.by_key[key].best[0] * keys.count(key) >= LEAST_SHARE * total
        }
        asked = self._drawn(heavy, before)
        # Choosing takes longer than running: meanwhile others may have tried the same.
        self.hear()
        tried = [key for key, trial in asked.items() if self.by_key[key].has_tried(trial.launch)]
        for key in tried:
            trial = asked.pop(key)
            trial.tell(self.by_key[key].us.get(trial.launch))
        return asked | self._drawn({key: heavy[key] for key in tried}, before)

    def _drawn(self, groups: Mapping[str, FusionGroup], before: Sequence[Round]) -> Round:
        """A configuration never tried nor drawn before for each of these kernels that has any
        left."""
        asked: Round = {}
        for key, group in groups.items():
            problem = LaunchProblem(self.graph, group, self.space)
            waiting = {drawn[key].launch for drawn in before if key in drawn}
            trial = next_trial(self.by_key[key], problem, self.bench.seed, waiting)
            if trial is not None:
                asked[key] = trial
        return asked


def measured_first(bench: Bench, fused: FusionPlan, space: LaunchSpace) -> list[Candidate]:
    """What a search begins with in any case, of a graph for which it is not worked out what to
    expect of kernels: the plans that are given."""
    if has_products(bench.graph, range(len(bench.graph.nodes))):
        return []
    given = filter(bench.fits, (fused, *bench.plans.values()))
    return [default_candidate(bench.graph, each, space, "exact") for each in given]


def _launches(asked: Round) -> dict[str, LaunchConfig]:
    return {key: trial.launch for key, trial in asked.items()}


def _is_alike(one: TileFacts | None, other: TileFacts) -> bool:
    """Whether tiles of the same extents are computed, whatever is kept of a row."""
    return one is not None and replace(one, row_bytes=0) == replace(other, row_bytes=0)
