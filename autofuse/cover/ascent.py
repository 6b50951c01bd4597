"""A good set of cuts before any linear program is solved: dual ascent over growing value sets.

Known from Steiner trees (Wong 1984) and, for pieces with several reads, from planning (LM-cut):
every cut (see cuts.py) is raised until one of its pieces is paid for in full; that piece is closed
by taking one of its reads into the set, and the next cut goes around the larger set.

What was paid is a bound: every plan holds a piece of every cut, and no piece paid more than it
costs. It is there before a linear program is solved, and where that takes longer than there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autofuse.cover.order import Values

# A piece counts as paid for when this part of the mean cost is left.
PAID = 1e-9


def distances(
    reads: Sequence[Values], writes: Sequence[Values], costs: Sequence[float], values: int
) -> list[float]:
    """Least cost of the dearest chain of pieces that a value needs, for each value."""
    readers: list[list[int]] = [[] for _ in range(values)]
    for p, rs in enumerate(reads):
        for v in rs:
            readers[v].append(p)
    waiting = [len(rs) for rs in reads]
    far = [float("inf")] * values
    done = [False] * values
    heap: list[tuple[float, int]] = []

    def run(p: int, at: float) -> None:
        for v in writes[p]:
            if at + costs[p] < far[v]:
                far[v] = at + costs[p]
                heapq.heappush(heap, (far[v], v))

    for p, count in enumerate(waiting):
        if count == 0:
            run(p, 0.0)
    while heap:
        at, v = heapq.heappop(heap)
        if done[v]:
            continue
        done[v] = True
        for p in readers[v]:
            waiting[p] -= 1
            if waiting[p] == 0:
                run(p, at)
    return far


class Ascent:
    """Costs not yet paid for, and the cuts that paid."""

    def __init__(
        self, reads: Sequence[Values], writes: Sequence[Values], costs: Sequence[float], values: int
    ) -> None:
        self.reads, self.writes = reads, writes
        self.left, self.bound = list(costs), 0.0
        self.paid = PAID * (sum(costs) / max(1, len(costs)))
        self.far = distances(reads, writes, costs, values)
        self.writers: list[list[int]] = [[] for _ in range(values)]
        self.readers: list[list[int]] = [[] for _ in range(values)]
        for p in range(len(reads)):
            for v in writes[p]:
                self.writers[v].append(p)
            for v in reads[p]:
                self.readers[v].append(p)

    def cuts(self, target: int) -> Iterator[tuple[int, ...]]:
        """The pieces of each cut on the way from `target` to pieces that read nothing."""
        shut: set[int] = set()
        crossing: set[int] = set()
        take = target
        while True:
            shut.update(self.readers[take])
            crossing.difference_update(self.readers[take])
            crossing.update(p for p in self.writers[take] if p not in shut)
            if not crossing:
                return
            least = min(crossing, key=lambda p: (self.left[p], p))
            pay = self.left[least]
            if pay > self.paid:
                yield tuple(sorted(crossing))
                self.bound += pay
                for p in crossing:
                    self.left[p] -= pay
            if not self.reads[least]:
                return
            take = max(self.reads[least], key=lambda v: (self.far[v], v))


@dataclass(frozen=True, slots=True)
class Opening:
    """Sets of pieces of which every plan holds at least one, for the first linear program; no plan
    costs less than `bound`, and one with piece p no less than bound + left[p]."""

    cuts: tuple[tuple[int, ...], ...]
    bound: float
    left: tuple[float, ...]


def opening(
    reads: Sequence[Values],
    writes: Sequence[Values],
    costs: Sequence[float],
    forced: Sequence[bool],
) -> Opening:
    """What dual ascent finds at these costs, all >= 0."""
    ascent = Ascent(reads, writes, costs, len(forced))
    targets = [v for v, is_forced in enumerate(forced) if is_forced]
    targets.sort(key=lambda v: (ascent.far[v], v))
    cuts = tuple(dict.fromkeys(c for v in targets for c in ascent.cuts(v)))
    return Opening(cuts, ascent.bound, tuple(max(left, 0.0) for left in ascent.left))
