"""The engine of one machine: a process for each device unit."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from autofuse.fleet.engine import (
    EngineError,
    SliceResult,
    SliceWork,
    TuneSlice,
    done_slice,
    tune_slice,
)

_GRACE_S = 2.0


@dataclass
class _Unit:
    """A process, what it is doing, and since when."""

    process: BaseProcess
    pipe: Connection
    task: TuneSlice | None = None
    begun: float = 0.0


class LocalEngine:
    """A process for each of `units`, started anew when it is lost; see `Engine`.

    `units` are names with the environment variables that choose the unit: the processor is one,
    as what is measured on it may not share it, and each GPU."""

    def __init__(
        self, units: Mapping[str, Mapping[str, str]], work: SliceWork = tune_slice
    ) -> None:
        if not units:
            raise EngineError("an engine needs units")
        self._work, self._variables = work, units
        # A fresh interpreter: a fork would inherit threads of the pool and of the loader.
        self._context = multiprocessing.get_context("spawn")
        self._units = {name: self._started(name) for name in units}

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(self._units)

    def start(self, unit: str, task: TuneSlice) -> None:
        """See `Engine`. Raises EngineError for a unit that is busy or unknown."""
        one = self._units.get(unit)
        if one is None or one.task is not None:
            raise EngineError(f"unit {unit} is {'busy' if one else 'unknown'}")
        one.task, one.begun = task, time.perf_counter()
        with suppress(BrokenPipeError):  # it died while it was idle: `wait` will see that
            one.pipe.send(task)

    def wait(self, timeout_s: float) -> Mapping[str, SliceResult]:
        """See `Engine`."""
        busy = {one.pipe: name for name, one in self._units.items() if one.task is not None}
        found = {}
        for pipe in wait(list(busy), timeout_s):
            assert isinstance(pipe, Connection)
            name = busy[pipe]
            found[name] = self._answer(name)
        return found

    def _answer(self, name: str) -> SliceResult:
        one = self._units[name]
        assert one.task is not None
        task, one.task = one.task, None
        try:
            answer = one.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._end(one)
            self._units[name] = self._started(name)
            why = f"the process of unit {name} ended: {_how(one.process.exitcode)}"
            return SliceResult(task.name, time.perf_counter() - one.begun, error=why, lost=True)
        assert isinstance(answer, SliceResult)
        return answer

    def close(self) -> None:
        """See `Engine`."""
        for one in self._units.values():
            self._end(one)
        self._units.clear()

    def _started(self, name: str) -> _Unit:
        ours, theirs = self._context.Pipe()
        given = theirs, self._work, dict(self._variables[name])
        process = self._context.Process(target=_serve, args=given, daemon=False)
        process.start()
        theirs.close()
        return _Unit(process, ours)

    @staticmethod
    def _end(one: _Unit) -> None:
        one.pipe.close()
        one.process.join(0 if one.task is not None else _GRACE_S)
        if one.process.is_alive():
            one.process.kill()  # its worker goes with it: each holds a lifeline
        one.process.join()


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _serve(pipe: Connection, work: SliceWork, variables: Mapping[str, str]) -> None:
    """Do slices until the other end closes its pipe."""
    # A terminal's Ctrl-C reaches the whole group; who decides ends this one by its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.update(variables)
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            os._exit(0)
        with suppress(BrokenPipeError):
            pipe.send(done_slice(work, task))
