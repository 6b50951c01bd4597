"""tune: search, measure and keep; a killed session loses at most the candidate it was measuring."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from autofuse.baselines import BASELINES, baseline_named
from autofuse.cost.bounds import peak_bytes
from autofuse.devices import DeviceKind, timed_device
from autofuse.graph.canonical import canonical, digest, text
from autofuse.graph.types import Graph
from autofuse.measure.session import Worker
from autofuse.measure.timing import Sampling
from autofuse.measure.workload import Workload
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate, FusionPlan, candidate_from_json
from autofuse.records import Cost, Environment, Event, Failure, Measurement, SessionResult
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.evaluate import Evaluator
from autofuse.tuning.finals import Final, decide, likely
from autofuse.tuning.plans import baseline_candidate
from autofuse.tuning.result import Progress, TuneResult
from tuning_db import Store

# Seconds that a final comparison takes at most.
FINAL_S = 8.0
# Wall seconds a baseline may take to be checked and timed: nothing tells yet how long is long.
BASELINE_LIMIT_S = 120.0
# A candidate counts as hung after LIMIT_FACTOR times what the slowest baseline took, but never
# before LEAST_LIMIT_S: a busy machine may stall any process for a second or two.
LIMIT_FACTOR = 10.0
LEAST_LIMIT_S = 5.0


def tune(
    graph: Graph,
    *,
    name: str = "",
    device: str = "auto",
    target: str = "",
    db: str | None = None,
    budget_s: float = 60.0,
    strategy: str = "exact",
    gap: float = 0.0,
    runs: float | None = None,
    max_memory: int | None = None,
    cache: str = "auto",
    seed: int = 0,
    options: Mapping[str, str] | None = None,
    baselines: Sequence[str] = (),
    progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TuneResult:
    """Find the best plan of `graph` within `budget_s` seconds, counting everything.

    `baselines` (none named: all) are measured first and never beat the result. What the database
    knows is not measured again. `strategy` "exact" stops early once no plan of its kernels can be
    better by more than the fraction `gap`, or, given `runs`, once so many runs of the plan could no
    longer gain what measuring would take. `max_memory` bounds the bytes of intermediates alive at
    once: a plan over it is never the result, be it a baseline. `cache`: the state that plans are
    timed in, "cold" or "warm"; "auto" is warm where the arrays of every plan fit the last-level
    cache.

    Raises AutofuseError for an unknown device, strategy or cache state, an unusable database, or a
    graph none of whose plans works and fits the memory."""
    begun = time.perf_counter()
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise AutofuseError(f"the budget must be positive, not {budget_s:g} seconds")
    if not gap >= 0 or (runs is not None and not runs > 0):
        raise AutofuseError("the gap must not be negative, and the number of runs must be positive")
    if max_memory is not None and max_memory < 0:
        raise AutofuseError(f"the memory cannot be bounded by {max_memory} bytes")
    if seed < 0:
        raise AutofuseError(f"the seed must not be negative, as {seed} is")
    for rule in baselines:
        baseline_named(rule)
    kind = timed_device(device, target)
    search = strategy_named(strategy, seed, gap, runs, options or {})
    graph = canonical(graph)
    state = cache_state(cache, graph, kind)
    with Store.open(db) as store, Worker(Workload(graph, seed), hardware=kind.timer) as worker:
        session = Session(graph, name, kind, store, worker, budget_s, seed, begun, state)
        session.progress = progress or (lambda _: None)
        session.stop = stop or (lambda: False)
        session.max_memory = max_memory
        session.rules = tuple(baselines) or tuple(BASELINES)
        return session.run(strategy, search)


Search = Callable[["Session"], None]


def strategy_named(
    name: str, seed: int, gap: float, runs: float | None, options: Mapping[str, str]
) -> Search:
    """What a strategy does with a session; raises AutofuseError for an unknown one."""
    from autofuse.tuning.strategies import make_search  # strategies are written against sessions

    return make_search(name, seed, gap, runs, options)


class Session:
    """One tuning session and what it has learned so far."""

    def __init__(
        self, graph: Graph, name: str, device: DeviceKind, store: Store, worker: Worker,
        budget_s: float, seed: int, begun: float, cache: str,
    ) -> None:  # fmt: skip
        self.begun = begun
        self.graph, self.name, self.device, self.store = graph, name, device, store
        self.backend = device.backend
        self.digest, self.seed, self.budget_s = digest(graph), seed, budget_s
        self.environment: Environment = self.backend.environment()
        self.evaluator = Evaluator(self.backend, graph, self.digest, worker, Sampling(cache))
        self.known: dict[str, Measurement] = {}
        self.rules: tuple[str, ...] = tuple(BASELINES)
        self.baselines: dict[str, Measurement] = {}
        self.notes: list[str] = []
        self.failed: dict[str, int] = {}
        self.trials = self.measured = 0
        self.sampler_s = 0.0
        self.plans: dict[str, FusionPlan] = {}
        # What a planner that proves something says: the sum of its plan's kernel times, what no
        # plan can be below and the residual in microseconds; how far off it can be, as a
        # fraction; whether this holds for the "whole" graph or "per window".
        self.planned_us: float | None = None
        self.bound_us: float | None = None
        self.gap: float | None = None
        self.residual_us: float | None = None
        # The digest of that plan's candidate.
        self.planned = ""
        self.certificate: str | None = None
        # What a strategy that learns says of its model.
        self.model: Mapping[str, object] | None = None
        self.max_memory: int | None = None
        self.counts: dict[str, int] = {}
        self.best: Measurement | None = None
        self.progress: Callable[[Progress], None] = lambda _: None
        self.stop: Callable[[], bool] = lambda: False

    def run(self, strategy: str, search: Search) -> TuneResult:
        """Baselines, search, final comparison, record."""
        self.store.add_workload(self.digest, text(self.graph), self.name, len(self.graph.nodes))
        self.id = self.store.start_session(
            self.environment, self.digest, strategy, self.seed, self.budget_s
        )
        self._recall()
        self._measure_baselines()
        search(self)
        return self._finish(strategy)

    @property
    def elapsed_s(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def spent(self) -> Cost:
        return self.evaluator.spent + Cost(sampler=self.sampler_s)

    @property
    def reserve_s(self) -> float:
        """Seconds of the budget kept for the final comparison."""
        return min(0.15 * self.budget_s, 8.0)

    @property
    def _final_s(self) -> float:
        """Seconds of each of two final comparisons: more where the search has left some."""
        left = max(self.budget_s - self.elapsed_s, self.reserve_s)
        return max(0.5, min(left / 2, FINAL_S))

    def is_over(self) -> bool:
        """Whether the search must end to leave time for the final comparison."""
        return self.stop() or self.elapsed_s > self.budget_s - self.reserve_s

    @property
    def limit_s(self) -> float:
        """Wall seconds after which a candidate counts as hung."""
        took = [m.cost.measure for m in self.baselines.values() if m.timing is not None]
        if not took:
            return BASELINE_LIMIT_S
        return min(max(LEAST_LIMIT_S, LIMIT_FACTOR * max(took)), BASELINE_LIMIT_S)

    def _recall(self) -> None:
        """Start from what earlier sessions measured."""
        stored = self.store.measured(self.environment, self.digest)
        state = self.evaluator.sampling.cache
        self.known = {
            d: m for d, m in stored.items() if m.timing is None or m.timing.cache == state
        }
        ranked = self._ranked()
        if ranked:
            self._improve(ranked[0])

    def fits(self, plan: FusionPlan) -> bool:
        """Whether the intermediates of a plan fit the memory that was asked for."""
        return self.max_memory is None or peak_bytes(self.graph, plan) <= self.max_memory

    def _record_fits(self, record: Measurement) -> bool:
        return self.max_memory is None or self.fits(candidate_from_json(record.candidate).plan)

    def _ranked(self) -> list[Measurement]:
        """What works and fits the memory, fastest first."""
        timed = [(m.timing.median_us, d) for d, m in self.known.items() if m.timing is not None]
        return [self.known[d] for _, d in sorted(timed) if self._record_fits(self.known[d])]

    def _measure_baselines(self) -> None:
        for name in self.rules:
            candidate, cut = baseline_candidate(self.graph, name, self.device.space)
            if cut:
                self.notes.append(f"{cut} groups of {name} had to be cut: no kernel can be them")
            self.plans[name] = candidate.plan
            record = self.known.get(candidate.digest)
            if record is None:
                record = self._measure(candidate, "baseline", BASELINE_LIMIT_S)
            self.baselines[name] = record
            if not self.fits(candidate.plan):
                need = peak_bytes(self.graph, candidate.plan)
                self.notes.append(f"{name} needs {need} bytes of memory, more than allowed")
            self.tell(f"baseline {name}")

    def _measure(self, candidate: Candidate, stage: str, limit_s: float) -> Measurement:
        record = self.evaluator(candidate, limit_s, stage)
        self.measured += 1
        self._keep(record)
        self._improve(record)
        return record

    def _keep(self, record: Measurement) -> None:
        self.store.add_measurement(self.id, self.environment, record)
        self.known[record.candidate_digest] = record
        if record.failure is not None:
            self.count_failure(record.failure)

    def _improve(self, record: Measurement) -> None:
        if record.timing is None or not self._record_fits(record):
            return
        best = self.best.timing if self.best is not None else None
        if best is None or record.timing.median_us < best.median_us:
            self.best = record
            self._event(record)

    def _event(self, record: Measurement) -> None:
        assert record.timing is not None
        us, digest = record.timing.median_us, record.candidate_digest
        event = Event(
            self.trials,
            self.spent,
            us,
            digest,
            record.origin,
            self.bound_us,
            self.gap,
            self.residual_us,
        )
        self.store.add_event(self.id, event)

    def note(self, record: Measurement) -> None:
        """Keep what a strategy measured by itself, unless the candidate is known already or was
        not timed in the way that others are: the two cannot be ranked."""
        modes = {m.timing.mode for m in self.baselines.values() if m.timing is not None}
        alike = record.timing is not None and record.timing.mode in modes
        if alike and record.candidate_digest not in self.known:
            self._keep(record)
            self._improve(record)

    def measure(self, candidate: Candidate) -> Measurement:
        """Measure and keep one candidate of the search."""
        return self._measure(candidate, "search", self.limit_s)

    def measure_once(self, candidate: Candidate) -> Measurement:
        """What is known of a candidate, measured now if nothing is."""
        return self.known.get(candidate.digest) or self.measure(candidate)

    def count_failure(self, failure: Failure) -> None:
        self.failed[failure.kind.value] = self.failed.get(failure.kind.value, 0) + 1

    def tell(self, phase: str) -> None:
        timed = {n: m.timing.median_us for n, m in self.baselines.items() if m.timing is not None}
        name = min(timed, key=lambda n: timed[n]) if timed else ""
        best = self.best.timing.median_us if self.best is not None and self.best.timing else None
        self.progress(
            Progress(
                best_us=best,
                baseline_us=timed.get(name),
                baseline=name,
                trials=self.trials,
                measured=self.measured,
                failed=dict(self.failed),
                left_s=max(self.budget_s - self.elapsed_s, 0.0),
                phase=phase,
                gap=self.gap,
            )
        )

    def _finish(self, strategy: str) -> TuneResult:
        interrupted = self.stop()
        self.tell("final comparison")
        final = self._decide(0.5 if interrupted else self._final_s)
        if final is None:
            self._close(strategy, "", None, finished=not interrupted)
            raise AutofuseError(self._no_plan())
        self._keep(final.record)
        if self.planned_us is not None and final.record.candidate_digest == self.planned:
            self.residual_us = final.best_us - self.planned_us
        self._event(final.record)
        self._close(strategy, final.record.candidate_digest, final, finished=not interrupted)
        return self._result(strategy, final, interrupted)

    def _decide(self, seconds: float) -> Final | None:
        """The winner of the last comparison; one that fails in it gives its place to the next."""
        while ranked := self._ranked():
            baselines = {n: m for n, m in self.baselines.items() if self._record_fits(m)}
            decision = decide(
                self.evaluator, likely(ranked), baselines, seconds, self.seed, self.limit_s
            )
            for record in decision.failed:
                self._keep(record)
                for name, baseline in self.baselines.items():
                    if baseline.candidate_digest == record.candidate_digest:
                        self.baselines[name] = record
            if decision.final is not None:
                return decision.final
        return None

    def _no_plan(self) -> str:
        """Why no plan can be the result."""
        works = [m for m in self.known.values() if m.timing is not None]
        if works:
            plans = (candidate_from_json(m.candidate).plan for m in works)
            least = min(peak_bytes(self.graph, plan) for plan in plans)
            return (
                f"no plan was found that fits {self.max_memory} bytes of intermediates: "
                f"the least that was measured needs {least}"
            )
        failures = (m.failure for m in self.known.values() if m.failure is not None)
        found = next(failures, None)
        text = "nothing was measured" if found is None else f"{found.kind.value}: {found.message}"
        return f"no plan of this graph works: {text}"

    def _close(self, strategy: str, best: str, final: Final | None, finished: bool) -> None:
        result = SessionResult(
            strategy=strategy,
            seed=self.seed,
            budget_s=self.budget_s,
            spent=self.spent,
            trials=self.trials,
            measured=self.measured,
            failed=tuple(sorted(self.failed.items())),
            best_digest=best,
            baselines=tuple((n, m.candidate_digest) for n, m in self.baselines.items()),
            verdicts=final.verdicts if final is not None else (),
            finished=finished,
            gap=self.gap,
            residual_us=self.residual_us,
        )
        self.store.finish_session(self.id, result)

    def _result(self, strategy: str, final: Final, interrupted: bool) -> TuneResult:
        record = final.record
        return TuneResult(
            name=self.name,
            digest=self.digest,
            nodes=len(self.graph.nodes),
            device=self.backend.name,
            strategy=strategy,
            seed=self.seed,
            budget_s=self.budget_s,
            spent=self.spent,
            trials=self.trials,
            measured=self.measured,
            failed=dict(self.failed),
            best=candidate_from_json(record.candidate, record.origin),
            best_record=record,
            best_us=final.best_us,
            baselines=dict(self.baselines),
            baseline_us=final.baseline_us,
            verdicts=final.verdicts,
            verified=record.max_rel_error is not None,
            interrupted=interrupted,
            total_s=self.elapsed_s,
            notes=tuple(self.notes),
            cache=self.evaluator.sampling.cache,
            gap=self.gap,
            planned_us=self.planned_us,
            bound_us=self.bound_us,
            certificate=self.certificate,
            model=self.model,
            peak_bytes=peak_bytes(self.graph, candidate_from_json(record.candidate).plan),
            residual_us=self.residual_us,
            counts=dict(self.counts),
        )
