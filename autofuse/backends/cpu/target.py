"""A processor that C is compiled for, which need not be here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NATIVE = "-march=native"


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """Its instruction set `isa` as in fingerprints, the version of the compiler that it is used
    with, and the flags that say there what NATIVE means."""

    isa: str
    compiler: str
    flags: tuple[str, ...]

    def explicit(self, flags: Sequence[str]) -> tuple[str, ...]:
        """`flags` with NATIVE spelt out."""
        return tuple(own for flag in flags for own in (self.flags if flag == NATIVE else (flag,)))
