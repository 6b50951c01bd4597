"""What builds and runs programs on each kind of device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from autofuse.backends.base import Built, Runnable
from autofuse.backends.ccompiler import compile_program, find_compiler, find_cxx
from autofuse.backends.cpu import program
from autofuse.backends.cuda import driver as cuda
from autofuse.backends.cuda.build import build_cuda
from autofuse.backends.cuda.devices import Target
from autofuse.backends.cuda.emulated import build_emulated, load_emulated
from autofuse.backends.cuda.environment import cuda_environment, target_environment
from autofuse.backends.cuda.launch import MODES, load_cuda
from autofuse.backends.cuda.program import CudaProgram, cuda_program
from autofuse.backends.fingerprint import cpu_environment
from autofuse.backends.library import load_library
from autofuse.graph.types import Graph
from autofuse.plan.types import Candidate
from autofuse.records import Environment


def _always() -> None:
    """The hardware is always here."""


@dataclass(frozen=True)
class Backend:
    """One device: candidate to program, program to artifact, and what identifies it.

    `ready` raises AutofuseError with one sentence when nothing can be built or run for the device
    here, `present` when the hardware itself is absent. `load` takes an artifact and how it is to be
    issued ("" is the device's own way). `target` is the device it stands for, None for hardware of
    its own. `modes` are the ways of issuing a plan that are timed, the device's own first."""

    name: str
    program: Callable[[Graph, Candidate], Any]
    build: Callable[[Any], Built[Any]]
    environment: Callable[[], Environment]
    ready: Callable[[], object]
    load: Callable[[Any, str], Runnable] = load_library
    present: Callable[[], object] = _always
    target: Target | None = None
    modes: tuple[str, ...] = ("",)


def _for_running(graph: Graph, candidate: Candidate) -> CudaProgram:
    return cuda_program(graph, candidate, cuda.running_target())


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
    )


CPU_BACKEND = Backend("cpu", program, compile_program, cpu_environment, find_compiler)
CUDA_BACKEND = Backend(
    "cuda",
    _for_running,
    build_cuda,
    cuda_environment,
    cuda.ready,
    load_cuda,
    cuda.require_cuda,
    modes=MODES,
)
