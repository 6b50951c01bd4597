"""Kernels timed inside whole plans: every run of a plan gives a time to each kernel new in it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from autofuse.backends.base import Facts
from autofuse.cost.features import group_features
from autofuse.cover import Measured
from autofuse.measure.protocol import Reply
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, Failure, KernelMeasurement, Timing
from autofuse.tuning.evaluate import build
from autofuse.tuning.launches import (
    Kernel,
    LaunchProblem,
    Trial,
    launch_of,
    launch_text,
    next_trial,
)
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.session import Session
from search_spaces.launch import LaunchSpace

# Times may be off by this much: a kernel so much below its bound refutes the bound.
NOISE = 0.05
# A kernel whose part of the plan is below this is not worth tuning.
LEAST_SHARE = 0.02


class Kernels:
    """What one session knows of its kernels, by key: equal groups have equal keys."""

    def __init__(
        self, session: Session, places: Mapping[FusionGroup, str], bounds: Mapping[str, float]
    ) -> None:
        """`places`: the key of every candidate group; `bounds`: least microseconds by key."""
        self.session, self.graph, self.places = session, session.graph, places
        self.bounds, self.samples = bounds, {key: group for group, key in places.items()}
        self.space: LaunchSpace = session.device.space
        self.cache = session.evaluator.sampling.cache
        self.by_key: dict[str, Kernel] = {}
        # Seconds that one plan takes to build and run, as far as seen, and plans seen.
        self.per_plan_s = 1.0
        self.plans = 0
        self._recall()

    def _recall(self) -> None:
        """Times of these kernels that the database has for this device, from whatever graph."""
        stored = self.session.store.kernels(self.session.environment, set(self.places.values()))
        for (key, _, cache), record in stored.items():
            if cache != self.cache:
                continue
            kernel, launch = self._kernel(key), launch_of(record.launch)
            if record.timing is not None:
                kernel.us[launch] = record.timing.median_us
            elif record.failure is not None:
                kernel.bad.add(launch)
                kernel.failed = True

    def _kernel(self, key: str) -> Kernel:
        return self.by_key.setdefault(key, Kernel())

    def known(self) -> dict[str, Measured]:
        """Measured costs by key, each kernel at its best configuration."""
        found: dict[str, Measured] = {}
        for key, kernel in self.by_key.items():
            if kernel.us:
                found[key] = Measured(kernel.best[0])
            elif kernel.failed:
                found[key] = Measured(None)
        return found

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
        """Count these as failed unless they were timed."""
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

    def all_timed(self, found: FusionPlan) -> bool:
        """Whether every kernel of a plan has a time."""
        return all(self.measured(key).cost_us is not None for key in self.keys(found))

    def candidate(self, found: FusionPlan, trial: Mapping[str, LaunchConfig]) -> Candidate:
        """A plan with the best known configuration of every kernel, or the one on trial."""
        base = default_candidate(self.graph, found, self.space, "exact")
        launches = [
            trial.get(key) or self._best_launch(key, default)
            for key, default in zip(self.keys(base.plan), base.launches, strict=True)
        ]
        return Candidate(base.plan, tuple(launches), base.bodies, "exact")

    def _best_launch(self, key: str, default: LaunchConfig) -> LaunchConfig:
        kernel = self.by_key.get(key)
        return kernel.best[1] if kernel is not None and kernel.us else default

    def profile(self, found: FusionPlan, trial: Mapping[str, LaunchConfig]) -> bool:
        """Build and run one plan; whether it works. Every kernel new in it gets its time."""
        candidate = self.candidate(found, trial)
        session = self.session
        built = build(session.backend, self.graph, candidate)
        timings: tuple[Timing, ...] = ()
        failure, seconds = built.failure, 0.0
        total: Timing | None = None
        error: float | None = None
        if built.artifact is not None:
            profile = session.evaluator.worker.profile(
                built.artifact,
                len(candidate.plan.groups),
                session.evaluator.sampling,
                session.limit_s,
            )
            timings, failure, seconds = profile.groups, profile.failure, profile.seconds
            total, error = profile.total, profile.max_rel_error
        session.evaluator.spent += Cost(built.cost.codegen, built.cost.compile, seconds)
        session.measured += 1
        took = built.cost.codegen + built.cost.compile + seconds
        self.per_plan_s = 0.5 * (self.per_plan_s + took) if self.plans else took
        self.plans += 1
        if failure is not None:
            self._note_failure(candidate, failure)
            return False
        cost = Cost(built.cost.codegen, built.compile_s, seconds)
        # The whole call was timed as well: a plan to choose from, at no further cost.
        whole = Reply(total, error, None, seconds)
        session.note(session.evaluator.record(candidate, built, whole))
        self._note(candidate, timings, error, cost, built.facts)
        return True

    def _note(
        self, candidate: Candidate, timings: Sequence[Timing], error: float | None, cost: Cost,
        facts: tuple[Facts, ...],
    ) -> None:  # fmt: skip
        fresh: dict[tuple[str, LaunchConfig], list[Timing]] = {}
        keys = self.keys(candidate.plan)
        # A compiler that says nothing leaves its kernels without facts.
        said = dict(zip(zip(keys, candidate.launches, strict=True), facts, strict=False))
        for key, launch, timing in zip(keys, candidate.launches, timings, strict=True):
            if launch not in self._kernel(key).us:
                fresh.setdefault((key, launch), []).append(timing)
        part = 1.0 / max(len(fresh), 1)
        each = Cost(cost.codegen * part, cost.compile * part, cost.measure * part)
        for (key, launch), found in fresh.items():
            timing = sorted(found, key=lambda t: t.median_us)[len(found) // 2]
            self._kernel(key).us[launch] = timing.median_us
            known = said.get((key, launch), ())
            self._keep(
                KernelMeasurement(
                    key, launch_text(launch), self.cache, timing, None, error, each, None, known
                )
            )

    def _note_failure(self, candidate: Candidate, failure: Failure) -> None:
        """One new kernel in a failing plan is the culprit; of several nothing is known yet."""
        self.session.count_failure(failure)
        new = {
            (key, launch)
            for key, launch in zip(self.keys(candidate.plan), candidate.launches, strict=True)
            if launch not in self._kernel(key).us
        }
        if len(new) != 1:
            return
        ((key, launch),) = new
        self._kernel(key).bad.add(launch)
        self._kernel(key).failed = True
        text = launch_text(launch)
        self._keep(KernelMeasurement(key, text, self.cache, None, failure, None, Cost(), None))

    def _keep(self, record: KernelMeasurement) -> None:
        """Store a kernel with its bound and features: models of kernel times learn from them."""
        bound_us = self.bounds[record.group]
        found = group_features(self.graph, self.samples[record.group], bound_us)
        full = replace(record, bound_us=bound_us, facts=(*found.items(), *record.facts))
        self.session.store.add_kernel(self.session.id, self.session.environment, full)

    def measure_whole(self, found: FusionPlan) -> None:
        """The plan end to end: what costs that add up should come to."""
        candidate = self.candidate(found, {})
        self.session.planned = candidate.digest
        record = self.session.measure_once(candidate)
        if record.timing is not None:
            self.session.residual_us = record.timing.median_us - self.cost_us(found.groups)

    def tune_launches(self, found: FusionPlan) -> bool:
        """One round of new configurations for all kernels that matter, tried in one plan.

        Kernels add up, so one run answers one question about each of them. False when every kernel
        has been through its space."""
        asked = self._trials(found)
        if not asked:
            return False
        worked = self.profile(found, {key: trial.launch for key, trial in asked.items()})
        for key, trial in asked.items():
            if not worked and len(asked) > 1 and not self.session.is_over():
                self.profile(found, {key: trial.launch})
            trial.tell(self.by_key[key].us.get(trial.launch))
        return True

    def _trials(self, found: FusionPlan) -> dict[str, Trial]:
        """A configuration never tried for each kernel that has a share in the plan's time."""
        keys, total = self.keys(found), self.cost_us(found.groups)
        asked: dict[str, Trial] = {}
        for key, group in dict(zip(keys, found.groups, strict=True)).items():
            kernel = self.by_key[key]
            heavy = kernel.best[0] * keys.count(key) >= LEAST_SHARE * total
            if heavy and group.body is None:
                problem = LaunchProblem(self.graph, group, self.space)
                trial = next_trial(kernel, problem, self.session.seed)
                if trial is not None:
                    asked[key] = trial
        return asked
