"""The session's side of measuring: a worker process that may be killed at any time.

The worker is a fresh interpreter (never a fork), in a process group of its own, so that a
terminal's Ctrl-C reaches only the session. A candidate that hangs, crashes or exits costs one
failure; the next job starts another worker, which reads back the reference from a private
temporary directory.

The worker's environment: OMP_NUM_THREADS and OPENBLAS_NUM_THREADS are `threads` (default: the cores
this process may use), OMP_DYNAMIC is false, and OMP_WAIT_POLICY, GOMP_SPINCOUNT, OMP_PROC_BIND and
OMP_PLACES are removed: the OpenMP runtime's defaults are what a user's own process will have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from autofuse.backends.base import AnyArtifact
from autofuse.limits import usable_cores, usable_memory_bytes
from autofuse.measure.folders import OwnFolder
from autofuse.measure.hardware import HOST, Hardware
from autofuse.measure.lock import measurement_lock
from autofuse.measure.protocol import (
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
from autofuse.measure.sandbox import (
    SANDBOX_VARIABLE,
    ended_by,
    is_asked_for,
    sandbox_environment,
    sandboxed,
)
from autofuse.measure.timing import MeasureError, Sampling
from autofuse.measure.workload import Workload, check_room
from autofuse.records import Blame, Failure, FailureKind

DEFAULT_LIMIT_S = 30.0
DEFAULT_SETUP_S = 300.0
MIN_BLOCKS = 3
_GRACE_S = 2.0
# Seconds between two questions whether the user wants to stop.
_LOOK_S = 0.5
# Seconds that who wants to stop waits all the same: mostly it is nearly there.
_PATIENT_S = 10.0
_MESSAGE_CHARACTERS = 400
# Nothing that a candidate computes sends these: they come from the out-of-memory killer, from a
# preempting scheduler or from a person.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_REMOVED = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY")


class LateReferenceError(MeasureError):
    """The reference was not there in time; nothing is said against the workload."""


class _Lost(Exception):  # noqa: N818 - an event, not an error of ours
    """The worker ended, or was ended, instead of answering."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


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
        self.blind = ""
        self.checked_on: tuple[str, ...] = ()
        with _starting():
            self._private = OwnFolder()
        self._child: _Child | None = None

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
        if self._child is not None:
            self._open(self._child)

    def spawn(self) -> None:
        """Start the child now and do something else while it starts. Raises MeasureError."""
        if self._child is not None:
            return
        sandbox = is_asked_for()
        if sandbox and self.hardware is not HOST:
            raise MeasureError(f"{SANDBOX_VARIABLE} is for processors: no GPU is in the sandbox")
        with _starting():
            self._child = _Child(self._private.path, self.threads, sandbox)
        self._is_open = False

    def start(self) -> None:
        """Start the child now, and let it work out the reference, rather than with the first job,
        whose time limit counts from then on. Raises MeasureError, LateReferenceError."""
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
            except _Lost as lost:
                self._drop()
                return begun, lost.failure
            except BaseException:  # an interrupt leaves an answer under way that nobody will read
                self._drop()
                raise

    def _running(self) -> _Child:
        self.spawn()
        assert self._child is not None
        if not self._is_open:
            self.starts += 1
            self._open(self._child)
        return self._child

    def _reference(self) -> Path:
        return self._private.path / f"reference-{self._opened}.npz"

    def _open(self, child: _Child) -> None:
        """Give the child its workload; it is ended when that fails."""
        try:
            check_room(self.workload, usable_memory_bytes())
        except MeasureError:
            self._drop()
            raise
        limit_s = self.setup_s()
        try:
            opened = Open(self.workload, self._reference(), self.hardware.device, limit_s)
            ready = child.ask(opened, limit_s, self._stop)
        except _Lost as lost:
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
        child, self._child = self._child, None
        if child is not None:
            child.end()


@contextmanager
def _starting() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasureError(f"the measuring process could not start: {reason}") from error


class _Child:
    """One worker process, its pipes, and what it wrote to its standard error."""

    def __init__(self, directory: Path, threads: int, sandbox: bool) -> None:
        # Closed in end(), with the process.
        self._stderr: IO[bytes] = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 - closed in end()
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        lifeline_read, self._lifeline = os.pipe()
        theirs = (request_read, reply_write, lifeline_read)
        self._requests = Connection(request_write, readable=False)
        self._replies = Connection(reply_read, writable=False)
        # -P: a file of the current directory must not shadow a module.
        command = [sys.executable, "-P", "-m", "autofuse.measure.worker", *map(str, theirs)]
        environment = worker_environment(threads)
        if sandbox:
            command = sandboxed(command, directory)
            environment = sandbox_environment(environment, directory)
        self._sandbox = sandbox
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                env=environment,
                pass_fds=theirs,
                start_new_session=True,
            )
        except OSError:
            self._requests.close()
            self._replies.close()
            os.close(self._lifeline)
            self._stderr.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def ask(
        self, message: object, limit_s: float, stop: Callable[[], bool] = lambda: False
    ) -> object:
        """The answer to `message`; raises _Lost after `limit_s` seconds, when `stop` says so, or if
        the process ends."""
        try:
            self._requests.send(message)
            if not self._answers(time.monotonic() + limit_s, stop):
                text = f"did not finish within {limit_s:g} s"
                raise _Lost(Failure(FailureKind.TIMEOUT, text, Blame.MACHINE))
            return self._replies.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            raise _Lost(self._crash()) from None

    def _answers(self, end: float, stop: Callable[[], bool]) -> bool:
        """Whether there is something to read, waiting for it; after a moment until `stop`."""
        patient = time.monotonic() + _PATIENT_S
        while True:
            left_s = max(end - time.monotonic(), 0.0)
            if self._replies.poll(min(left_s, _LOOK_S)):
                return True
            if left_s <= _LOOK_S or (time.monotonic() >= patient and stop()):
                return False

    def _crash(self) -> Failure:
        """How the process ended, with the last line it wrote, and whose fault that is."""
        try:
            ended = self._process.wait(_GRACE_S)
            code = ended_by(ended) if self._sandbox else ended
        except subprocess.TimeoutExpired:
            return Failure(FailureKind.CRASH, "closed its pipe and went on")
        blame = Blame.MACHINE if -code in _FROM_OUTSIDE else Blame.CANDIDATE
        return Failure(FailureKind.CRASH, self._epitaph(code), blame)

    def _epitaph(self, code: int) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _MESSAGE_CHARACTERS))
        lines = self._stderr.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        how = f"exited with code {code}"
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        return f"{how}: {last}" if last else how

    def end(self) -> None:
        """Kill the whole process group and reap it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._requests.close()
        self._replies.close()
        os.close(self._lifeline)
        self._stderr.close()


def worker_environment(threads: int) -> dict[str, str]:
    """The worker's environment variables (see the module text)."""
    root = str(Path(__file__).resolve().parents[2])
    inherited = {k: v for k, v in os.environ.items() if k not in _REMOVED}
    path = os.pathsep.join(p for p in (root, inherited.get("PYTHONPATH", "")) if p)
    count = str(threads)
    return inherited | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_DYNAMIC": "false",
    }
