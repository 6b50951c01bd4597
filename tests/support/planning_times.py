"""Ends of planning by count."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.graph.canonical import canonical
from benchmarks.planning import mixed

MIXED = canonical(mixed(60))


def after(calls: int) -> Callable[[], bool]:
    """Says to stop from that call on."""
    left = iter(range(calls))
    return lambda: next(left, None) is None
