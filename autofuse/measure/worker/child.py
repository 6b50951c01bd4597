"""The process that a session measures in: a fresh interpreter that may be killed at any time.

Its environment: OMP_NUM_THREADS and OPENBLAS_NUM_THREADS are `threads` (default: the cores this
process may use), OMP_DYNAMIC is false, and OMP_WAIT_POLICY, GOMP_SPINCOUNT, OMP_PROC_BIND and
OMP_PLACES are removed: the OpenMP runtime's defaults are what a user's own process will have.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from autofuse.measure.timing.sampling import MeasureError
from autofuse.measure.worker.sandbox import ended_by, sandbox_environment, sandboxed
from autofuse.records import Blame, Failure, FailureKind

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


class LostError(Exception):
    """The worker ended, or was ended, instead of answering."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@contextmanager
def starting() -> Iterator[None]:
    """What the system refuses is a MeasureError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise MeasureError(f"the measuring process could not start: {reason}") from error


class Child:
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
        command = [sys.executable, "-P", "-m", "autofuse.measure.worker.process", *map(str, theirs)]
        environment = worker_environment(threads)
        if sandbox:
            command = sandboxed(command, directory)
            environment = sandbox_environment(environment, directory)
        self._sandbox = sandbox
        self._teller: threading.Thread | None = None
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

    def ask(self, message: object, limit_s: float) -> object:
        """The answer to `message`. Raises LostError as `answer` does."""
        try:
            self._requests.send(message)
        except (BrokenPipeError, ConnectionResetError):
            raise LostError(self._crash()) from None
        return self.answer(limit_s)

    def tell(self, message: object) -> None:
        """Send a message, of which `answer` gives the answer, and go on meanwhile: it may be longer
        than a pipe holds, and who reads it may only be starting."""

        def send() -> None:
            with suppress(OSError):  # the process ended: who waits for the answer is told
                self._requests.send(message)

        self._teller = threading.Thread(target=send, daemon=True)
        self._teller.start()

    def answer(self, limit_s: float, stop: Callable[[], bool] = lambda: False) -> object:
        """What the process says next. Raises LostError after `limit_s` seconds, when `stop` says
        so, or if the process ends."""
        try:
            if not self._answers(time.monotonic() + limit_s, stop):
                text = f"did not finish within {limit_s:g} s"
                raise LostError(Failure(FailureKind.TIMEOUT, text, Blame.MACHINE))
            return self._replies.recv()
        except (EOFError, ConnectionResetError):
            raise LostError(self._crash()) from None

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
        if self._teller is not None:
            self._teller.join()
        self._requests.close()
        self._replies.close()
        os.close(self._lifeline)
        self._stderr.close()


def worker_environment(threads: int) -> dict[str, str]:
    """The worker's environment variables (see the module's text)."""
    root = str(Path(__file__).resolve().parents[3])
    inherited = {k: v for k, v in os.environ.items() if k not in _REMOVED}
    path = os.pathsep.join(p for p in (root, inherited.get("PYTHONPATH", "")) if p)
    count = str(threads)
    return inherited | {
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "OMP_DYNAMIC": "false",
    }
