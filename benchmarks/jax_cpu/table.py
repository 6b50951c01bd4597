"""All programs, by name; and the rows that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from autofuse.peers.types import BenchError
from benchmarks.jax_cpu.programs import PROGRAMS
from benchmarks.jax_cpu.types import GRADIENTS, VALUES, LoopProgram

Wanted = tuple[LoopProgram, str]


def key(program: LoopProgram, what: str) -> str:
    """A row's name."""
    return f"{program.name}:{what}"


def _every(programs: Mapping[str, LoopProgram]) -> Iterator[Wanted]:
    for program in programs.values():
        yield program, VALUES
        if program.gradients:
            yield program, GRADIENTS


def wanted(names: Sequence[str], programs: Mapping[str, LoopProgram] = PROGRAMS) -> list[Wanted]:
    """The rows of these names (`planets`, `planets:gradients`), none named: all. Raises BenchError
    for a name that no row has."""
    every = list(_every(programs))
    found: list[Wanted] = []
    for name in names:
        those = [each for each in every if name in (each[0].name, key(*each))]
        if not those:
            raise BenchError(f"no program is called '{name}' (--list shows them)")
        found += (each for each in those if each not in found)
    return found if names else every
