"""The exact strategy: candidate kernels, a 0/1 program over them, and plans that measure kernels.

A kernel is timed inside a plan that uses it, so in the cache state it will meet, and every plan is
checked whole against the reference. Costs are optimistic until measured; what the least plan by
these costs is made of is measured next. When it is all measured, no plan of the enumerated kernels
is better (by added costs); until then incumbent and bound say how far off it can be.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.cost import Calibration
from autofuse.plan.enumerate import enumerate_groups
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, Failure, KernelMeasurement, Timing
from autofuse.search import make_searcher
from autofuse.search.exact import Measured, Options, Piece, Step, k_best, plan
from autofuse.search.protocol import Chooser, Outcome, Proposal, Searcher
from autofuse.tuning.cover import Cover, cover_problem
from autofuse.tuning.evaluate import build
from autofuse.tuning.problem import default_candidate
from autofuse.tuning.session import Session
from search_spaces import SPACES, FusionSpace
from search_spaces.launch import LaunchSpace

# Rounds of new launch configurations between two times of planning.
ROUNDS = 4
# A kernel whose part of the plan is below this is not worth tuning.
LEAST_SHARE = 0.02
# Far below any real cost: a piece this cheap is in the least plan if it can be in any.
ALMOST_FREE = 1e-6


@dataclass
class Kernel:
    """What is known of one kernel (all pieces of one key): microseconds by launch configuration."""

    us: dict[LaunchConfig, float] = field(default_factory=dict)
    failed: bool = False
    searcher: Searcher | None = None

    @property
    def best(self) -> tuple[float, LaunchConfig]:
        """The least time and its configuration; only for a kernel that was measured."""
        launch = min(self.us, key=lambda c: (self.us[c], str(c)))
        return self.us[launch], launch


class ExactSearch:
    """One session's exact planning."""

    def __init__(
        self, session: Session, calibration: Calibration, gap: float, runs: float | None
    ) -> None:
        self.session, self.graph = session, session.graph
        self.space: LaunchSpace = SPACES[session.backend.name]
        self.gap, self.runs = gap, runs
        self.cover = self._cover(calibration)
        self.kernels: dict[str, Kernel] = {}
        self.cache = session.evaluator.sampling.cache
        self.per_plan_s = 1.0
        self._recall()

    def _cover(self, calibration: Calibration) -> Cover:
        """Candidate kernels, among them those of every baseline and of everything fused."""
        spaces = FusionSpace(self.graph)
        self.fused = spaces.choose(lambda _, options: options[0])
        include = [*self.session.plans.values(), self.fused]
        bodies: dict[int, list[FusionPlan]] = {n: [] for n in spaces.loops}
        for n, inner in spaces.loops.items():
            found = [inner.choose(lambda _, options: options[0])]
            for other in include:
                found += [g.body for g in other.groups if g.body is not None and g.nodes == (n,)]
            bodies[n] = list(dict.fromkeys(found))
        warm = self.session.evaluator.sampling.cache == "warm"
        enumeration = enumerate_groups(
            self.graph, include=include, bodies=bodies, calibration=calibration, warm=warm
        )
        self.session.counts = dict(enumeration.counts)
        return cover_problem(enumeration, digests=True)

    def _recall(self) -> None:
        """Times of these kernels that the database has for this device, from whatever graph."""
        keys = {piece.key for piece in self.cover.problem.pieces}
        stored = self.session.store.kernels(self.session.environment, keys)
        for (key, _, cache), record in stored.items():
            if cache != self.cache:
                continue
            kernel = self.kernels.setdefault(key, Kernel())
            launch = launch_of(record.launch)
            if record.timing is not None:
                kernel.us[launch] = record.timing.median_us
            elif record.failure is not None and not kernel.us:
                kernel.failed = True

    def known(self) -> dict[str, Measured]:
        """Measured costs by key, each kernel at its best configuration."""
        found: dict[str, Measured] = {}
        for key, kernel in self.kernels.items():
            if kernel.us:
                found[key] = Measured(kernel.best[0])
            elif kernel.failed:
                found[key] = Measured(None)
        return found

    def run(self) -> None:
        """Plan, tune the kernels of the plan, and plan again while there is budget."""
        plans = (self.fused, *self.session.plans.values())
        start = [p for p in map(self.cover.pieces_of, plans) if p]
        if not self.session.is_over():
            self.session.measure_once(
                default_candidate(self.graph, self.fused, self.space, "fused")
            )
        while True:
            result = self._plan(start)
            if result is None:
                return
            chosen, stopped = result
            self._measure_whole(chosen)
            rounds = 0
            while rounds < ROUNDS and not self.session.is_over() and self._tune_launches(chosen):
                rounds += 1
            if not rounds or stopped == "runs":
                return

    def _plan(self, start: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], str] | None:
        begun, before = time.perf_counter(), self.session.evaluator.spent.total
        result = plan(
            self.cover.problem,
            self._measured,
            options=Options(self.gap, 16, False, self.runs, lambda _: self.per_plan_s),
            start=start,
            known=self.known(),
            prepare=self._prepare,
            should_stop=self.session.is_over,
            on_step=self._on_step,
        )
        solving = time.perf_counter() - begun - (self.session.evaluator.spent.total - before)
        self.session.sampler_s += max(solving, 0.0)
        return None if result.plan is None else (result.plan, result.stopped)

    def _on_step(self, step: Step) -> None:
        self.session.trials += 1
        self.session.bound_us, self.session.gap = step.bound_us, step.gap
        self.session.tell("planning")

    def _measured(self, piece: Piece) -> Measured:
        kernel = self.kernels.get(piece.key)
        if kernel is None or not kernel.us:
            return Measured(None)
        return Measured(kernel.best[0])

    def _prepare(self, batch: Sequence[Piece]) -> None:
        """Measure kernels in as few plans as hold them all."""
        todo = {piece.key for piece in batch} - set(self.known())
        while todo and not self.session.is_over():
            chosen = self._plan_with(todo)
            new = self._unknown(chosen) if chosen is not None else set()
            if chosen is None or not new & todo:
                for key in todo:  # in no plan at any price: nothing can be said of it here
                    self.kernels.setdefault(key, Kernel()).failed = True
                return
            if not self._profile(chosen, {}) and len(new) > 1:
                self._find_culprits(new)
            todo -= set(self.known())

    def _plan_with(
        self, wanted: set[str], without: frozenset[str] = frozenset()
    ) -> tuple[int, ...] | None:
        """The least plan when the wanted kernels cost next to nothing."""
        costs: dict[str, float | None] = {k: m.cost_us for k, m in self.known().items()}
        costs |= dict.fromkeys(wanted, ALMOST_FREE)
        costs |= dict.fromkeys(without)
        try:
            return k_best(self.cover.problem, costs, 1)[0].plan
        except AutofuseError:  # no plan is left without those
            return None

    def _unknown(self, chosen: Sequence[int]) -> set[str]:
        known = self.known()
        return {k for k in (self.cover.problem.pieces[p].key for p in chosen) if k not in known}

    def _find_culprits(self, suspects: set[str]) -> None:
        """A plan failed and several kernels in it were new: try them one at a time."""
        for key in sorted(suspects):
            others = frozenset(suspects - {key})
            chosen = self._plan_with({key}, others)
            if chosen is None or self._unknown(chosen) != {key}:
                self.kernels.setdefault(key, Kernel()).failed = True
            else:
                self._profile(chosen, {})

    def candidate(
        self, chosen: Sequence[int], trial: Mapping[str, LaunchConfig], origin: str = "exact"
    ) -> Candidate:
        """A plan with the best known configuration of every kernel, or the one on trial."""
        base = default_candidate(self.graph, self.cover.plan(chosen), self.space, origin)
        keys = self._keys(base.plan)
        launches = [
            trial.get(key) or self._best_launch(key, default)
            for key, default in zip(keys, base.launches, strict=True)
        ]
        return Candidate(base.plan, tuple(launches), base.bodies, origin)

    def _best_launch(self, key: str, default: LaunchConfig) -> LaunchConfig:
        kernel = self.kernels.get(key)
        return kernel.best[1] if kernel is not None and kernel.us else default

    def _keys(self, found: FusionPlan) -> list[str]:
        places = self._places
        return [places[group] for group in found.groups]

    @property
    def _places(self) -> dict[FusionGroup, str]:
        pieces = self.cover.problem.pieces
        return {self.cover.group(i): piece.key for i, piece in enumerate(pieces)}

    def _profile(self, chosen: Sequence[int], trial: Mapping[str, LaunchConfig]) -> bool:
        """Build and run one plan; every kernel in it that is new gets its time."""
        candidate = self.candidate(chosen, trial)
        session, begun = self.session, time.perf_counter()
        built = build(session.backend, self.graph, candidate)
        groups: tuple[Timing, ...] = ()
        failure, seconds = built.failure, 0.0
        error: float | None = None
        if built.artifact is not None:
            profile = session.evaluator.worker.profile(
                built.artifact,
                len(candidate.plan.groups),
                session.evaluator.sampling,
                session.limit_s,
            )
            groups, failure, seconds = profile.groups, profile.failure, profile.seconds
            error = profile.max_rel_error
        session.evaluator.spent += Cost(built.cost.codegen, built.cost.compile, seconds)
        session.measured += 1
        self.per_plan_s = 0.5 * (self.per_plan_s + time.perf_counter() - begun)
        if failure is not None:
            self._note_failure(candidate, failure)
            return False
        share = Cost(built.cost.codegen, built.compile_s, seconds)
        self._note(candidate, groups, error, share)
        return True

    def _note(
        self, candidate: Candidate, timings: Sequence[Timing], error: float | None, cost: Cost
    ) -> None:
        fresh: dict[tuple[str, LaunchConfig], list[Timing]] = {}
        for key, launch, timing in zip(
            self._keys(candidate.plan), candidate.launches, timings, strict=True
        ):
            kernel = self.kernels.setdefault(key, Kernel())
            if launch not in kernel.us:
                fresh.setdefault((key, launch), []).append(timing)
        part = 1.0 / max(len(fresh), 1)
        each = Cost(cost.codegen * part, cost.compile * part, cost.measure * part)
        for (key, launch), found in fresh.items():
            timing = sorted(found, key=lambda t: t.median_us)[len(found) // 2]
            self.kernels[key].us[launch] = timing.median_us
            record = KernelMeasurement(
                key, launch_text(launch), self.cache, timing, None, error, each, None
            )
            self.session.store.add_kernel(self.session.id, self.session.environment, record)

    def _note_failure(self, candidate: Candidate, failure: Failure) -> None:
        """One new kernel in a failing plan is the culprit; of several nothing is known yet."""
        self.session.count_failure(failure)
        new = {
            (key, launch)
            for key, launch in zip(self._keys(candidate.plan), candidate.launches, strict=True)
            if launch not in self.kernels.setdefault(key, Kernel()).us
        }
        if len(new) != 1:
            return
        ((key, launch),) = new
        if not self.kernels[key].us:
            self.kernels[key].failed = True
        record = KernelMeasurement(
            key, launch_text(launch), self.cache, None, failure, None, Cost(), None
        )
        self.session.store.add_kernel(self.session.id, self.session.environment, record)

    def _measure_whole(self, chosen: Sequence[int]) -> None:
        """The plan end to end: what costs that add up should come to."""
        candidate = self.candidate(chosen, {})
        record = self.session.measure_once(candidate)
        if record.timing is not None:
            total = sum(self.kernels[key].best[0] for key in self._keys(candidate.plan))
            self.session.residual_us = record.timing.median_us - total

    def _tune_launches(self, chosen: Sequence[int]) -> bool:
        """One round of new configurations for all kernels that matter, tried in one plan.

        Kernels add up, so one run answers one question about each of them. False when every kernel
        has been through its space."""
        keys = self._keys(self.cover.plan(chosen))
        total = sum(self.kernels[key].best[0] for key in keys)
        counts = {key: keys.count(key) for key in keys}
        asked: dict[str, tuple[Searcher, Proposal]] = {}
        for i in chosen:
            piece = self.cover.problem.pieces[i]
            kernel = self.kernels[piece.key]
            heavy = kernel.best[0] * counts[piece.key] >= LEAST_SHARE * total
            if heavy and piece.key not in asked and self.cover.group(i).body is None:
                proposal = self._ask(kernel, i)
                if proposal is not None:
                    assert kernel.searcher is not None
                    asked[piece.key] = (kernel.searcher, proposal)
        if not asked:
            return False
        trial = {
            key: launch
            for key, (_, p) in asked.items()
            if isinstance(launch := p.payload, LaunchConfig)
        }
        self._profile(chosen, trial)
        for key, (searcher, proposal) in asked.items():
            us = self.kernels[key].us.get(trial[key])
            searcher.tell(proposal, Outcome(us) if us is not None else Outcome(None, 1.0))
        return True

    def _ask(self, kernel: Kernel, piece: int) -> Proposal | None:
        """The next configuration of a kernel that has not been timed, or None."""
        if kernel.searcher is None:
            kernel.searcher = make_searcher("optuna", self.session.seed, {})
        problem = LaunchProblem(self.graph, self.cover.group(piece), self.space)
        for _ in range(64):
            proposal = kernel.searcher.ask(problem)
            if proposal is None:
                return None
            launch = proposal.payload
            assert isinstance(launch, LaunchConfig)
            if launch not in kernel.us:
                return proposal
            kernel.searcher.tell(proposal, Outcome(kernel.us[launch]))
        return None


@dataclass(frozen=True)
class LaunchProblem:
    """The launch configurations of one kernel as a searcher sees them."""

    graph: Graph
    group: FusionGroup
    space: LaunchSpace

    def seeds(self) -> Sequence[Mapping[str, int | str | bool]]:
        return [{}]

    def propose(self, choose: Chooser) -> Proposal:
        """One configuration; its key is its canonical text."""
        asked: dict[str, int | str | bool] = {}

        def once(name: str, options: tuple[int | str | bool, ...]) -> int | str | bool:
            if name not in asked:
                asked[name] = choose(name, options)
            return asked[name]

        launch = self.space.choose(self.graph, self.group, once, "k")
        return Proposal(str(launch), tuple(asked.items()), launch)


def launch_text(launch: LaunchConfig) -> str:
    """A configuration as the database keeps it: JSON, so that types survive."""
    return json.dumps(dict(launch.settings), sort_keys=True)


def launch_of(text: str) -> LaunchConfig:
    """Inverse of launch_text; raises AutofuseError on anything else."""
    try:
        return LaunchConfig.of(**json.loads(text))
    except (ValueError, TypeError) as error:
        raise AutofuseError(f"not a stored launch configuration: {text!r}") from error
