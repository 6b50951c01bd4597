"""The devices a plan can be built for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autofuse.backends.base import Built, Program
from autofuse.backends.ccompiler import compile_program, find_compiler
from autofuse.backends.cpu import program
from autofuse.backends.fingerprint import cpu_environment
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.plan.types import Candidate
from autofuse.records import Environment


@dataclass(frozen=True)
class Backend:
    """One device: candidate to program, program to artifact, and what identifies it.

    `ready` raises AutofuseError with one sentence when the device cannot be used here."""

    name: str
    program: Callable[[Graph, Candidate], Program]
    build: Callable[[Program], Built]
    environment: Callable[[], Environment]
    ready: Callable[[], object]


BACKENDS: dict[str, Backend] = {
    "cpu": Backend("cpu", program, compile_program, cpu_environment, find_compiler),
}


def backend_named(device: str) -> Backend:
    """The backend for "cpu" or "auto"; raises AutofuseError for one that is not here."""
    if device == "auto":
        return BACKENDS["cpu"]
    if device in BACKENDS:
        return BACKENDS[device]
    if device.partition(":")[0] == "cuda":
        raise AutofuseError("device 'cuda' cannot be used: this autofuse has no CUDA backend yet")
    known = ", ".join(sorted(BACKENDS))
    raise AutofuseError(f"unknown device '{device}' (known here: auto, {known})")
