"""The devices a plan can be built for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autofuse.backends import cpu
from autofuse.backends.base import Built, Runnable
from autofuse.backends.ccompiler import compile_program, find_compiler, find_cxx
from autofuse.backends.codes import group_code, plan_code
from autofuse.backends.cuda import driver as cuda
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import DEFAULT_TARGET, Target, target_named
from autofuse.backends.cuda.emulated import build_emulated, load_emulated
from autofuse.backends.cuda.environment import cuda_environment, target_environment
from autofuse.backends.cuda.launch import MODES, load_cuda
from autofuse.backends.cuda.program import CudaProgram, cuda_program
from autofuse.backends.cuda.program import kernel_code as cuda_kernel_code
from autofuse.backends.fingerprint import cpu_environment
from autofuse.backends.library import load_library
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.schedule import Run
from autofuse.plan.types import Candidate, FusionGroup, LaunchConfig
from autofuse.records import Environment


def _always() -> None:
    """The hardware is always here."""


def _nothing() -> str:
    """Nothing but its kernels is compiled into a plan."""
    return ""


@dataclass(frozen=True)
class Backend:
    """One device: candidate to program, program to artifact, and what identifies it.

    `ready` raises AutofuseError with one sentence when nothing can be built or run for the device
    here, `present` when the hardware itself is absent. `load` takes an artifact and how it is to be
    issued ("" is the device's own way). `timed` is False for a device whose times mean nothing;
    only such a one may stand for a named `target`. `modes` are the ways of issuing a plan that are
    timed, the device's own first. `kernel_code` gives the digest of one kernel's code (see
    `backends/codes.py`), `runtime` that of what is compiled into every plan."""

    name: str
    program: Callable[[Graph, Candidate], Any]
    build: Callable[[Any], Built[Any]]
    environment: Callable[[], Environment]
    ready: Callable[[], object]
    load: Callable[[Any, str], Runnable] = load_library
    present: Callable[[], object] = _always
    timed: bool = True
    target: Target | None = None
    modes: tuple[str, ...] = ("",)
    kernel_code: Callable[[Run], str] = cpu.kernel_code
    runtime: Callable[[], str] = cpu.runtime_code

    def group_code(
        self,
        graph: Graph,
        group: FusionGroup,
        launch: LaunchConfig,
        bodies: tuple[LaunchConfig, ...] = (),
    ) -> str:
        """The digest of the code of one group; raises AutofuseError where there can be none."""
        return group_code(graph, group, launch, bodies, self.kernel_code)

    def codes(self, graph: Graph, candidate: Candidate) -> tuple[str, ...]:
        """The digest of the code of each group of a plan, in order, nothing compiled.

        Raises AutofuseError for a plan that cannot be built."""
        bodies = candidate.bodies or ((),) * len(candidate.launches)
        rows = zip(candidate.plan.groups, candidate.launches, bodies, strict=True)
        return tuple(self.group_code(graph, *row) for row in rows)

    def plan_code(self, codes: Sequence[str]) -> str:
        """The digest of a whole plan, from its groups' `codes` in order."""
        return plan_code(codes, self.runtime())


def _for_running(graph: Graph, candidate: Candidate) -> CudaProgram:
    return cuda_program(graph, candidate, cuda.running_target())


def _code_for_running(run: Run) -> str:
    return cuda_kernel_code(run, cuda.running_target())


def emulated(target: Target) -> Backend:
    """Device "cuda-emulated" standing for `target`."""
    return Backend(
        "cuda-emulated",
        partial(cuda_program, target=target),
        build_emulated,
        partial(target_environment, target),
        find_cxx,
        load_emulated,
        timed=False,
        target=target,
        kernel_code=partial(cuda_kernel_code, target=target),
        runtime=_nothing,
    )


BACKENDS: dict[str, Backend] = {
    "cpu": Backend("cpu", cpu.program, compile_program, cpu_environment, find_compiler),
    "cuda": Backend(
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
    ),
    "cuda-emulated": emulated(DEFAULT_TARGET),
}
# What "auto" means: the first that is ready here, else the last.
PREFERRED = ("cuda", "cpu")


def backend_named(device: str) -> Backend:
    """The backend called `device`, or the best there is for "auto"; raises AutofuseError."""
    return chosen_backend(device)[0]


def timed_backend(device: str) -> Backend:
    """The backend for measuring; raises AutofuseError where it is not ready or never timed."""
    backend = backend_named(device)
    if not backend.timed:
        raise AutofuseError(f"device '{backend.name}' is never timed: it only shows what is right")
    backend.ready()
    return backend


def chosen_backend(device: str) -> tuple[Backend, str]:
    """The backend for a name, and what should be said about the choice ("" for nothing).

    Raises AutofuseError for an unknown name."""
    if device == "auto":
        return _best()
    if device in BACKENDS:
        return BACKENDS[device], ""
    name, _, number = device.partition(":")
    if name in BACKENDS and number:
        raise AutofuseError(
            f"unknown device '{device}': ask for '{name}', and choose among several with "
            "CUDA_VISIBLE_DEVICES"
        )
    known = ", ".join(sorted(BACKENDS))
    raise AutofuseError(f"unknown device '{device}' (known here: auto, {known})")


def _best() -> tuple[Backend, str]:
    *wanted, last = PREFERRED
    remarks = []
    for name in wanted:
        try:
            BACKENDS[name].ready()
        except AutofuseError as error:
            remarks.append(f"{error}; using device '{last}'")
            continue
        return BACKENDS[name], ""
    return BACKENDS[last], " ".join(remarks)


def targeted(backend: Backend, target: str) -> Backend:
    """`backend` standing for the device called `target`; raises AutofuseError for a backend that
    runs on real hardware, and for an unknown target."""
    if backend.target is None:
        names = ", ".join(sorted(b.name for b in BACKENDS.values() if b.target is not None))
        raise AutofuseError(
            f"device '{backend.name}' is what it is: a target can be named for {names} only"
        )
    return replace(emulated(target_named(target)), name=backend.name)
