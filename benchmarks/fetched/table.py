"""All repositories, and all of their programs by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.fetched import kernelbench, npbench
from benchmarks.unseen.types import Program

REPOSITORIES = (npbench.NPBENCH, kernelbench.KERNELBENCH)
FETCHED: Mapping[str, Program] = {
    program.name: program for program in (*npbench.PROGRAMS, *kernelbench.PROGRAMS)
}
