"""One tuning job: what it knows, measures and keeps. It is the bench that its strategy gets.

Every measurement is one committed row before the next begins, so a killed job loses at most the
candidate it was measuring.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from autofuse.cost.bounds import Calibration, candidate_bytes, peak_bytes
from autofuse.devices import DeviceKind
from autofuse.graph.canonical import group_digest
from autofuse.measure.timing.racing import RACE, Race
from autofuse.measure.worker.protocol import Reply
from autofuse.plan.types import (
    Candidate,
    FusionGroup,
    FusionPlan,
    candidate_from_json,
)
from autofuse.records import (
    Blame,
    Cost,
    Environment,
    Event,
    Failure,
    FailureKind,
    KernelMeasurement,
    Measurement,
    Proof,
)
from autofuse.tuning.bench import KnownKernel, Profiled, Standing
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.job.calibrating import Peaks, calibrated
from autofuse.tuning.job.heartbeat import Heartbeat
from autofuse.tuning.job.sharing import Turns
from autofuse.tuning.known_kernels import launch_now
from autofuse.tuning.options import TuneOptions
from autofuse.tuning.result import Progress
from autofuse.tuning.search.default_launches import RecalledLaunches
from autofuse.tuning.search.launches import launch_text
from tuning_db import Lease, Store
from tuning_db.kernels import best_first
from tuning_db.rows import fingerprint

T = TypeVar("T")
# Wall seconds a candidate may take to be checked and timed while nothing tells how long is long.
FIRST_LIMIT_S = 120.0
# A candidate counts as hung after LIMIT_FACTOR times what the slowest baseline took, but never
# before LEAST_LIMIT_S: a busy machine may stall any process for a second or two.
LIMIT_FACTOR = 10.0
LEAST_LIMIT_S = 5.0
ELSEWHERE = Failure(
    FailureKind.TIMEOUT,
    "another job is measuring it, and no more of the budget was left to wait",
    Blame.MACHINE,
)


class Job:
    """See `autofuse.tuning.bench.Bench` for what a strategy may use."""

    def __init__(
        self, kind: DeviceKind, store: Store, evaluator: Evaluator, heartbeat: Heartbeat,
        options: TuneOptions, peaks: Peaks,
    ) -> None:  # fmt: skip
        self.kind, self.store, self.options, self.peaks = kind, store, options, peaks
        self.backend = kind.backend
        self.evaluator, self.heartbeat = evaluator, heartbeat
        self.graph, self.digest = evaluator.graph, evaluator.digest
        # All rules and the search ask about the same kernels.
        self.space = RecalledLaunches(self.graph, kind.space)
        self.budget, self.seed, self.max_memory = evaluator.budget, options.seed, options.max_memory
        self.environment: Environment = kind.backend.environment()
        self.session = 0
        self.sharing = Turns(store)
        self.stored: dict[str, Measurement] = {}
        self.best: Measurement | None = None
        self.failed: dict[str, int] = {}
        self.modes: Counter[str] = Counter()
        self.measured = 0
        self.standing = Standing()
        self.bound_us: float | None = None  # what no plan can be below, once peaks are known
        # What baselines made of the graph, and those that were measured.
        self.plans: dict[str, FusionPlan] = {}
        self.at_hand: list[Candidate] = []  # what could serve if nothing was measured, best first
        self.baselines: dict[str, Measurement] = {}

    # --- what a strategy may use ------------------------------------------------------------

    @property
    def cache(self) -> str:
        return self.evaluator.sampling.cache

    def place(self, what: str) -> str:
        """What is done for this workload, device and cache state, as leases call it."""
        return ":".join((what, fingerprint(self.environment), self.digest, self.cache))

    def calibration(self) -> Calibration:
        """The device's peaks; they are there already unless the user stopped before they were."""
        if self.peaks.found is None:
            self.peaks = calibrated(self.kind, self.store, self.show, lambda: False)
        assert self.peaks.found is not None
        return self.peaks.found

    def is_over(self) -> bool:
        return self.budget.is_over()

    def left_s(self) -> float:
        return self.budget.search_s

    def fits(self, plan: FusionPlan) -> bool:
        return self.max_memory is None or peak_bytes(self.graph, plan) <= self.max_memory

    def known(self, candidate: Candidate) -> Measurement | None:
        record = self.stored.get(candidate.digest)
        return record if record is not None and self._is_current(record, candidate) else None

    def measure(self, candidate: Candidate) -> Measurement:
        return self.known(candidate) or self.measure_now(candidate, "search")

    def prepare(self, candidates: Sequence[Candidate]) -> float:
        return self.evaluator.prepare(candidates)

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        self.evaluator.ahead(candidates)

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        known = self._turn("profile", candidate, lambda: self._profiled(candidate), self.is_over)
        if known is not None:
            return known
        if self.sharing.is_elsewhere:
            return Profiled((), ELSEWHERE, None, Cost(), 0.0)
        race = Race(tuple(rivals_us), self._best_us)
        built, profile = self.evaluator.profile(candidate, self.limit_s, race)
        self.measured += 1
        spent = built.cost.codegen + built.cost.compile + profile.seconds
        cost = Cost(built.cost.codegen, built.compile_s, profile.seconds)
        codes = self.evaluator.codes(candidate)
        if profile.failure is not None:
            self.count_failure(profile.failure)
            return Profiled((), profile.failure, None, cost, spent, codes=codes)
        # The whole call was timed as well: a plan to choose from, at no further cost.
        whole = Reply(profile.total, profile.max_rel_error, None, profile.seconds)
        self._note(self.evaluator.record(candidate, built, whole))
        return Profiled(profile.groups, None, whole.max_rel_error, cost, spent, built.facts, codes)

    def _turn(
        self,
        what: str,
        candidate: Candidate,
        known: Callable[[], T | None],
        is_over: Callable[[], bool],
    ) -> T | None:
        """See `Turns.turn`."""
        return self.sharing.turn(f"{self.place(what)}:{candidate.digest}", known, is_over)

    def _profiled(self, candidate: Candidate) -> Profiled | None:
        """All kernels of a plan as other jobs measured them; None unless they know all."""
        codes = self.evaluator.codes(candidate)
        keys = [group_digest(self.graph, g.nodes, g.outputs) for g in candidate.plan.groups]
        stored = self.store.kernels(self.environment, set(keys))
        wanted = zip(keys, map(launch_text, candidate.launches), codes, strict=False)
        found = [stored.get((key, launch, self.cache, code)) for key, launch, code in wanted]
        timed = [one.timing for one in found if one is not None and one.timing is not None]
        if len(timed) < len(keys):
            return None
        if (whole := self._peers(candidate)) is not None:
            self._learn(whole)
        return Profiled(tuple(timed), None, None, Cost(), 0.0, codes=codes, recalled=True)

    def _peers(self, candidate: Candidate) -> Measurement | None:
        """What other jobs have measured of a candidate in this cache state, as it is now."""
        found = self.store.latest(self.environment, self.digest, candidate.digest)
        if found is None or not self._is_current(found, candidate):
            return None
        alike = found.timing is None or found.timing.cache == self.cache
        return found if alike else None

    def _learn(self, record: Measurement) -> None:
        """Take over what another job has measured."""
        if record.candidate_digest not in self.stored:
            self.stored[record.candidate_digest] = record
            self._improve(record)

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        self._news()  # from now on
        stored = self.store.kernels(self.environment, set(groups))
        for _, record in best_first(stored):
            yield from self._known_kernel(record, groups)

    def news(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        for record in self._news():
            yield from self._known_kernel(record, groups)

    def _news(self) -> Sequence[KernelMeasurement]:
        return self.sharing.news(self.environment, self.digest, self.session)

    def _known_kernel(
        self, record: KernelMeasurement, groups: Mapping[str, FusionGroup]
    ) -> Iterator[KnownKernel]:
        """One of these groups in this cache state, if it would be compiled to the same code now."""
        group = groups.get(record.group)
        if group is None or record.cache != self.cache:
            return
        launch = launch_now(self.backend, self.graph, group, record, self.space)
        if launch is not None:
            us, dropped = None, False
            if (timing := record.timing) is not None:  # only what passed is timed
                self.evaluator.verified.add(record.code)
                us, dropped = timing.median_us, timing.stopped == RACE
            yield KnownKernel(record.group, launch, us, dropped)

    def keep_kernels(self, records: Sequence[KernelMeasurement]) -> None:
        self.store.add_kernels(self.session, self.environment, records)

    def tell(self, standing: Standing) -> None:
        self.standing = standing
        self.show(standing.phase)

    # --- what is known ----------------------------------------------------------------------

    def recall(self) -> None:
        """Start from what earlier jobs measured in this cache state; again: go on with what others
        have measured since."""
        for digest, record in self.sharing.measured(self.environment, self.digest).items():
            alike = record.timing is None or record.timing.cache == self.cache
            if alike and not self.backend.forbids(record.candidate):
                self.stored[digest] = record
        for record in self.ranked(1):
            self._improve(record)

    def _is_current(self, record: Measurement, candidate: Candidate) -> bool:
        """Whether a record is of the code that the candidate would be compiled to now."""
        return record.code == self.evaluator.code(candidate)

    def record_fits(self, record: Measurement) -> bool:
        """Whether a measured plan fits the memory."""
        if self.max_memory is None:
            return True
        return candidate_bytes(self.graph, candidate_from_json(record.candidate)) <= self.max_memory

    def lacking(self, record: Measurement) -> str:
        """What a measured plan calls that is not here, in a sentence; "" where nothing is."""
        return self.backend.lacking(candidate_from_json(record.candidate))

    def ranked(self, most: int) -> list[Measurement]:
        """At most so many records of what works, is current and fits the memory, fastest first."""
        timed = [(m.timing.median_us, d) for d, m in self.stored.items() if m.timing is not None]
        works = (self.stored[digest] for _, digest in sorted(timed))
        current = (m for m in works if self._is_current(m, candidate_from_json(m.candidate)))
        return list(islice((m for m in current if self.record_fits(m)), most))

    # --- measuring and keeping --------------------------------------------------------------

    @property
    def limit_s(self) -> float:
        """Wall seconds after which a candidate counts as hung."""
        took = [m.cost.measure for m in self.baselines.values() if m.timing is not None]
        if not took:
            return FIRST_LIMIT_S
        return min(max(LEAST_LIMIT_S, LIMIT_FACTOR * max(took)), FIRST_LIMIT_S)

    @property
    def _best_us(self) -> float:
        """What the best plan by now takes, whole; infinite before there is one."""
        found = None if self.best is None else self.best.timing
        return math.inf if found is None else found.median_us

    @property
    def spent(self) -> Cost:
        """All seconds of the budget until now by where they went: what is neither writing nor
        compiling nor measuring, planning above all, is the sampler's."""
        spent = self.evaluator.spent
        others = self.budget.elapsed_s - spent.total
        return replace(spent, sampler=spent.sampler + max(others, 0.0))

    def measure_now(
        self, candidate: Candidate, stage: str, until_s: float = math.inf
    ) -> Measurement:
        """Measure and keep one candidate, or wait for who does; `until_s`: when it must end, in
        seconds of the budget. While nothing works yet it is waited for in any case: to measure it
        as well would take no less."""

        def is_over() -> bool:
            works = any(record.timing is not None for record in self.stored.values())
            return works and (self.is_over() or self.budget.elapsed_s >= until_s)

        known = self._turn("measure", candidate, lambda: self._peers(candidate), is_over)
        if known is not None:
            self._learn(known)
            return known
        if self.sharing.is_elsewhere:
            return self.evaluator.unmeasured(candidate, ELSEWHERE, stage)
        record = self.evaluator(candidate, self.limit_s, stage, until_s, Race((), self._best_us))
        self.measured += 1
        self.keep(record, self.sharing.spend())
        self._improve(record)
        return record

    def keep(self, record: Measurement, lease: Lease | None = None) -> None:
        """Store a record, under a `lease` unless it was lost; it is what is known of its candidate
        from now on."""
        self.store.add_measurement(self.session, self.environment, record, lease)
        self._kept(record)

    def keep_compared(self, records: Sequence[Measurement]) -> bool:
        """Store what was timed together; False, and nothing is kept, where others compare now."""
        lease = self.sharing.lease
        if records and not self.store.add_comparison(
            self.session, self.environment, records, lease
        ):
            return False
        for record in records:
            self._kept(record)
        return True

    def _kept(self, record: Measurement) -> None:
        self.stored[record.candidate_digest] = record
        if record.failure is not None:
            self.count_failure(record.failure)
        if record.timing is not None:
            self.modes[record.timing.mode] += 1

    def count_failure(self, failure: Failure) -> None:
        self.failed[failure.kind.value] = self.failed.get(failure.kind.value, 0) + 1

    def _note(self, record: Measurement) -> None:
        """Keep what a profile measured, unless the candidate is known already or was not timed in
        the way that others are: the two cannot be ranked."""
        modes = {m.timing.mode for m in self.baselines.values() if m.timing is not None}
        alike = record.timing is not None and record.timing.mode in modes
        if alike and record.candidate_digest not in self.stored:
            self.keep(record)
            self._improve(record)

    def _improve(self, record: Measurement) -> None:
        if record.timing is None or not self.record_fits(record):
            return
        if record.timing.median_us < self._best_us:
            self.best = record
            self.event(record)

    @property
    def proof(self) -> Proof:
        """What the search has proved by now, with the bound of the graph."""
        return replace(self.standing.proof, bound_us=self.bound_us)

    def event(self, record: Measurement) -> None:
        """Keep that the incumbent is this record now."""
        assert record.timing is not None
        self.store.add_event(
            self.session,
            Event(
                self.standing.trials, self.spent, record.timing.median_us,
                record.candidate_digest, record.origin, self.proof,
            ),
        )  # fmt: skip

    def show(self, phase: str) -> None:
        """Tell whoever watches where the job stands."""
        timed = {n: m.timing.median_us for n, m in self.baselines.items() if m.timing is not None}
        name = min(timed, key=lambda n: timed[n]) if timed else ""
        best = self.best.timing.median_us if self.best is not None and self.best.timing else None
        self.heartbeat.tell(
            Progress(
                best_us=best,
                baseline_us=timed.get(name),
                baseline=name,
                trials=self.standing.trials,
                measured=self.measured,
                failed=dict(self.failed),
                left_s=self.budget.left_s,
                phase=phase,
                proof=self.proof,
            )
        )
