"""What builds and runs programs on each kind of device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from autofuse import faults
from autofuse.backends.base import Built, Runnable
from autofuse.backends.ccompiler import compile_objects, compile_program
from autofuse.backends.codes import group_code, plan_code
from autofuse.backends.cpu import backend as cpu
from autofuse.backends.cpu.fingerprint import cpu_environment
from autofuse.backends.cuda import blaslt, maps
from autofuse.backends.cuda import driver as cuda
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.emulated import build_emulated, load_emulated
from autofuse.backends.cuda.environment import cuda_environment, target_environment
from autofuse.backends.cuda.launch import MODES, load_cuda
from autofuse.backends.cuda.program import CudaProgram, cuda_program
from autofuse.backends.cuda.program import kernel_code as cuda_kernel_code
from autofuse.backends.library import load_library
from autofuse.backends.toolchain import find_compiler, find_cxx
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.plan.arithmetic import DEFAULT_MATH, is_relaxed, not_asked
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.parameters import MATH, RELAXED
from autofuse.plan.program.schedule import Run
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig, candidate_from_json
from autofuse.records import Environment


class Build(Protocol):
    """Program to artifact in about `timeout_s` seconds; raises CompileError, by the machine's fault
    where that is too short."""

    def __call__(self, program: Any, *, timeout_s: float = ...) -> Built[Any]: ...


class BuildAhead(Protocol):
    """What several programs are made of, for builds that follow."""

    def __call__(self, programs: Sequence[Any], *, timeout_s: float = ...) -> None: ...


def _always() -> None:
    """The hardware is always here."""


def _nothing() -> str:
    """Nothing but its kernels is compiled into a plan."""
    return ""


def _complete(_: Candidate) -> str:
    """Whatever plans call is there where the device is."""
    return ""


@dataclass(frozen=True)
class Backend:
    """One device: candidate to program, program to artifact, and what identifies it.

    `ready` raises AutofuseError with one sentence when nothing can be built or run for the device
    here, `present` when the hardware itself is absent. `load` takes an artifact and how it is to be
    issued ("" is the device's own way). `target` is the device it stands for, None for hardware of
    its own. `modes` are the ways of issuing a plan that are timed, the device's own first.
    `kernel_code` gives the digest of one kernel's code (see `backends/codes.py`), `runtime` that of
    what is compiled into every plan. `uncallable` says in a sentence which library that a candidate
    calls is not here, "" where none is missing. `ahead` compiles what several programs are made of
    better than one after another (None: there is no such way). `math` is what kernels may do with
    arithmetic (see `plan/arithmetic.py`)."""

    name: str
    program: Callable[[Graph, Candidate], Any]
    build: Build
    environment: Callable[[], Environment]
    ready: Callable[[], object]
    load: Callable[[Any, str], Runnable] = load_library
    present: Callable[[], object] = _always
    target: Target | None = None
    modes: tuple[str, ...] = ("",)
    kernel_code: Callable[[Run], str] = cpu.kernel_code
    runtime: Callable[[], str] = cpu.runtime_code
    uncallable: Callable[[Candidate], str] = cpu.lacking
    ahead: BuildAhead | None = None
    math: str = DEFAULT_MATH

    def allows(self, launch: LaunchConfig) -> bool:
        """Whether a kernel may be launched so under this arithmetic."""
        return self.math == RELAXED or not is_relaxed(launch)

    def forbids(self, stored: str) -> bool:
        """Whether a stored candidate changes arithmetic though nobody asks for it."""
        return bool(not_asked(candidate_from_json(stored), self.math))

    def lacking(self, candidate: Candidate) -> str:
        """Why a candidate that is known cannot serve here, in a sentence; "" where it can."""
        return not_asked(candidate, self.math) or self.uncallable(candidate)

    def group_code(self, graph: Graph, group: FusionGroup, launch: LaunchConfig) -> str:
        """The digest of the code of one group; raises AutofuseError where there can be none, be it
        for a fault of ours."""
        try:
            return group_code(graph, group, launch, self.kernel_code)
        except (AutofuseError, MemoryError):
            raise
        except Exception as error:  # a fault of ours: the candidate is refused, the job goes on
            raise AutofuseError(faults.tell("lowering", error)) from error

    def codes(self, graph: Graph, candidate: Candidate) -> tuple[str, ...]:
        """The digest of the code of each group of a plan, in order, nothing compiled.

        Raises AutofuseError for a plan that cannot be built."""
        check_plan(graph, candidate.plan)
        rows = zip(candidate.plan.groups, candidate.launches, strict=True)
        return tuple(self.group_code(graph, *row) for row in rows)

    def plan_code(self, codes: Sequence[str]) -> str:
        """The digest of a whole plan, from its groups' `codes` in order."""
        return plan_code(codes, self.runtime())


def relaxed_backend(backend: Backend) -> Backend:
    """`backend` where arithmetic may be changed: its times and plans are kept apart from those of
    the default, as those of another device are."""
    environment = partial(_relaxed_environment, backend.environment)
    return replace(backend, environment=environment, math=RELAXED)


def _relaxed_environment(usual: Callable[[], Environment]) -> Environment:
    found = usual()
    return replace(found, must=tuple(sorted({**dict(found.must), MATH.name: RELAXED}.items())))


def _for_running(graph: Graph, candidate: Candidate) -> CudaProgram:
    return cuda_program(graph, candidate, cuda.running_target())


def _code_for_running(run: Run) -> str:
    return cuda_kernel_code(run, cuda.running_target())


def _cuda_lacking(candidate: Candidate) -> str:
    return blaslt.lacking(candidate) or maps.lacking(candidate)


def emulated_backend(target: Target) -> Backend:
    """Device "cuda-emulated" standing for `target`."""
    return Backend(
        "cuda-emulated",
        partial(cuda_program, target=target),
        build_emulated,
        partial(target_environment, target),
        find_cxx,
        load_emulated,
        target=target,
        kernel_code=partial(cuda_kernel_code, target=target),
        runtime=_nothing,
        uncallable=_complete,
    )


CPU_BACKEND = Backend(
    "cpu", cpu.program, compile_program, cpu_environment, find_compiler, ahead=compile_objects
)
CUDA_BACKEND = Backend(
    "cuda",
    _for_running,
    build_cuda,
    cuda_environment,
    cuda.ready,
    load_cuda,
    cuda.require_cuda,
    modes=MODES,
    kernel_code=_code_for_running,
    runtime=_nothing,
    uncallable=_cuda_lacking,
)
