"""A bench whose plans take long by a clock that nobody waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from autofuse.cost.bounds import NOMINAL, Calibration, group_bound_us
from autofuse.graph.types import Graph
from autofuse.measure.timing.sampling import summarise
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.records import Cost, KernelMeasurement, Measurement
from autofuse.tuning.bench import KnownKernel, Profiled, Standing
from search_spaces import CpuLaunchSpace


class Clock:
    """Seconds that pass when work says so, and `look_s` whenever somebody looks."""

    def __init__(self, look_s: float) -> None:
        self.now, self.look_s = 0.0, look_s

    def __call__(self) -> float:
        self.now += self.look_s
        return self.now


def twice_the_bound(graph: Graph, group: FusionGroup, launch: LaunchConfig) -> float:
    return 2 * group_bound_us(graph, group, NOMINAL)


class SlowBench:
    """Plans of a graph that take `PLAN_S` seconds each to build and run, by a clock; kernels take
    `time_us`, by default twice their bounds."""

    space, cache, seed = CpuLaunchSpace(), "cold", 0
    PLAN_S = 2.0

    def __init__(
        self, graph: Graph, seconds: float, look_s: float,
        time_us: Callable[[Graph, FusionGroup, LaunchConfig], float] = twice_the_bound,
    ) -> None:  # fmt: skip
        self.graph, self.time_us = graph, time_us
        self.clock, self.seconds = Clock(look_s), seconds
        self.plans: Mapping[str, FusionPlan] = {}
        self.profiled: list[float] = []
        self.tried: list[Candidate] = []
        self.compiled_ahead: list[tuple[Candidate, ...]] = []
        self.prepared: list[tuple[Candidate, ...]] = []

    def calibration(self) -> Calibration:
        return NOMINAL

    def left_s(self) -> float:
        return self.seconds - self.clock()

    def is_over(self) -> bool:
        return self.left_s() < 0

    def fits(self, plan: FusionPlan) -> bool:
        return bool(plan.groups)

    def known(self, candidate: Candidate) -> Measurement | None:
        return None

    def measure(self, candidate: Candidate) -> Measurement:
        self.clock.now += self.PLAN_S
        timing = summarise([sum(self._us(candidate))], self.cache, "wall")
        return Measurement(
            "", "", candidate.digest, "", 1, (), timing, None, 0.0, Cost(measure=self.PLAN_S)
        )

    def prepare(self, candidates: Sequence[Candidate]) -> float:
        self.prepared.append(tuple(candidates))
        return 0.0

    def ahead(self, candidates: Sequence[Candidate]) -> None:
        self.compiled_ahead.append(tuple(candidates))

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        self.profiled.append(self.clock.now)
        self.tried.append(candidate)
        self.clock.now += self.PLAN_S
        timings = tuple(summarise([us], self.cache, "wall") for us in self._us(candidate))
        return Profiled(timings, None, 0.0, Cost(measure=self.PLAN_S), self.PLAN_S)

    def _us(self, candidate: Candidate) -> list[float]:
        pairs = zip(candidate.plan.groups, candidate.launches, strict=True)
        return [self.time_us(self.graph, group, launch) for group, launch in pairs]

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        return iter(())

    def news(self, groups: Mapping[str, FusionGroup]) -> Iterator[KnownKernel]:
        return iter(())

    def keep_kernels(self, records: Sequence[KernelMeasurement]) -> None:
        pass

    def tell(self, standing: Standing) -> None:
        pass
