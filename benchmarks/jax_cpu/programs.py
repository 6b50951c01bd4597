"""All programs, by name. No part of autofuse is imported here: an old JAX reads it too."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.jax_cpu import estimates, libraries, physics, scalars
from benchmarks.jax_cpu.types import LoopProgram

PROGRAMS: Mapping[str, LoopProgram] = {
    program.name: program
    for program in (
        *scalars.PROGRAMS, *physics.PROGRAMS, *estimates.PROGRAMS, *libraries.PROGRAMS
    )
}  # fmt: skip
