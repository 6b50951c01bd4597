"""Processes that share one tuning database, to be killed or to run at once.

`python -m benchmarks.soak.actors` imports everything once and forks an actor for every job it is
told on its input (a line of JSON, a list of jobs), so that a kill costs what tuning costs and not
a second of imports. It adopts what its actors leave behind and ends when all of that has ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from autofuse.devices import DEVICES
from autofuse.errors import AutofuseError
from autofuse.records import Cost, Environment, KernelMeasurement, Measurement, Timing
from autofuse.sources import load_source
from autofuse.tuning import compile as compile_plan
from autofuse.tuning import tune
from autofuse.tuning.job import incumbent
from autofuse.tuning.job.sharing import Turns
from autofuse.tuning.search import strategies
from benchmarks.soak.answers import is_right
from benchmarks.soak.simulated import NAME as SIMULATED
from benchmarks.soak.simulated import simulated_kind
from tuning_db import Store
from tuning_db.transfer import import_lines

__all__ = ["Crowd", "strategies"]

ROOT = Path(__file__).resolve().parents[2]
# What an actor exits with when it was refused in one sentence; 1 is a traceback.
REFUSED = 2
# From <linux/prctl.h>: orphans of our descendants become our children.
_SET_CHILD_SUBREAPER = 36
Job = Mapping[str, Any]


class Crowd:
    """The forking process, and what it is told. Leaving it kills whoever is left."""

    def __init__(self, folder: Path) -> None:
        """What actors say goes to `folder`/said.txt; they have a build cache in `folder`."""
        self.said = folder / "said.txt"
        # One thread: a process that has several must not fork.
        threads = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        added = {"AUTOFUSE_CACHE": str(folder / "cache"), **threads}
        with self.said.open("ab") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak.actors"],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **added},
                start_new_session=True,
            )
        self.pids: list[int] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def start(self, jobs: Sequence[Job]) -> list[int]:
        """Fork an actor for each job; their process ids."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(jobs)).encode() + b"\n")
        self.pids = self._answer("started", 120.0) or []
        return self.pids

    def ended(self, seconds: float) -> list[int] | None:
        """Exit codes of the actors started last (below 0: a signal), or None if after so many
        seconds some are still at it."""
        return self._answer("ended", seconds)

    def kill(self) -> list[int] | None:
        """Kill the actors started last; their exit codes."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        return self.ended(60.0)

    def is_alone(self, seconds: float) -> bool:
        """No more jobs: whether everything that actors started has ended in so many seconds."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds) == 0
        return False

    def words(self) -> str:
        """The last lines that actors have said."""
        return "\n".join(self.said.read_text(errors="replace").splitlines()[-12:])

    def _answer(self, word: str, seconds: float) -> list[int] | None:
        answers = self._process.stdout
        assert answers is not None
        if not select.select([answers], [], [], seconds)[0]:
            return None
        first, *numbers = answers.readline().decode().split() or [""]
        if first != word:
            raise AutofuseError(f"the actors' process ended early:\n{self.words()}")
        return [int(n) for n in numbers]


# --- the forking process --------------------------------------------------------------------------


def main() -> None:
    """Fork what is asked for until the input ends, then wait for everything adopted."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _import_everything()
    while line := sys.stdin.readline():
        pids = [_fork(job) for job in json.loads(line)]
        print("started", *pids, flush=True)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        print("ended", *codes, flush=True)
    with suppress(ChildProcessError):
        while True:
            os.wait()


def _import_everything() -> None:
    """What opening a database imports and works out takes longer than opening it."""
    with suppress(ImportError):
        import_module("sqlalchemy.dialects.postgresql.psycopg")
        import_module("psycopg")
    Store.open("sqlite://").close()


def _fork(job: Job) -> int:
    pid = os.fork()
    if pid:
        return pid
    # What an actor prints must not look like an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    sys.exit(_act(**job))


def _act(
    do: str, variables: Mapping[str, str] | None = None, limit: int | None = None, **arguments: Any
) -> int:
    """`variables` are set for this actor; `limit`: bytes that a file may have at most, as on a
    full disk."""
    os.environ.update(variables or {})
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        ACTORS[do](**arguments)
    except AutofuseError as error:
        print(f"autofuse: {error}", file=sys.stderr)
        return REFUSED
    return 0


def _tune(
    db: str, log: str, source: str, budget_s: float, seed: int, ledger: str = "", until: str = "",
    fault: str = "",
) -> None:  # fmt: skip
    """Tune, and write down what the store has acknowledged; with a `ledger` on a simulated device,
    which keeps it. No more once there is a file `until`. With a `fault` nothing is shared ("all"),
    or no final comparison ("finals")."""
    name, graph = load_source(source)
    if ledger:
        DEVICES[SIMULATED] = simulated_kind(Path(ledger))
    with _acknowledged(log), FAULTS[fault]():
        tune(
            graph, name=name, device=SIMULATED if ledger else "cpu", db=db, budget_s=budget_s,
            seed=seed, baselines=("unfused", "xla-2022"),
            stop=lambda: bool(until) and os.path.exists(until),
        )  # fmt: skip


def _write(
    db: str, log: str, workload: str, writer: str, count: int, shared: int = 0, until: str = "",
    kernels_every: int = 1,
) -> None:  # fmt: skip
    """Add `count` made-up measurements of a workload of the tests' own, and with every so many of
    them one of a kernel; each candidate has `shared` groups that others have too. No more once
    there is a file `until`."""
    env = Environment("cpu", (("isa", "soak"),), ())
    timing = Timing(30, 9.0, 9.5, 10.0, 10.5, 10.1, 0.25, "cold", "noise")
    with Store.open(db) as store, _acknowledged(log):
        store.add_workload(workload, "", workload, 1)
        session = store.start_session(env, workload, "soak", 0, 1.0)
        for n in range(count):
            if until and os.path.exists(until):
                break
            digest = f"{writer}-{n}"
            groups = tuple(f"g{(7 * n + 11 * k) % 50}" for k in range(shared)) or (digest,)
            one = Measurement(workload, "{}", digest, "soak", 1, groups, timing, None, 0.0, Cost())
            store.add_measurement(session, env, one)
            if n % kernels_every == 0:
                kernel = KernelMeasurement(
                    digest, "{}", "cold", "", timing, None, 0.0, Cost(), 1.0
                )  # fmt: skip
                store.add_kernel(session, env, kernel)


def _import(db: str, path: str) -> None:
    """Merge an exported database."""
    with Store.open(db) as store, open(path, encoding="utf-8") as lines:
        import_lines(store, lines)


def _build(source: str, plan: str, seed: int) -> None:
    """Build a plan, run it, and compare with the reference."""
    _, graph = load_source(source)
    made = compile_plan(graph, device="cpu", plan=plan)
    if not is_right(made, graph, seed):
        raise RuntimeError(f"plan {plan} of {source} computes something wrong")


# What is planted in a planner, by name: that others have done something is never found.
FAULTS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "": nullcontext,
    "all": lambda: patch.object(Turns, "turn", lambda *_: None),
    "finals": lambda: patch.multiple(incumbent, adopted=lambda *_: None, past=lambda *_: None),
}
ACTORS: dict[str, Callable[..., None]] = {
    "tune": _tune,
    "write": _write,
    "import": _import,
    "build": _build,
}


class _acknowledged:  # noqa: N801 - used as a function
    """While it lasts, every row that the store has taken is a line of `log`, safely on disk."""

    def __init__(self, log: str) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._patches = [
            patch.object(Store, name, self._telling(getattr(Store, name)))
            for name in ("add_measurement", "add_comparison", "add_kernels")
        ]

    def __enter__(self) -> None:
        for one in self._patches:
            one.start()

    def __exit__(self, *_: object) -> None:
        for one in self._patches:
            one.stop()
        os.close(self._log)

    def _telling(self, method: Callable[..., bool | None]) -> Callable[..., bool | None]:
        def add(store: Store, session: Any, env: Any, told: Any, *lease: object) -> bool | None:
            taken = method(store, session, env, told, *lease)
            if taken is False:  # somebody else had the lease
                return taken
            records = (told,) if isinstance(told, Measurement) else told
            said = "".join(f"{json.dumps(key_of(one))}\n" for one in records)
            os.write(self._log, said.encode())
            os.fsync(self._log)
            return taken

        return add


def key_of(record: Measurement | KernelMeasurement) -> list[str]:
    """What a row is found again by."""
    if isinstance(record, KernelMeasurement):
        return ["kernel", record.group, record.launch, record.cache]
    return ["measurement", record.workload, record.candidate_digest, record.stage]


if __name__ == "__main__":
    main()
