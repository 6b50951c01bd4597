"""The engine of many machines: a Ray actor for each device unit.

An actor holds its unit for its lifetime, which is what keeps measurements apart. One that is lost
is made anew, here or on another node, and waits there for a unit. Ray neither starts it again, as
calls would fail until it has, nor does a slice again: an answer that is lost may be of one that was
done. Ray is imported where it is used: extra `fleet`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from autofuse.backends.base import Built, CompileError, CompilerMissing
from autofuse.backends.cpu.parcels import Parcel, cpu_target_here, pack_program, unpack_parcel
from autofuse.backends.cpu.target import CpuTarget
from autofuse.errors import Blame
from autofuse.fleet.engine import (
    EngineError,
    SliceResult,
    SliceWork,
    TuneSlice,
    done_slice,
    tune_slice,
)
from autofuse.records import Failure, FailureKind

MISSING = "engine 'ray' needs Ray: pip install 'autofuse[fleet]'"
# A custom resource of a node: how many device units it has that are no GPUs. The processor of a
# node is one; a test makes more of it.
UNIT = "autofuse_unit"
_CHARACTERS = 400
AUTO, GPU = "auto", "cuda"


def tune_compiling_anywhere(task: TuneSlice) -> SliceResult:
    """As `tune_slice` for device "cpu", but the cluster's idle processors compile."""
    return tune_slice(task, _compile_anywhere)


def _compile_anywhere(program: Any, *, timeout_s: float = math.inf) -> Built[Any]:
    """What `compile_program` does, as a task of the cluster that this process belongs to."""
    import ray

    # Compiling twice gives the same: only here may Ray try again by itself.
    task = ray.remote(num_cpus=1, max_retries=3)(_pack)
    begun = time.perf_counter()
    reference = task.remote(program, cpu_target_here(), timeout_s)
    try:
        found = ray.get(reference, timeout=None if math.isinf(timeout_s) else timeout_s)
    except ray.exceptions.RayError as error:
        ray.cancel(reference)
        text = f"no host of the cluster compiled the program: {type(error).__name__}"
        raise CompileError(text, Blame.MACHINE) from error
    if isinstance(found, Failure):
        raise CompileError(found.message, found.blame)
    return replace(unpack_parcel(found), spent_s=time.perf_counter() - begun)


def _pack(program: Any, target: CpuTarget, timeout_s: float) -> Parcel | Failure:
    """A failure is an answer: an error that travels would lose its blame."""
    try:
        return pack_program(program, target, timeout_s)
    except (CompileError, CompilerMissing) as error:
        return Failure(FailureKind.COMPILE, str(error), error.blame)


class _BenchUnit:
    """What runs in an actor: one slice at a time."""

    def __init__(self, work: SliceWork) -> None:
        self._work = work

    def run(self, task: TuneSlice) -> SliceResult:
        return done_slice(self._work, task)


def _join(ray: Any, address: str | None, units: int) -> None:
    """Join the cluster at an address, or start one here."""
    own = {} if address else {"resources": {UNIT: units}, "include_dashboard": False}
    try:
        ray.init(address or "local", log_to_driver=False, **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise EngineError(f"no Ray cluster at {address or 'local'}: {error}") from error


class RayEngine:
    """An actor for each unit of a Ray cluster; see `Engine`.

    `address` is the cluster's ("auto": the one of this machine), None starts one here with `units`
    units, which ends with the engine. Units are GPUs for device "cuda", else what nodes have of the
    resource UNIT. Raises EngineError without Ray, cluster or units."""

    def __init__(
        self, address: str | None = None, device: str = "cpu", units: int = 1,
        work: SliceWork = tune_slice,
    ) -> None:  # fmt: skip
        try:
            import ray
        except ImportError:
            raise EngineError(MISSING) from None
        self._ray: Any = ray
        self._actors: dict[str, Any] = {}
        self._running: dict[str, tuple[Any, TuneSlice, float]] = {}
        self._owned = not ray.is_initialized()
        if self._owned:
            _join(ray, address, units)
        resource = "GPU" if device == GPU else UNIT
        count = int(ray.cluster_resources().get(resource, 0))
        if count == 0:
            self.close()
            raise EngineError(f"the Ray cluster has no node with resource {resource}")
        needs = {"num_gpus": 1} if device == GPU else {"resources": {UNIT: 1}}
        actor = ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0, **needs)(_BenchUnit)
        self._made: Callable[[], Any] = lambda: actor.remote(work)
        self._actors = {f"{resource}{k}": self._made() for k in range(count)}

    @property
    def units(self) -> tuple[str, ...]:
        return tuple(self._actors)

    def start(self, unit: str, task: TuneSlice) -> None:
        """See `Engine`. Raises EngineError for a unit that is busy or unknown."""
        if unit in self._running or unit not in self._actors:
            raise EngineError(f"unit {unit} is {'busy' if unit in self._running else 'unknown'}")
        reference = self._actors[unit].run.remote(task)
        self._running[unit] = reference, task, time.perf_counter()

    def wait(self, timeout_s: float) -> Mapping[str, SliceResult]:
        """See `Engine`."""
        by_reference = {one[0]: unit for unit, one in self._running.items()}
        if not by_reference:
            time.sleep(timeout_s)
            return {}
        ready, _ = self._ray.wait(list(by_reference), timeout=timeout_s)
        return {by_reference[one]: self._answer(by_reference[one]) for one in ready}

    def _answer(self, unit: str) -> SliceResult:
        reference, task, begun = self._running.pop(unit)
        try:
            answer = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            seconds = time.perf_counter() - begun
            why = f"unit {unit} was lost: {' '.join(str(error).split())[:_CHARACTERS]}"
            self._kill(self._actors[unit])
            self._actors[unit] = self._made()
            return SliceResult(task.name, seconds, error=why, lost=True)
        assert isinstance(answer, SliceResult)
        return answer

    def close(self) -> None:
        """See `Engine`."""
        for actor in self._actors.values():
            self._kill(actor)
        if self._owned:
            self._ray.shutdown()

    def _kill(self, actor: Any) -> None:
        with suppress(self._ray.exceptions.RayError):  # it may be gone already
            self._ray.kill(actor)
