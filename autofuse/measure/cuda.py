"""Measuring on a CUDA device.

Inputs are uploaded once. A sample is taken by events on one stream, behind a short stall: a kernel
that only waits while the host queues what is to be timed, so that events see the device's time and
not the host's. Before each cold sample FLUSHED times the second-level cache is read: reading
pushes out what a run has written as well, so that no kernel pays for lines another one left dirty.

Plans of a workload are all timed in one way, or their times would not compare: where its arrays
alone could be moved in SHORT_US, as many runs as fill BATCH_US in one graph, else one. In a batch
caches are emptied before each run; what emptying takes is timed likewise, and subtracted, so that
a run also pays for writing out what it left in the cache. Sampling mode "eager" launches kernel by
kernel with no stall: the host's cost is part of that figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.clocks import Clocks
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.driver import CupyDriver, running_target
from autofuse.backends.cuda.geometry import Geometry
from autofuse.backends.cuda.graphs import LaunchCall, join
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.loading import as_bytes
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.measure.device import GUARD_BYTES, Arrays, CheckedRun, GuardedOutput
from autofuse.measure.timing.sampling import Clock, ProfileSamples, Sampling, collect_profile
from autofuse.ops.types import TensorType

T = TypeVar("T")
SHORT_US = 10.0
BATCH_US = 200.0
MOST_BATCH = 64
# What is read to empty the second-level cache, as a multiple of it: old lines may stay a while.
FLUSHED = 2
READ_THREADS, READ_BLOCKS = 256, 8  # of a block, and for each multiprocessor
# The stall covers what queueing takes the host, twice over, within these limits.
LEAST_STALL_US, MOST_STALL_US = 20.0, 20_000.0
# A sample on a low clock is taken again so often. In between one thread is kept busy for so long:
# it wakes a device that sleeps, and one that is hot can cool.
RETRIES, REST_US = 20, 20_000.0
_KERNELS = """
extern "C" __global__ void af_stall(long long ns)
{
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do { asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); } while (now - start < ns);
}
extern "C" __global__ void af_read(uint4 *zeros, long long count)
{
  const long long step = (long long)gridDim.x * blockDim.x;
  unsigned found = 0;
  #pragma unroll 4
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    const uint4 v = zeros[i];
    found |= v.x | v.y | v.z | v.w;
  }
  if (found) zeros[0].x = found;
}
"""


class CudaDevice:
    """The current CUDA device; see `Device`."""

    def __init__(
        self,
        driver: CupyDriver | None = None,
        target: Target | None = None,
        clocks: Clocks | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Raises CudaMissing or TargetError where there is none that can be used."""
        self.target = target or running_target()
        self.driver = driver or CupyDriver()
        self.broken = False
        self.clocks, self.clock = clocks or Clocks(self.driver.bus_id()), clock
        self.stream = self.driver.new_stream()
        with self.stream:
            self._flushed = self.driver.zeros(FLUSHED * self.target.l2_bytes)
        module = self.driver.load(compile_cubin(_KERNELS, self.target.arch)[0])
        self._stall = self.driver.function(module, "af_stall", 0)
        self._read = self.driver.function(module, "af_read", 0)
        self.batched = False
        self.inputs: tuple[Any, ...] = ()
        self.outputs: tuple[tuple[GuardedOutput, Any], ...] = ()

    # --- the workload -------------------------------------------------------------------------

    def open(self, inputs: Arrays, outputs: Sequence[TensorType]) -> None:
        with self.stream:
            # As bytes: not every element type is one of CuPy's.
            self.inputs = tuple(self.driver.upload(as_bytes(a)) for a in inputs)
            guarded = [GuardedOutput(t) for t in outputs]
            self.outputs = tuple((g, self.driver.upload(g.window)) for g in guarded)
        self.stream.synchronize()
        nbytes = sum(a.nbytes for a in inputs) + sum(t.nbytes for t in outputs)
        self.batched = nbytes / (self.target.bandwidth * 1e3) < SHORT_US

    def load(self, artifact: CudaArtifact) -> CudaPlan:
        loaded = CudaPlan(artifact, self.driver)
        if artifact.binding.bound:
            loaded.bind_constants(artifact.binding.chosen(self.inputs))
        return loaded

    def addresses(self, loaded: CudaPlan) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of inputs that each call is given, and of outputs."""
        found = tuple(self.driver.pointer(window) + GUARD_BYTES for _, window in self.outputs)
        given = loaded.artifact.binding.free(self.inputs)
        return tuple(map(self.driver.pointer, given)), found

    def run(self, loaded: CudaPlan, *, elsewhere: bool = False) -> CheckedRun:
        def work() -> CheckedRun:
            self._arm()
            if loaded.hosted:
                _all(loaded.calls(*self.addresses(loaded)))()
            else:
                loaded.graph(*self.addresses(loaded)).launch(self.stream)
            return self._left()

        return self._guarded(work)

    def left(self) -> CheckedRun:
        return self._guarded(self._left)

    def _arm(self) -> None:
        for guarded, window in self.outputs:
            guarded.arm()
            self.driver.assign(window, guarded.window)

    def _left(self) -> CheckedRun:
        for guarded, window in self.outputs:
            self.driver.download(window, guarded.window)
        inputs = tuple(map(self.driver.download, self.inputs))
        self.stream.synchronize()
        arrays = tuple(guarded.array for guarded, _ in self.outputs)
        return CheckedRun(inputs, arrays, all(guarded.intact() for guarded, _ in self.outputs))

    def _guarded(self, work: Callable[[], T]) -> T:
        """`work` on our stream; the driver's errors become LaunchError, and the device is broken
        if it answers no more."""
        try:
            with self.stream:
                return work()
        except self.driver.errors as error:
            try:
                self.driver.synchronize()
            except self.driver.errors:  # an illegal address ends a context for good
                self.broken = True
            raise LaunchError(f"the device failed: {error}") from error

    # --- samples ------------------------------------------------------------------------------

    def flush(self) -> None:
        """Empty the second-level cache: nothing of it is left that anyone wants, or must write."""
        self.read(self._flushed)

    def read(self, zeros: Any) -> None:
        """Read a device array of zero bytes."""
        shape = Geometry(READ_BLOCKS * self.target.sms, READ_THREADS)
        self.driver.launch(self._read, shape, (self.driver.pointer(zeros), zeros.nbytes // 16))

    def stall(self, microseconds: float) -> None:
        """Keep the stream busy for so long."""
        wait = int(1e3 * min(max(microseconds, LEAST_STALL_US), MOST_STALL_US))
        self.driver.launch(self._stall, Geometry(1, 1), (wait,))

    def timed_us(self, before: Callable[[], None], work: Callable[[], None]) -> float:
        """The device's microseconds of `work`, issued after `before`."""
        start, end = self.driver.event(), self.driver.event()
        before()
        start.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        return self.driver.elapsed_us(start, end)

    def queueing_us(self, work: Callable[[], None]) -> float:
        """What queueing `work` takes the host, in microseconds."""
        begun = self.clock()
        work()
        took = 1e6 * (self.clock() - begun)
        self.stream.synchronize()
        return took

    def watch(self, loaded: CudaPlan, sampling: Sampling) -> CudaWatch:
        return self._guarded(lambda: self._watch(loaded, sampling))

    def _watch(self, loaded: CudaPlan, sampling: Sampling) -> CudaWatch:
        self._arm()
        inputs, outputs = self.addresses(loaded)
        calls = loaded.calls(inputs, outputs)
        cold = sampling.cache == "cold"
        if sampling.mode == "eager" or loaded.hosted:
            issue = _all(calls)
            self._warm_up(issue, sampling.warmup_s)
            return CudaWatch(self, issue, None, cold, 1, 0.0, "eager")
        graph = loaded.graph(inputs, outputs)

        def once() -> None:
            graph.launch(self.stream)

        us = self._warm_up(once, sampling.warmup_s)
        stall = 2 * self.queueing_us(once)
        if not self.batched:
            return CudaWatch(self, once, None, cold, 1, stall, "graph")
        count = int(min(MOST_BATCH, max(1, BATCH_US // max(us, 0.1))))
        gate = self.flush if cold else join
        many = loaded.repeated(inputs, outputs, count, gate)
        empty = self.driver.capture(loaded.side, (self.flush,) * count) if cold else None
        return CudaWatch(
            self, lambda: many.launch(self.stream),
            None if empty is None else lambda: empty.launch(self.stream),
            cold, count, stall, "graph,batch",
        )  # fmt: skip

    def _warm_up(self, issue: Callable[[], None], seconds: float) -> float:
        """Run for so long (at least once); the microseconds of a run, at best."""
        best, end = float("inf"), self.clock() + seconds
        while best == float("inf") or self.clock() < end:
            best = min(best, self.timed_us(lambda: self.stall(LEAST_STALL_US), issue))
        return best

    def profile(self, loaded: CudaPlan, groups: int, sampling: Sampling) -> ProfileSamples:
        def work() -> ProfileSamples:
            self._arm()
            parts = [
                (owner, self._segment(loaded, calls))
                for owner, calls in loaded.segments(*self.addresses(loaded))
                if calls
            ]
            queued = self.queueing_us(_all([issue for _, issue in parts]))
            cold = sampling.cache == "cold"
            # Each event takes the host about as long as a launch.
            call = self._profiled(parts, groups, cold, 4 * queued)
            return collect_profile(call, lambda: None, sampling, self.clock)

        return self._guarded(work)._replace(mode=self._named("events"))

    def _segment(self, loaded: CudaPlan, calls: Sequence[LaunchCall]) -> Callable[[], None]:
        """One action of the plan: a launch, or the graph of a loop's many."""
        if len(calls) == 1 or loaded.hosted:
            return _all(calls)
        graph = loaded.captured(calls)
        return lambda: graph.launch(self.stream)

    def _profiled(
        self, parts: Sequence[tuple[int, Callable[[], None]]], groups: int, cold: bool, wait: float
    ) -> Callable[[], np.ndarray]:
        events = [self.driver.event() for _ in range(len(parts) + 1)]

        def call() -> np.ndarray:
            self.stall(wait)
            if cold:
                self.flush()
            events[0].record(self.stream)
            for event, (_, issue) in zip(events[1:], parts, strict=True):
                issue()
                event.record(self.stream)
            events[-1].synchronize()
            us = np.zeros(max(groups, 1), np.float64)
            for before, event, (owner, _) in zip(events, events[1:], parts, strict=False):
                if owner >= 0:
                    us[owner] += self.driver.elapsed_us(before, event)
            return us[:groups]

        return call

    def _named(self, mode: str) -> str:
        """A mode, with a note when nothing tells whether the clock is low."""
        return mode if self.clocks.known else f"{mode},noclk"


@dataclass(frozen=True)
class CudaWatch:
    """Samples of `issue`, which runs the plan `count` times; `empty` is the same without the plan.
    `held` is what has kept the clock down in them (see `HELD`); the mode names it.

    Raises LaunchError when the device fails, or never gives a usable sample."""

    device: CudaDevice
    issue: Callable[[], None]
    empty: Callable[[], None] | None
    cold: bool
    count: int
    stall_us: float
    issued: str
    held: set[str] = field(default_factory=set)

    @property
    def clock(self) -> Clock:
        return self.device.clock

    @property
    def mode(self) -> str:
        # The column of the database holds 20 characters: one word of them is enough.
        return self.device._named(",".join([self.issued, *sorted(self.held)[:1]]))

    def settle(self) -> None:
        """The runs of one sample, before a warm one."""
        if not self.cold:
            self.device._guarded(self.issue)

    def sample(self) -> float:
        """Microseconds of one run; what is not positive, or taken while the clock was low, is
        discarded."""
        for _ in range(RETRIES):
            us = self.device._guarded(self._once)
            now = self.device.clocks.now()
            if now.slow:
                self.device._guarded(lambda: self.device.stall(REST_US))
            elif us > 0:
                self.held.update(now.held)
                return us
        raise LaunchError(f"no usable sample in {RETRIES}: the device throttles, or is too fast")

    def _once(self) -> float:
        took = self.device.timed_us(self._before, self.issue)
        if self.empty is not None:
            took -= self.device.timed_us(self._before, self.empty)
        return took / self.count

    def _before(self) -> None:
        if self.stall_us:
            self.device.stall(self.stall_us)
        if self.cold:
            self.device.flush()
        if not self.stall_us:
            # Launch by launch the host's cost counts: the device must be idle when it begins.
            self.device.stream.synchronize()


def _all(calls: Sequence[LaunchCall]) -> Callable[[], None]:
    def issue() -> None:
        for call in calls:
            call()

    return issue
