"""Finds an order in which chosen pieces can run, or the values that wait for each other."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autofuse.cover.components import components
from autofuse.order import closure

Values = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RunOrder:
    """`order`: pieces that can run, in order. `stuck`: the others. `available`: values written."""

    order: tuple[int, ...]
    stuck: tuple[int, ...]
    available: frozenset[int]


def run_order(reads: Sequence[Values], writes: Sequence[Values], chosen: Iterable[int]) -> RunOrder:
    """Run every chosen piece whose reads are available until none is left that can."""
    pieces = sorted(chosen)
    missing = {p: len(reads[p]) for p in pieces}
    readers: dict[int, list[int]] = {}
    for p in pieces:
        for v in reads[p]:
            readers.setdefault(v, []).append(p)
    ready = [p for p in reversed(pieces) if missing[p] == 0]
    order: list[int] = []
    available: set[int] = set()
    while ready:
        p = ready.pop()
        order.append(p)
        for v in writes[p]:
            if v in available:
                continue
            available.add(v)
            for reader in readers.get(v, ()):
                missing[reader] -= 1
                if missing[reader] == 0:
                    ready.append(reader)
    stuck = tuple(p for p in pieces if missing[p] > 0)
    return RunOrder(tuple(order), stuck, frozenset(available))


def cheap_plan(
    reads: Sequence[Values], writes: Sequence[Values], costs: Sequence[float],
    allowed: Iterable[int], wanted: Iterable[int],
) -> tuple[int, ...] | None:  # fmt: skip
    """A plan of allowed pieces that writes the wanted values, in an order it can run in; None where
    there is none. Each value is written by the piece that, with all it needs, seems cheapest (the
    additive heuristic of Bonet and Geffner 2001): no solver, and no proof."""
    pieces = list(allowed)
    missing = {p: len(reads[p]) for p in pieces}
    readers: dict[int, list[int]] = {}
    for p in pieces:
        for v in reads[p]:
            readers.setdefault(v, []).append(p)
    total = {p: costs[p] for p in pieces}
    writer: dict[int, int] = {}
    heap = [(total[p], p) for p in pieces if not missing[p]]
    heapq.heapify(heap)
    while heap:
        at, p = heapq.heappop(heap)
        for v in writes[p]:
            if v in writer:
                continue
            writer[v] = p
            for reader in readers.get(v, ()):
                missing[reader] -= 1
                total[reader] += at
                if not missing[reader]:
                    heapq.heappush(heap, (total[reader], reader))
    needed = closure(wanted, lambda v: reads[writer[v]] if v in writer else ())
    if not writer.keys() >= needed:
        return None
    return run_order(reads, writes, {writer[v] for v in needed}).order


def waiting_values(
    reads: Sequence[Values], writes: Sequence[Values], run: RunOrder
) -> list[frozenset[int]]:
    """Sets of values that stuck pieces write only for each other.

    Of each set C it holds that every stuck piece writing into C also reads from C, so that no value
    of C can ever be the first: some piece that writes into C and reads nothing of it is wanting.
    """
    at = {p: i for i, p in enumerate(run.stuck)}
    writers: dict[int, list[int]] = {}
    for p in run.stuck:
        for v in writes[p]:
            writers.setdefault(v, []).append(p)
    waits = [
        (at[p], at[writer])
        for p in run.stuck
        for v in reads[p]
        if v not in run.available
        for writer in writers.get(v, ())
    ]
    labels = components(len(run.stuck), waits, "strong")
    leaving = {int(labels[a]) for a, b in waits if labels[a] != labels[b]}
    found: dict[int, set[int]] = {}
    for p in run.stuck:
        label = int(labels[at[p]])
        if label not in leaving:
            found.setdefault(label, set()).update(v for v in reads[p] if v not in run.available)
    return [frozenset(found[label]) for label in sorted(found)]
