"""Errors of bad input, and whose fault a failure is; every package may import this file, which
imports nothing of ours."""

from __future__ import annotations

from enum import Enum


class AutofuseError(Exception):
    """Bad input, said in one sentence: the command line prints it and exits 2."""


class GraphError(AutofuseError):
    """A graph that cannot exist: wrong shapes, dtypes, attributes, or a cycle."""


class Blame(Enum):
    """Whose fault a failure is. What the machine did (ran out of memory or disk, stalled, lost its
    compiler) says nothing about the candidate, which is tried again."""

    CANDIDATE = "candidate"
    MACHINE = "machine"
