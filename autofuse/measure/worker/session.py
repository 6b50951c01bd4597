"""The session's side of measuring: a worker process that may be killed at any time.

The worker is a fresh interpreter (never a fork), in a process group of its own, so that a
terminal's Ctrl-C reaches only the session. A candidate that hangs, crashes or exits costs one
failure; the next job starts another worker, which reads back the reference from a private
temporary directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from autofuse.backends.base import AnyArtifact
from autofuse.limits import usable_cores, usable_memory_bytes
from autofuse.measure.hardware import HOST, Hardware
from autofuse.measure.timing.sampling import MeasureError, Sampling
from autofuse.measure.worker.child import Child, LostError, starting
from autofuse.measure.worker.folders import OwnFolder
from autofuse.measure.worker.lock import measurement_lock
from autofuse.measure.worker.protocol import (
    CompareJob,
    Comparison,
    ComparisonFailure,
    Last,
    MeasureJob,
    Open,
    Profile,
    ProfileJob,
    Reply,
    WorkerReady,
)
from autofuse.measure.worker.sandbox import SANDBOX_VARIABLE, is_asked_for
from autofuse.measure.workload import Workload, check_room
from autofuse.records import Blame, Failure, FailureKind

DEFAULT_LIMIT_S = 30.0
DEFAULT_SETUP_S = 300.0
MIN_BLOCKS = 3


class LateReferenceError(MeasureError):
    """The reference was not there in time; nothing is said against the workload."""


class Worker:
    """Checks and times artifacts of one workload; a context manager.

    `threads` is the OpenMP thread count, `limit_s` the wall limit of a job in seconds, `setup_s`
    (asked when a child starts) that of computing inputs and reference, which also ends when `stop`
    says so. `hardware` is what to measure on. `blind` says, once it was started, why its checks
    verify nothing, and `checked_on` on which draws of inputs candidates are checked.
    """

    def __init__(
        self,
        workload: Workload,
        *,
        threads: int | None = None,
        limit_s: float = DEFAULT_LIMIT_S,
        setup_s: Callable[[], float] = lambda: DEFAULT_SETUP_S,
        hardware: Hardware = HOST,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.workload, self._stop = workload, stop
        self.threads = threads or usable_cores()
        self.limit_s, self.setup_s, self.hardware = limit_s, setup_s, hardware
        self.starts = 0
        self._opened = 0
        self._ready = self._is_open = False
        # When the child was asked to open the workload, until it has answered, and how long it may
        # take.
        self._asked_at: float | None = None
        self._limit_s = 0.0
        self.blind = ""
        self.checked_on: tuple[str, ...] = ()
        with starting():
            self._private = OwnFolder()
        self._child: Child | None = None

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove its files."""
        self._drop()
        self._private.close()

    def use(self, workload: Workload) -> None:
        """Measure another workload from now on, in the same child when there is one.

        Raises MeasureError if it cannot be set up."""
        for path in self._private.path.glob(f"reference-{self._opened}*"):
            path.unlink(missing_ok=True)
        self._opened += 1
        self._ready = False
        self.workload = workload
        if self._asked_at is not None:  # about the workload before
            self._drop()
        elif self._child is not None:
            self._open(self._child)

    def begin(self) -> None:
        """Start the child now, let it work out the reference, and do something else meanwhile: what
        comes of it is told by `start`, or with the first job. Raises MeasureError."""
        self.spawn()
        if self._asked_at is None and self._fits():
            assert self._child is not None
            self._ask_to_open(self._child)

    def spawn(self) -> None:
        """Start the child now and do something else while it starts. Raises MeasureError."""
        if self._child is not None:
            return
        sandbox = is_asked_for()
        if sandbox and self.hardware is not HOST:
            raise MeasureError(f"{SANDBOX_VARIABLE} is for processors: no GPU is in the sandbox")
        with starting():
            self._child = Child(self._private.path, self.threads, sandbox)
        self._is_open = False

    def start(self) -> None:
        """Wait until the reference is worked out, rather than with the first job, whose time limit
        counts from then on. Raises MeasureError, LateReferenceError."""
        with measurement_lock(self.hardware.unit):
            self._running()

    def measure(
        self,
        artifact: AnyArtifact,
        sampling: Sampling | None = Sampling(),  # noqa: B008 - frozen
        limit_s: float | None = None,
        draws: bool = True,
    ) -> Reply:
        """Check `artifact` against the reference, then time it (`sampling` None: check only).
        `draws` False: by one run, because all of its kernels passed on all draws before.

        Whatever the candidate does becomes the reply's failure: LAUNCH (cannot be loaded, nonzero
        code), WRONG_RESULT, TIMEOUT (over `limit_s` seconds), CRASH. What the machine does (a kill
        from outside, no memory, a full disk, a child that cannot start again; a time-out too, which
        may be a stalled host) becomes one with its blame. Raises MeasureError if the workload
        itself cannot be set up.
        """
        begun, answer = self._ask(MeasureJob(artifact, sampling, draws), limit_s)
        seconds = time.perf_counter() - begun
        if isinstance(answer, Failure):
            return Reply(None, None, answer, seconds)
        assert isinstance(answer, Reply)
        return replace(answer, seconds=seconds)

    def profile(
        self,
        artifact: AnyArtifact,
        groups: int,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        limit_s: float | None = None,
        draws: bool = True,
    ) -> Profile:
        """Check `artifact`, then time each group of its plan inside the plan; see `measure`."""
        begun, answer = self._ask(ProfileJob(artifact, groups, sampling, draws), limit_s)
        seconds = time.perf_counter() - begun
        if isinstance(answer, Failure):
            return Profile((), None, None, answer, seconds)
        assert isinstance(answer, Profile)
        return replace(answer, seconds=seconds)

    def compare(
        self,
        artifacts: Sequence[AnyArtifact],
        blocks: int = 5,
        rounds: int = 10,
        sampling: Sampling = Sampling(),  # noqa: B008 - frozen
        limit_s: float | None = None,
        seed: int = 0,
    ) -> Comparison | ComparisonFailure:
        """Check all `artifacts` by one run, then time them interleaved in one process.

        Each of `blocks` (at least 3) blocks warms all up, then takes `rounds` rounds of one sample
        of each in shuffled order, warm ones after calls that are not timed. Of `sampling` only the
        cache mode and the warm-up count.
        """
        if blocks < MIN_BLOCKS or rounds < 1 or not artifacts:
            raise MeasureError(
                f"a comparison needs artifacts, {MIN_BLOCKS} blocks and a round each"
            )
        job = CompareJob(tuple(artifacts), blocks, rounds, sampling, seed)
        begun, answer = self._ask(job, limit_s)
        seconds = time.perf_counter() - begun
        if isinstance(answer, Failure):
            return ComparisonFailure(None, answer, seconds)
        assert isinstance(answer, Comparison | ComparisonFailure)
        return replace(answer, seconds=seconds)

    def _ask(
        self, job: MeasureJob | CompareJob | ProfileJob, limit_s: float | None
    ) -> tuple[float, Any]:
        """When the job began, and its answer or Failure; the device is ours meanwhile."""
        with measurement_lock(self.hardware.unit):
            begun = time.perf_counter()
            try:
                child = self._running()
            except MeasureError as error:
                if not self._ready:
                    raise
                # The workload was set up before: that it cannot be now is the machine's fault.
                return begun, Failure(FailureKind.CRASH, str(error), Blame.MACHINE)
            begun = time.perf_counter()
            try:
                answer = child.ask(job, self.limit_s if limit_s is None else limit_s)
                if isinstance(answer, Last):
                    self._drop()
                    return begun, answer.answer
                return begun, answer
            except LostError as lost:
                self._drop()
                return begun, lost.failure
            except BaseException:  # an interrupt leaves an answer under way that nobody will read
                self._drop()
                raise

    def _running(self) -> Child:
        self.spawn()
        assert self._child is not None
        if not self._is_open:
            self.starts += 1
            self._open(self._child)
        return self._child

    def _reference(self) -> Path:
        return self._private.path / f"reference-{self._opened}.npz"

    def _fits(self) -> bool:
        """Whether the memory there is holds the workload."""
        try:
            check_room(self.workload, usable_memory_bytes())
        except MeasureError:
            return False
        return True

    def _ask_to_open(self, child: Child) -> None:
        self._asked_at, self._limit_s = time.monotonic(), self.setup_s()
        device = self.hardware.device
        child.tell(Open(self.workload, self._reference(), device, self._limit_s))

    def _open(self, child: Child) -> None:
        """Give the child its workload, unless it has been told; it is ended when that fails."""
        try:
            check_room(self.workload, usable_memory_bytes())
        except MeasureError:
            self._drop()
            raise
        if self._asked_at is None:
            self._ask_to_open(child)
        assert self._asked_at is not None
        limit_s, waited_s = self._limit_s, time.monotonic() - self._asked_at
        try:
            ready = child.answer(max(limit_s - waited_s, 0.0), self._stop)
            self._asked_at = None
        except LostError as lost:
            self._drop()
            if lost.failure.kind is FailureKind.TIMEOUT:
                late = f"in {limit_s:.3g} s: this graph needs a larger budget"
                told = "before it was stopped" if self._stop() else late
                what = "the float64 reference that plans are checked against was not computed"
                raise LateReferenceError(f"{what} {told}") from None
            message = f"the measuring process could not start: {lost.failure.message}"
            raise MeasureError(message) from None
        except BaseException:  # an interrupt leaves a child that knows no workload
            self._drop()
            raise
        assert isinstance(ready, WorkerReady)
        if ready.error:
            self._drop()
            raise MeasureError(f"the workload cannot be measured: {ready.error}")
        self._ready = self._is_open = True
        self.blind, self.checked_on = ready.blind, ready.checked_on

    def _drop(self) -> None:
        child, self._child, self._asked_at = self._child, None, None
        if child is not None:
            child.end()
