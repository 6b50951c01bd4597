"""Measure a small workload's whole space once: every kernel that candidates or samples are made of.

Kernels are timed inside plans: each run of a plan gives the time of every group of it under one
launch configuration, so a few hundred runs are a whole space.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from statistics import median

from autofuse.backends.base import AnyArtifact
from autofuse.baselines import BASELINES
from autofuse.cost.bounds import Calibration
from autofuse.cover import CoverProblem, k_best
from autofuse.devices import DeviceKind, timed_device
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.errors import AutofuseError
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.measure.calibrate.host import calibrate_cpu
from autofuse.measure.timing.sampling import Sampling
from autofuse.measure.worker.protocol import Profile
from autofuse.measure.worker.session import Worker
from autofuse.measure.workload import Workload
from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig, Setting
from autofuse.tuning.evaluate import build
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.cover import Cover, cover_problem
from benchmarks.spaces import RecordedGroup, RecordedKernel, RecordedSpace
from search_spaces import FusionSpace
from search_spaces.launch import LaunchSpace

# Launch parameters that may be varied; of each its first two options.
VARIED = ("threads", "stage", "tile", "impl")
OPTIONS = 2
# Up to so many fusion decisions all of their combinations are made.
EXHAUSTIVE_EDGES = 10
# Chances of an edge to be fused, one drawn for each sampled plan.
SHARES = (0.2, 0.5, 0.5, 0.7, 0.9)
LIMIT_S = 30.0
_ALMOST_FREE = 1e-6
Variant = tuple[str, LaunchConfig]


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """`samples`: plans drawn at most from the samplers' space, fewer when `patience` in a row have
    no new group; `seed` of the draws; `wall_s` of timing one plan; `budget_s`: wall seconds after
    which what is not measured yet is left out; `vary`: the launch parameters that are varied, the
    others keep their defaults; `passes` over all plans, of which the median of each kernel's
    medians counts."""

    samples: int = 30_000
    patience: int = 2000
    seed: int = 0
    wall_s: float = 0.2
    budget_s: float = 300.0
    vary: tuple[str, ...] = VARIED
    passes: int = 3


def record_space(
    name: str, graph: Graph, options: RecordOptions = RecordOptions(),
    say: Callable[[str], None] = lambda text: None, calibration: Calibration | None = None,
) -> RecordedSpace:  # fmt: skip
    """Record `graph` on this machine's CPU, calibrated first unless that was done.

    Raises BenchError for a graph with loops, whose bodies are spaces of their own."""
    graph = canonical(graph)
    if any(node.op == "loop" for node in graph.nodes):
        raise BenchError(f"the space of {name} cannot be recorded: it has loops")
    device = timed_device("cpu")
    calibration = calibration or calibrate_cpu()
    cover, candidates = _whole_cover(graph, calibration, options)
    environment = device.backend.environment()
    with Worker(Workload(graph, options.seed), hardware=device.timer) as worker:
        recorder = _Recorder(device, graph, cover, worker, options)
        recorder.run(say)
    kernels = recorder.ordered()
    keys = {key for key, _ in kernels}
    pieces = cover.problem.pieces
    groups = tuple(
        RecordedGroup(cover.group(i), piece.key, piece.bound_us, cover.group(i) in candidates)
        for i, piece in enumerate(pieces)
        if piece.key in keys
    )
    shown = dict(environment.must) | {"compiler": dict(environment.stale).get("compiler", "")}
    return RecordedSpace(
        name, graph, recorder.measure_s, recorder.sampling.cache, groups, kernels,
        {k: shown[k] for k in ("model", "cores", "compiler")}, calibration.to_mapping(),
        datetime.now(UTC).date().isoformat(),
        settings_asked(device.space, graph, [g.group for g in groups]),
    )  # fmt: skip


def _whole_cover(
    graph: Graph, calibration: Calibration, options: RecordOptions
) -> tuple[Cover, set[FusionGroup]]:
    """All groups of the planner's enumeration and of sampled plans, and which the planner has."""
    baselines = [baseline_plan(graph, name)[0] for name in BASELINES]
    include = [FusionSpace(graph).choose(lambda _, options: options[0]), *baselines]
    found = [
        enumerate_groups(graph, include=plans, calibration=calibration)
        for plans in (include, [*include, *sampled_plans(graph, options)])
    ]
    return cover_problem(found[1], digests=True), set(found[0].groups)


def sampled_plans(graph: Graph, options: RecordOptions) -> list[FusionPlan]:
    """Plans with every group of the samplers' space: all plans where there are few decisions, else
    uniform draws with ever other shares of fused edges, until `patience` in a row bring no new
    group."""
    space = FusionSpace(graph)
    edges = len(space.edges)
    if edges <= EXHAUSTIVE_EDGES:
        answers = (number for number in range(2 << edges))
        return _with_new_groups(space.choose(by_bits(number)) for number in answers)
    rng = random.Random(options.seed)
    draws = (space.choose(_by_chance(rng, rng.choice(SHARES))) for _ in range(options.samples))
    return _with_new_groups(draws, options.patience)


def _with_new_groups(plans: Iterable[FusionPlan], patience: int | None = None) -> list[FusionPlan]:
    found: list[FusionPlan] = []
    seen: set[FusionGroup] = set()
    idle = 0
    for plan in plans:
        idle = 0 if not seen.issuperset(plan.groups) else idle + 1
        if not idle:
            seen.update(plan.groups)
            found.append(plan)
        if patience is not None and idle >= patience:
            break
    return found


def by_bits(number: int) -> Callable[[str, tuple[Setting, ...]], Setting]:
    """A chooser of fusion edges by the bits of `number`."""
    left = [number]

    def choose(name: str, options: tuple[Setting, ...]) -> Setting:
        if name.endswith("policy"):
            return options[-1]
        bit, left[0] = left[0] & 1, left[0] >> 1
        return options[bit]

    return choose


def _by_chance(rng: random.Random, share: float) -> Callable[[str, tuple[Setting, ...]], Setting]:
    def choose(name: str, options: tuple[Setting, ...]) -> Setting:
        if name.endswith("policy"):
            return options[-1]
        if "fuse:" in name:
            return rng.random() < share
        return rng.choice(options)

    return choose


def launch_variants(
    space: LaunchSpace, graph: Graph, group: FusionGroup, vary: Sequence[str] = VARIED
) -> tuple[LaunchConfig, ...]:
    """The configurations recorded of a group: all combinations of what is varied, default first."""
    found: dict[LaunchConfig, None] = {}
    pending: list[dict[str, Setting]] = [{}]
    while pending:
        walk = _Walk(pending.pop(0), vary)
        found[space.choose(graph, group, walk, "r")] = None
        pending += walk.others
    return tuple(found)


def settings_asked(
    space: LaunchSpace, graph: Graph, groups: Iterable[FusionGroup]
) -> tuple[str, ...]:
    """The settings that a launch space asks for, in the order of asking."""
    asked: dict[str, None] = {}

    def default(name: str, options: tuple[Setting, ...]) -> Setting:
        asked.setdefault(_parameter(name))
        return options[0]

    for group in groups:
        space.choose(graph, group, default, "r")
    return tuple(asked)


def _parameter(name: str) -> str:
    """The setting that a question is about: questions are PREFIX.KIND.SETTING.DEFAULT."""
    return name.split(".")[2]


class _Walk:
    """A chooser that follows given answers, then the first options, and notes the other ways."""

    def __init__(self, wanted: dict[str, Setting], vary: Sequence[str]) -> None:
        self.wanted, self.vary = wanted, vary
        self.others: list[dict[str, Setting]] = []

    def __call__(self, name: str, options: tuple[Setting, ...]) -> Setting:
        parameter = _parameter(name)
        if parameter in self.vary and parameter not in self.wanted:
            more = options[1:OPTIONS]
            self.others += [{**self.wanted, parameter: option} for option in more]
            self.wanted[parameter] = options[0]
        return self.wanted.get(parameter, options[0])


class _Recorder:
    def __init__(
        self,
        device: DeviceKind,
        graph: Graph,
        cover: Cover,
        worker: Worker,
        options: RecordOptions,
    ) -> None:
        self.device, self.graph, self.cover, self.worker = device, graph, cover, worker
        self.sampling = Sampling(wall_s=options.wall_s)
        self.passes = options.passes
        self.end = time.perf_counter() + options.budget_s
        pieces = cover.problem.pieces
        space = device.space
        samples = {piece.key: i for i, piece in reversed(list(enumerate(pieces)))}
        self.variants = {
            key: launch_variants(space, graph, cover.group(i), options.vary)
            for key, i in samples.items()
        }
        self.samples = samples
        self.kernels: dict[Variant, RecordedKernel] = {}
        self.times: dict[Variant, list[float]] = {}
        self.seconds: list[float] = []
        self.worked: list[tuple[AnyArtifact, tuple[Variant, ...]]] = []

    @property
    def measure_s(self) -> float:
        """Mean seconds of checking and timing a plan."""
        if not self.seconds:
            raise BenchError("no plan of this workload could be measured")
        return round(sum(self.seconds) / len(self.seconds), 4)

    def ordered(self) -> dict[Variant, RecordedKernel]:
        """What is complete: digests all of whose configurations were measured, defaults first."""
        return {
            (key, launch): self._settled((key, launch))
            for key in sorted(self.variants)
            for launch in self.variants[key]
            if all((key, other) in self.kernels for other in self.variants[key])
        }

    def _settled(self, variant: Variant) -> RecordedKernel:
        # Not the least: a kernel of many plans is timed often, and would be lucky more often.
        times = self.times.get(variant)
        kernel = self.kernels[variant]
        return replace(kernel, us=round(median(times), 3)) if times else kernel

    def run(self, say: Callable[[str], None]) -> None:
        """Measure plans until every kernel has all its times, or time is up."""
        for key in self._by_need():
            while self._missing(key) and time.perf_counter() < self.end:
                chosen = self._plan_with(self.samples[key])
                if chosen is None:
                    break
                self._measure(chosen)
            if time.perf_counter() >= self.end:
                break
        for _ in range(self.passes - 1):
            self._again()
        total = sum(map(len, self.variants.values()))
        say(f"{len(self.kernels)} of {total} kernels in {len(self.seconds)} runs")

    def _again(self) -> None:
        """Time every plan once more."""
        for artifact, variants in self.worked:
            profile = self.worker.profile(artifact, len(variants), self.sampling, LIMIT_S)
            if profile.failure is None:
                for variant, timing in zip(variants, profile.groups, strict=True):
                    self.times[variant].append(timing.median_us)

    def _by_need(self) -> Iterator[str]:
        """Planner's candidates of few nodes last: they fill the plans of the others anyway."""
        group = self.cover.group
        yield from sorted(self.samples, key=lambda k: (-len(group(self.samples[k]).nodes), k))

    def _missing(self, key: str) -> list[LaunchConfig]:
        return [c for c in self.variants[key] if (key, c) not in self.kernels]

    def _plan_with(self, piece: int) -> tuple[int, ...] | None:
        """A least plan that holds `piece`, where what has missing times costs next to nothing."""
        problem = self.cover.problem
        target = problem.pieces[piece]
        kept = [
            i for i, p in enumerate(problem.pieces)
            if i == piece or not p.writes & target.writes
        ]  # fmt: skip
        pieces = tuple(
            replace(problem.pieces[i], bound_us=_ALMOST_FREE)
            if self._missing(problem.pieces[i].key) else problem.pieces[i]
            for i in kept
        )  # fmt: skip
        costs: Mapping[str, float | None] = {p.key: p.bound_us for p in pieces}
        forced = CoverProblem(pieces, problem.required | target.writes, problem.given)
        try:
            plan = k_best(forced, costs, 1)[0].plan
        except AutofuseError:  # no plan at all can use it
            return None
        chosen = tuple(kept[i] for i in plan)
        return chosen if piece in chosen else None

    def _keys(self, plan: FusionPlan, chosen: Sequence[int]) -> list[str]:
        """Of the kernels of a plan, in order."""
        places = {self.cover.group(i): self.cover.problem.pieces[i].key for i in chosen}
        return [places[group] for group in plan.groups]

    def _measure(self, chosen: Sequence[int]) -> None:
        """Run a plan once, each kernel under its next configuration without a time."""
        plan = self.cover.plan(chosen)
        keys = self._keys(plan, chosen)
        missing = {key: self._missing(key) for key in keys}
        wanted = {key: (own or self.variants[key])[0] for key, own in missing.items()}
        fresh = [key for key, own in missing.items() if own]
        if self._run(plan, keys, wanted) or len(fresh) == 1:
            return
        for key in fresh:  # one of them fails: the others get their usual configuration
            launches = {k: self._usual(k) for k in wanted} | {key: wanted[key]}
            self._run(plan, keys, launches, only=key)

    def _usual(self, key: str) -> LaunchConfig:
        timed = (c for c in self.variants[key] if (k := self.kernels.get((key, c))) and k.us)
        return next(timed, self.variants[key][0])

    def _keep(self, profile: Profile, share: float) -> None:
        """The times of the plan that worked last."""
        self.seconds.append(profile.seconds)
        for variant, timing in zip(self.worked[-1][1], profile.groups, strict=True):
            self.kernels.setdefault(variant, RecordedKernel(timing.median_us, share))
            self.times.setdefault(variant, []).append(timing.median_us)

    def _run(
        self, plan: FusionPlan, keys: Sequence[str], launches: Mapping[str, LaunchConfig],
        only: str = "",
    ) -> bool:  # fmt: skip
        candidate = Candidate(plan, tuple(launches[key] for key in keys), "record")
        fresh = [k for k in dict.fromkeys(keys) if (k, launches[k]) not in self.kernels]
        built = build(self.device.backend, self.graph, candidate)
        share = round(built.compile_s / len(keys), 4)
        failure = built.failure
        if built.artifact is not None:
            profile = self.worker.profile(built.artifact, len(keys), self.sampling, LIMIT_S)
            failure = profile.failure
            if failure is None:
                self.worked.append((built.artifact, tuple((k, launches[k]) for k in keys)))
                self._keep(profile, share)
                return True
        assert failure is not None
        blamed = [only] if only else fresh
        if len(blamed) == 1:
            variant = blamed[0], launches[blamed[0]]
            self.kernels[variant] = RecordedKernel(None, share, failure.kind.value)
        return False
