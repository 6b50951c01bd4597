"""The child process that runs candidates: `python -m autofuse.measure.worker READ WRITE`.

It holds one workload, its inputs and its reference, and answers jobs until its pipe closes. It may
hang or die in any job; the session sees to that. Nothing here decides what is measured.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import fields
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from autofuse.backends.base import ALIGNMENT, LaunchError
from autofuse.backends.library import Library, load
from autofuse.measure.check import OutputReference, Reference, check, poison, reference_of
from autofuse.measure.evict import Evictor
from autofuse.measure.protocol import (
    CompareJob,
    Comparison,
    ComparisonFailure,
    MeasureJob,
    Open,
    Profile,
    ProfileJob,
    Ready,
    Reply,
)
from autofuse.measure.timing import (
    Sampling,
    Stopwatch,
    collect,
    collect_profile,
    summarise,
    warm_up,
)
from autofuse.measure.workload import Workload, draw_inputs
from autofuse.ops.types import AutofuseError, TensorType
from autofuse.records import Failure, FailureKind

_GUARD_BYTES = 512
_GUARD_VALUE = 0x5C


class _WrongError(Exception):
    """The candidate computed something wrong."""


class GuardedOutput:
    """An output array between two guard zones that no correct program writes to."""

    def __init__(self, type_: TensorType) -> None:
        size = -(-type_.nbytes // ALIGNMENT) * ALIGNMENT
        memory = np.empty(size + 2 * _GUARD_BYTES + ALIGNMENT, np.uint8)
        start = _GUARD_BYTES + -(memory.ctypes.data + _GUARD_BYTES) % ALIGNMENT
        end = start + type_.nbytes
        self._zones = (memory[start - _GUARD_BYTES : start], memory[end : end + _GUARD_BYTES])
        self.array = memory[start:end].view(type_.dtype.numpy).reshape(type_.shape)

    def arm(self) -> None:
        """Poison the array and reset the zones."""
        poison(self.array)
        for zone in self._zones:
            zone.fill(_GUARD_VALUE)

    def intact(self) -> bool:
        return all(bool(np.all(zone == _GUARD_VALUE)) for zone in self._zones)


class Bench:
    """One workload ready to be run: inputs, reference and output buffers shared by all jobs."""

    def __init__(self, workload: Workload, reference: Path) -> None:
        self.workload = workload
        self.inputs = draw_inputs(workload)
        self.fingerprint = _checksum(self.inputs)
        self.reference = _load_or_make(workload, self.inputs, reference)
        self.outputs = tuple(GuardedOutput(t) for t in workload.graph.output_types)
        self.arrays = tuple(o.array for o in self.outputs)
        self.evictor = Evictor()

    def verify(self, library: Library) -> float:
        """Run once on poisoned outputs; the largest relative error.

        Raises _WrongError or LaunchError.
        """
        facts, graph = library.artifact, self.workload.graph
        if facts.inputs != graph.input_types or facts.outputs != graph.output_types:
            raise LaunchError("the program's inputs or outputs are not those of the graph")
        for output in self.outputs:
            output.arm()
        self._run(library)
        if _checksum(self.inputs) != self.fingerprint:
            self.inputs = draw_inputs(self.workload)
            raise _WrongError("the program changed its inputs")
        if not all(output.intact() for output in self.outputs):
            raise _WrongError("the program wrote outside its outputs")
        result = check(self.arrays, self.reference)
        if not result.ok:
            raise _WrongError(result.message)
        return result.max_rel_error

    def _run(self, library: Library) -> None:
        code = library.bind(self.inputs, self.arrays)()
        if code != 0:
            raise LaunchError(f"the program failed with code {code}")

    def stopwatch(self, library: Library, sampling: Sampling) -> Stopwatch:
        """The checked `library`, warmed up."""
        touched = (*self.inputs, *library.constants, *self.arrays, library.workspace)
        prepare = self.evictor.for_arrays(touched)
        return warm_up(library.bind(self.inputs, self.arrays), prepare, sampling)

    def measure(self, job: MeasureJob) -> Reply:
        try:
            with load(job.artifact) as library:
                error = self.verify(library)
                if job.sampling is None:
                    return Reply(None, error, None)
                timing = collect(self.stopwatch(library, job.sampling), job.sampling)
                return Reply(timing, error, None)
        except (LaunchError, _WrongError) as failed:
            return Reply(None, None, _failure(failed))

    def profile(self, job: ProfileJob) -> Profile:
        """Per-group samples of one call each, every group in the cache state the plan leaves."""
        try:
            with load(job.artifact) as library:
                error = self.verify(library)
                touched = (*self.inputs, *library.constants, *self.arrays, library.workspace)
                prepare = self.evictor.for_arrays(touched)
                call = library.bind_profile(self.inputs, self.arrays, job.groups)
                samples = collect_profile(call, prepare, job.sampling)
        except (LaunchError, _WrongError) as failed:
            return Profile((), None, None, _failure(failed))
        mode = job.sampling.cache
        each = tuple(summarise(column.tolist(), mode, "samples") for column in samples.T)
        return Profile(each, summarise(samples.sum(1).tolist(), mode, "samples"), error, None)

    def compare(self, job: CompareJob) -> Comparison | ComparisonFailure:
        with ExitStack() as stack:
            libraries, errors = [], []
            for index, artifact in enumerate(job.artifacts):
                try:
                    libraries.append(stack.enter_context(load(artifact)))
                    errors.append(self.verify(libraries[-1]))
                except (LaunchError, _WrongError) as failed:
                    return ComparisonFailure(index, _failure(failed))
            samples = self._take_turns(libraries, job)
        mode = job.sampling.cache
        return Comparison(
            tuple(tuple(tuple(block) for block in blocks) for blocks in samples),
            tuple(
                summarise(np.concatenate(blocks).tolist(), mode, "samples") for blocks in samples
            ),
            tuple(errors),
        )

    def _take_turns(self, libraries: Sequence[Library], job: CompareJob) -> list[list[list[float]]]:
        order = np.random.default_rng(job.seed)
        samples: list[list[list[float]]] = [[] for _ in libraries]
        for _ in range(job.blocks):
            watches = [self.stopwatch(library, job.sampling) for library in libraries]
            for taken in samples:
                taken.append([])
            for _ in range(job.rounds):
                for index in order.permutation(len(watches)):
                    samples[index][-1].append(watches[index].sample())
        return samples


def _failure(error: LaunchError | _WrongError) -> Failure:
    wrong = isinstance(error, _WrongError)
    return Failure(FailureKind.WRONG_RESULT if wrong else FailureKind.LAUNCH, str(error))


def _checksum(arrays: Sequence[np.ndarray]) -> tuple[int, ...]:
    """One number per array that changes with any single element."""
    sums = []
    for array in arrays:
        data = array.reshape(-1).view(np.uint8)
        whole = data[: data.size // 8 * 8].view(np.uint64)
        tail = int.from_bytes(data[whole.nbytes :].tobytes(), "little")
        sums.append((int(whole.sum(dtype=np.uint64)) ^ tail) + (tail << 64))
    return tuple(sums)


def _load_or_make(workload: Workload, inputs: Sequence[np.ndarray], path: Path) -> Reference:
    """The reference an earlier worker of this session left at `path`, else a new one left there."""
    types = workload.graph.output_types
    if path.exists():
        return _read_reference(path, types)
    reference = reference_of(workload.graph, inputs)
    handle, name = tempfile.mkstemp(suffix=".npz", dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        np.savez(file, allow_pickle=False, **_reference_data(reference))
    os.replace(name, path)
    return reference


def _reference_data(reference: Reference) -> dict[str, np.ndarray]:
    names = [f.name for f in fields(OutputReference) if f.name != "type"]
    return {
        f"{name}{i}": np.asarray(getattr(output, name))
        for i, output in enumerate(reference.outputs)
        for name in names
    }


def _read_reference(path: Path, types: Sequence[TensorType]) -> Reference:
    with np.load(path, allow_pickle=False) as data:
        return Reference(
            tuple(
                OutputReference(
                    type_,
                    data[f"expected{i}"],
                    data[f"tolerance{i}"],
                    float(data[f"rms{i}"]),
                    float(data[f"norm{i}"]),
                    float(data[f"norm_bound{i}"]),
                    int(data[f"outliers{i}"]),
                )
                for i, type_ in enumerate(types)
            )
        )


def _die_with_session(lifeline: int) -> None:
    """End this process, even inside a hanging candidate, once the session's end is closed."""

    def watch() -> None:
        os.read(lifeline, 1)  # returns only at end of file: the session never writes
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()


def serve(requests: Connection, replies: Connection) -> None:
    """Answer an Open, then jobs on its workload, until the next Open; until the pipe closes."""
    bench: Bench | None = None
    while True:
        job = requests.recv()
        if isinstance(job, Open):
            bench = None  # frees the previous workload's arrays before the next are made
            try:
                bench = Bench(job.workload, job.reference)
            except (AutofuseError, MemoryError) as error:
                replies.send(Ready(str(error) or type(error).__name__))
                continue
            replies.send(Ready())
            continue
        assert bench is not None
        if isinstance(job, ProfileJob):
            replies.send(bench.profile(job))
        else:
            replies.send(bench.measure(job) if isinstance(job, MeasureJob) else bench.compare(job))


def main(arguments: Sequence[str]) -> None:
    read, write, lifeline = (int(a) for a in arguments)
    _die_with_session(lifeline)
    try:
        serve(Connection(read, writable=False), Connection(write, readable=False))
    except (EOFError, BrokenPipeError):
        return  # the session closed its end: nothing is left to do


if __name__ == "__main__":
    main(sys.argv[1:])
