"""Errors of bad input, which every package may import; this file imports nothing."""

from __future__ import annotations


class AutofuseError(Exception):
    """Bad input, said in one sentence: the command line prints it and exits 2."""


class GraphError(AutofuseError):
    """A graph that cannot exist: wrong shapes, dtypes, attributes, or a cycle."""
