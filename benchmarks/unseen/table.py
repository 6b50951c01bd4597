"""All programs, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.peers.types import BenchError
from benchmarks.unseen import dynamics, learning, networks, pictures
from benchmarks.unseen.types import Program

PROGRAMS: Mapping[str, Program] = {
    program.name: program
    for program in (
        *dynamics.PROGRAMS, *learning.PROGRAMS, *pictures.PROGRAMS, *networks.PROGRAMS
    )
}  # fmt: skip


def chosen(names: Sequence[str], programs: Mapping[str, Program] = PROGRAMS) -> list[Program]:
    """The programs of these names, or all of a package named ("brax:"); none named: all of them.
    Raises BenchError for a name that no program has."""
    found: list[Program] = []
    for name in names or programs:
        those = [p for p in programs.values() if p.name == name or p.name.startswith(name + ":")]
        if not those:
            raise BenchError(f"no program is called '{name}' (--list shows them)")
        found += (p for p in those if p not in found)
    return found
