"""The child process that runs candidates: `python -m autofuse.measure.worker READ WRITE`.

It holds one workload, its inputs and its reference, and answers jobs until its pipe closes. It may
hang or die in any job; the session sees to that. Nothing here decides what is measured.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.backends.base import AnyArtifact, CompileError, CompilerMissing, LaunchError
from autofuse.measure.check import check
from autofuse.measure.device import Device
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
from autofuse.measure.references import load_or_make
from autofuse.measure.timing import collect, summarise
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.ops.types import AutofuseError
from autofuse.records import Blame, Failure, FailureKind, Timing


class _WrongError(Exception):
    """The candidate computed something wrong."""


_FAULTS = (_WrongError, LaunchError, CompileError, CompilerMissing, OSError, MemoryError)


class WorkloadRunner:
    """One workload ready to be run on a device, with its reference."""

    def __init__(self, workload: Workload, reference: Path, device: Device) -> None:
        self.workload, self.device = workload, device
        inputs = draw_inputs(workload)
        self.fingerprint = _checksum(inputs)
        self.reference = load_or_make(workload, inputs, reference)
        device.open(inputs, workload.graph.output_types)

    def verify(self, artifact: AnyArtifact, loaded: Any) -> float:
        """Run once on poisoned outputs; the largest relative error.

        Raises _WrongError or LaunchError.
        """
        graph = self.workload.graph
        if artifact.inputs != graph.input_types or artifact.outputs != graph.output_types:
            raise LaunchError("the program's inputs or outputs are not those of the graph")
        inputs, outputs, intact = self.device.run(loaded)
        if _checksum(inputs) != self.fingerprint:
            self.device.open(draw_inputs(self.workload), graph.output_types)
            raise _WrongError("the program changed its inputs")
        if not intact:
            raise _WrongError("the program wrote outside its outputs")
        result = check(outputs, self.reference)
        if not result.ok:
            raise _WrongError(result.message)
        return result.max_rel_error

    def measure(self, job: MeasureJob) -> Reply:
        try:
            with self.device.load(job.artifact) as loaded:
                error = self.verify(job.artifact, loaded)
                timing = None
                if job.sampling is not None:
                    timing = collect(self.device.watch(loaded, job.sampling), job.sampling)
        except _FAULTS as failed:
            return Reply(None, None, _failure(failed))
        return Reply(timing, error, None)

    def profile(self, job: ProfileJob) -> Profile:
        """Per-group samples of one call each, every group in the cache state the plan leaves."""
        try:
            with self.device.load(job.artifact) as loaded:
                error = self.verify(job.artifact, loaded)
                samples, mode = self.device.profile(loaded, job.groups, job.sampling)
        except _FAULTS as failed:
            return Profile((), None, None, _failure(failed))

        def timing(column: np.ndarray) -> Timing:
            return summarise(column.tolist(), job.sampling.cache, "samples", mode)

        return Profile(tuple(map(timing, samples.T)), timing(samples.sum(1)), error, None)

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
        for _ in range(job.blocks):
            watches = [self.device.watch(library, job.sampling) for library in libraries]
            for taken in samples:
                taken.append([])
            for _ in range(job.rounds):
                for index in order.permutation(len(watches)):
                    watches[index].settle()
                    samples[index][-1].append(watches[index].sample())
        return samples, [watch.mode for watch in watches]


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


def _checksum(arrays: Sequence[np.ndarray]) -> tuple[bytes, ...]:
    """A hash of the bytes of each array, which tells their order too."""
    flat = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arrays)
    return tuple(blake2b(data.data, digest_size=16).digest() for data in flat)


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
                device = device or job.device()
                bench = WorkloadRunner(job.workload, job.reference, device)
            except (AutofuseError, MemoryError, OSError) as error:
                replies.send(WorkerReady(str(error) or type(error).__name__))
                continue
            replies.send(WorkerReady(blind=bench.reference.blind))
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
