"""What sessions do to the database, and when: recorded spaces searched by the exact strategy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from autofuse.plan.types import Candidate, FusionGroup
from autofuse.records import KernelMeasurement, Measurement
from autofuse.tuning.bench import KnownKernel, Profiled
from autofuse.tuning.job.sharing import LEASE_S
from benchmarks.replay import ReplayBench, ReplayDevice, replay_exact
from benchmarks.spaces import RecordedSpace

# Before a search and after it, as `autofuse/tuning/job/tuner.py` has it.
BEGIN = ("open", "add_workload", "start_session", "recall", "calibration")
END = ("incumbent", "promote", "add_event", "finish_session")
# Different plans of the ten baselines, and plans of a final comparison, which are measured too.
RULED, FINALS = 6, 8
# Rows that an operation adds, by table; groups of candidates come on top.
ROWS: Mapping[str, Mapping[str, int]] = {
    "start_session": {"session": 1},
    "add_measurement": {"candidate": 1, "measurement": 1},
    "add_final": {"measurement": 1},
    "add_event": {"event": 1},
}


@dataclass(frozen=True, slots=True)
class DbStep:
    """An operation after so many seconds of work of one's own; `count` groups or kernels."""

    after_s: float
    operation: str
    count: int = 0


@dataclass(frozen=True)
class SessionScript:
    """A session of tuning as the database sees it; `groups` are the distinct ones."""

    name: str
    steps: tuple[DbStep, ...]
    groups: int

    @cached_property
    def own_s(self) -> float:
        """Seconds of a worker's own work."""
        return sum(step.after_s for step in self.steps)

    @cached_property
    def rows(self) -> Mapping[str, int]:
        """Rows that the session adds, by table; groups are those of the graph, not counted here."""
        found: Counter[str] = Counter()
        for step in self.steps:
            found.update(ROWS.get(step.operation, {}))
            if step.operation == "add_measurement":
                found["candidate_group"] += step.count
            if step.operation == "add_kernels":
                found["kernel_measurement"] += step.count
        return found


def script_of(space: RecordedSpace, limit_s: float) -> SessionScript:
    """What a session on a space does that nobody knows anything of: baselines, a search of at most
    `limit_s` seconds of compiling and measuring, and a final comparison."""
    device = ReplayDevice(space)
    watched = _Watched(device, 0, lambda: device.seconds >= limit_s)
    for operation in BEGIN:
        watched.do(operation)
    for _ in range(RULED):
        watched.claimed("latest")
        device.seconds += space.measure_s + _compile_s(space)
        watched.measured("add_measurement", len(space.graph.nodes))
    replay_exact(watched, seeded=True)
    for _ in range(FINALS):
        device.seconds += space.measure_s
        watched.do("add_final")
    for operation in END:
        watched.do(operation)
    return SessionScript(space.name, _prolonged(watched.steps), len(space.keys))


def _compile_s(space: RecordedSpace) -> float:
    """Seconds to compile a kernel, on the average."""
    return sum(one.compile_s for one in space.kernels.values()) / len(space.kernels)


class _Watched(ReplayBench):
    """Notes what `autofuse/tuning/job/job.py` would ask of the database."""

    def __init__(self, device: ReplayDevice, seed: int, is_over: Callable[[], bool]) -> None:
        super().__init__(device, seed, is_over)
        self.steps, self._at_s, self._best = list[DbStep](), 0.0, 0

    def do(self, operation: str, count: int = 0) -> None:
        """An operation, now by the clock of the replay."""
        self.steps.append(DbStep(self.recorded.seconds - self._at_s, operation, count))
        self._at_s = self.recorded.seconds

    def claimed(self, look: str, count: int = 0) -> None:
        """The turn is this job's, and it looks whether others know already."""
        self.do("claim")
        self.do(look, count)

    def measured(self, operation: str, groups: int) -> None:
        """A candidate was measured by whoever got the turn, which goes with the result."""
        self.do(operation, groups)
        if len(self.recorded.improvements) > self._best:
            self._best = len(self.recorded.improvements)
            self.do("add_event")

    def measure(self, candidate: Candidate) -> Measurement:
        if self.known(candidate) is not None:
            return super().measure(candidate)
        self.claimed("latest")
        found = super().measure(candidate)
        self.measured("add_measurement", len(candidate.plan.groups))
        return found

    def profile(self, candidate: Candidate, rivals_us: Sequence[float] = ()) -> Profiled:
        self.claimed("kernels", len(candidate.plan.groups))
        new = self.known(candidate) is None
        found = super().profile(candidate, rivals_us)
        if new and found.failure is None:
            self.measured("add_measurement", len(candidate.plan.groups))
        return found

    def keep_kernels(self, records: Sequence[KernelMeasurement]) -> None:
        self.do("add_kernels", len(records))
        self.do("release")

    def kernels(self, groups: Mapping[str, FusionGroup]) -> Sequence[KnownKernel]:
        self.do("recall_kernels", len(groups))
        return super().kernels(groups)


def _prolonged(steps: Sequence[DbStep]) -> tuple[DbStep, ...]:
    """With the leases prolonged as long as work lasts."""
    found, since = list[DbStep](), 0.0
    for step in steps:
        left = step.after_s
        while since + left >= LEASE_S / 4:
            part = LEASE_S / 4 - since
            found.append(DbStep(part, "prolong"))
            left, since = left - part, 0.0
        since += left
        found.append(DbStep(left, step.operation, step.count))
    return tuple(found)
