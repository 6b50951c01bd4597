"""The child process that runs candidates: `python -m autofuse.measure.worker.process READ WRITE`.

It holds one workload, its inputs and its reference, and answers jobs until its pipe closes. It may
hang or die in any job; the session sees to that. Nothing here decides what is measured.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.backends.base import AnyArtifact, CompileError, CompilerMissing, LaunchError
from autofuse.limits import limit_own_memory
from autofuse.measure.check.compare import WorkloadReference, check
from autofuse.measure.check.compiled_parts import fingerprints, parts
from autofuse.measure.check.draws import RANDOM, extra_draws
from autofuse.measure.device import Arrays, CheckedRun, Device
from autofuse.measure.hardware import HOST
from autofuse.measure.timing.racing import RACE, has_lost
from autofuse.measure.timing.sampling import WARM_S, collect, summarise
from autofuse.measure.truth.references import load_or_make
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
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.ops.types import AutofuseError
from autofuse.records import Blame, Failure, FailureKind, Timing


class _WrongError(Exception):
    """The candidate computed something wrong."""


# AutofuseError: of libraries that are missing here, a plan's own.
_FAULTS = (
    _WrongError, LaunchError, CompileError, CompilerMissing, AutofuseError, OSError, MemoryError,
)  # fmt: skip


@dataclass(frozen=True)
class _Draw:
    """Inputs that a candidate is checked on, with what it must compute."""

    name: str
    workload: Workload
    fingerprint: tuple[bytes, ...]
    reference: WorkloadReference


def _prepared(name: str, workload: Workload, path: Path) -> tuple[_Draw, Arrays]:
    inputs = draw_inputs(workload)
    marks = fingerprints(inputs)
    return _Draw(name, workload, marks, load_or_make(workload, inputs, path)), inputs


class WorkloadRunner:
    """One workload ready to be run on a device, with its references.

    A candidate is checked on the workload's own inputs, and what the last timed call left is. One
    whose kernels are new is also checked once on each of the other draws (`extra_draws`), and in a
    run after it was timed, with arrays elsewhere. Other draws for which `limit_s` seconds have no
    room are left out: they are worth less than being in time."""

    def __init__(
        self, workload: Workload, reference: Path, device: Device, limit_s: float = math.inf
    ) -> None:
        self.workload, self.device = workload, device
        begun = time.perf_counter()
        self.own, self.inputs = _prepared(RANDOM, workload, reference)
        self.reference = self.own.reference
        each_s = time.perf_counter() - begun

        def has_room() -> bool:
            return time.perf_counter() - begun + 2 * each_s < limit_s

        self.draws = tuple(_others(workload, reference, has_room))
        self._passed: set[AnyArtifact] = set()
        self._first: tuple[bytes, ...] = ()
        device.open(self.inputs, workload.graph.output_types)

    @property
    def checked_on(self) -> tuple[str, ...]:
        """The draws that a candidate is checked on, by name."""
        return tuple(draw.name for draw in (self.own, *self.draws))

    def verify(self, artifact: AnyArtifact, loaded: Any) -> float:
        """Run on poisoned outputs; the largest relative error on the workload's own inputs.

        Raises _WrongError or LaunchError.
        """
        graph = self.workload.graph
        if artifact.inputs != graph.input_types or artifact.outputs != graph.output_types:
            raise LaunchError("the program's inputs or outputs are not those of the graph")
        found = self.device.run(loaded)
        error = self._held(found, self.own)
        self._first = fingerprints(found.outputs)
        return error

    def verify_draws(self, artifact: AnyArtifact) -> None:
        """Check on the other draws."""
        try:
            for draw in self.draws:
                self.device.open(draw_inputs(draw.workload), self.workload.graph.output_types)
                with self.device.load(artifact) as loaded:
                    self._held(self.device.run(loaded, elsewhere=True), draw, draw.name)
        finally:
            self.device.open(self.inputs, self.workload.graph.output_types)
        self._passed.add(artifact)

    def verify_left(self) -> None:
        """Check what the last sample left."""
        self._same(self.device.left(), "after it was timed")

    def verify_again(self, loaded: Any) -> None:
        """One more run, after others, with arrays elsewhere."""
        self._same(self.device.run(loaded, elsewhere=True), "in a later run")

    def _untouched(self) -> None:
        """One of several programs that took turns may have written where none may."""
        left = self.device.left()
        if not left.intact or fingerprints(left.inputs) != self.own.fingerprint:
            self._reopen()
            raise _WrongError("while all were timed a program wrote outside its outputs")

    def _same(self, found: CheckedRun, when: str) -> None:
        """Outputs are those of the first run, or else as right."""
        if not found.intact or fingerprints(found.outputs) != self._first:
            self._held(found, self.own, when)
        elif fingerprints(found.inputs) != self.own.fingerprint:
            self._reopen()
            raise _WrongError(f"{when}: the program changed its inputs")

    def _held(self, found: CheckedRun, draw: _Draw, when: str = "") -> float:
        told = f"{when}: " if when else ""
        if fingerprints(found.inputs) != draw.fingerprint:
            self._reopen()
            raise _WrongError(f"{told}the program changed its inputs")
        if not found.intact:
            raise _WrongError(f"{told}the program wrote outside its outputs")
        result = check(found.outputs, draw.reference, parts)
        if not result.ok:
            raise _WrongError(f"{told}{result.message}")
        return result.max_rel_error

    def _reopen(self) -> None:
        self.inputs = draw_inputs(self.workload)
        self.device.open(self.inputs, self.workload.graph.output_types)

    def _ready(self, stack: ExitStack, artifact: AnyArtifact, draws: bool) -> tuple[Any, float]:
        """A checked program, loaded until `stack` ends, and its largest relative error. Whatever
        the other draws bound to it is let go of before it is loaded for the workload's own."""
        with ExitStack() as first:
            loaded = first.enter_context(self.device.load(artifact))
            error = self.verify(artifact, loaded)
            if not draws or not self.draws or artifact in self._passed:
                stack.enter_context(first.pop_all())
                return loaded, error
        self.verify_draws(artifact)
        return stack.enter_context(self.device.load(artifact)), error

    def measure(self, job: MeasureJob) -> Reply:
        try:
            with ExitStack() as stack:
                loaded, error = self._ready(stack, job.artifact, job.draws)
                timing = None
                if job.sampling is not None:
                    timing = collect(self.device.watch(loaded, job.sampling), job.sampling)
                    self.verify_left()
                if job.draws:
                    self.verify_again(loaded)
        except _FAULTS as failed:
            return Reply(None, None, _failure(failed))
        return Reply(timing, error, None)

    def profile(self, job: ProfileJob) -> Profile:
        """Per-group samples of one call each, every group in the cache state the plan leaves."""
        try:
            with ExitStack() as stack:
                loaded, error = self._ready(stack, job.artifact, job.draws)
                found = self.device.profile(loaded, job.groups, job.sampling)
                self.verify_left()
                if job.draws:
                    self.verify_again(loaded)
        except _FAULTS as failed:
            return Profile((), None, None, _failure(failed))

        def timing(column: np.ndarray, rival_us: float) -> Timing:
            samples = column.tolist()
            stopped = RACE if has_lost(samples, rival_us) else found.stopped
            return summarise(samples, job.sampling.cache, stopped, found.mode)

        *rivals, plan_us = job.sampling.race.rivals(job.groups)
        groups = tuple(map(timing, found.us.T, rivals))
        return Profile(groups, timing(found.us.sum(1), plan_us), error, None)

    def compare(self, job: CompareJob) -> Comparison | ComparisonFailure:
        with ExitStack() as stack:
            libraries, errors = [], []
            for index, artifact in enumerate(job.artifacts):
                try:
                    libraries.append(stack.enter_context(self.device.load(artifact)))
                    errors.append(self.verify(artifact, libraries[-1]))
                except _FAULTS as failed:
                    return ComparisonFailure(index, _failure(failed))
            try:
                samples, modes = self._take_turns(libraries, job)
                self._untouched()
            except _FAULTS as failed:
                return ComparisonFailure(None, _failure(failed))
        cache = job.sampling.cache
        return Comparison(
            tuple(tuple(tuple(block) for block in blocks) for blocks in samples),
            tuple(
                summarise(np.concatenate(blocks).tolist(), cache, "samples", mode)
                for blocks, mode in zip(samples, modes, strict=True)
            ),
            tuple(errors),
        )

    def _take_turns(
        self, libraries: Sequence[Any], job: CompareJob
    ) -> tuple[list[list[list[float]]], list[str]]:
        order = np.random.default_rng(job.seed)
        samples: list[list[list[float]]] = [[] for _ in libraries]
        shortly = replace(job.sampling, warmup_s=min(WARM_S, job.sampling.warmup_s))
        for block in range(job.blocks):
            # Later blocks only make up for those that ran in between.
            sampling = shortly if block else job.sampling
            watches = [self.device.watch(library, sampling) for library in libraries]
            for taken in samples:
                taken.append([])
            for _ in range(job.rounds):
                for index in order.permutation(len(watches)):
                    watches[index].settle()
                    samples[index][-1].append(watches[index].sample())
        return samples, [watch.mode for watch in watches]


def _others(workload: Workload, reference: Path, has_room: Callable[[], bool]) -> Iterator[_Draw]:
    """Draws of which the reference says something, while there is room for one more."""
    for number, (name, other) in enumerate(extra_draws(workload)):
        if not has_room():
            return
        path = reference.with_name(f"{reference.stem}-{number}{reference.suffix}")
        draw, _ = _prepared(name, other, path)
        if not draw.reference.blind:
            yield draw


def _failure(error: Exception) -> Failure:
    """What one of _FAULTS says, and whose fault it is."""
    match error:
        case _WrongError():
            return Failure(FailureKind.WRONG_RESULT, str(error))
        case LaunchError():
            return Failure(FailureKind.LAUNCH, str(error), error.blame)
        case OSError():
            text = f"the measuring process failed: {error.strerror or error}"
        case MemoryError():
            text = "the measuring process ran out of host memory"
        case _:  # what is compiled here, the thread pool, is the same for every candidate
            text = str(error)
    return Failure(FailureKind.LAUNCH, text, Blame.MACHINE)


def _die_with_session(lifeline: int) -> None:
    """End this process, even inside a hanging candidate, once the session's end is closed."""

    def watch() -> None:
        os.read(lifeline, 1)  # returns only at end of file: the session never writes
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(requests: Connection, replies: Connection) -> None:
    """Answer an Open, then jobs on its workload, until the next Open; until the pipe closes."""
    bench: WorkloadRunner | None = None
    device: Device | None = None
    while True:
        job = requests.recv()
        if isinstance(job, Open):
            bench = None  # frees the previous workload's arrays before the next are made
            try:
                if device is None:
                    device = job.device()
                    # A driver of a GPU maps addresses of far more than there is.
                    if job.device is HOST.device:
                        limit_own_memory()
                bench = WorkloadRunner(job.workload, job.reference, device, job.limit_s)
            except (AutofuseError, MemoryError, OSError) as error:
                replies.send(WorkerReady(str(error) or type(error).__name__))
                continue
            replies.send(WorkerReady("", bench.reference.blind, bench.checked_on))
            continue
        assert bench is not None
        answer = _answer(bench, job)
        replies.send(Last(answer) if bench.device.broken else answer)


def _answer(
    bench: WorkloadRunner, job: MeasureJob | ProfileJob | CompareJob
) -> Reply | Profile | Comparison | ComparisonFailure:
    if isinstance(job, ProfileJob):
        return bench.profile(job)
    return bench.measure(job) if isinstance(job, MeasureJob) else bench.compare(job)


def main(arguments: Sequence[str]) -> None:
    read, write, lifeline = (int(a) for a in arguments)
    _die_with_session(lifeline)
    try:
        serve(Connection(read, writable=False), Connection(write, readable=False))
    except (EOFError, BrokenPipeError):
        return  # the session closed its end: nothing is left to do


if __name__ == "__main__":
    main(sys.argv[1:])
