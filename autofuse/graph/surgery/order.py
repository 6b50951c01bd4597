"""A topological order that stays as close to the given one as it can."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


class CycleError(ValueError):
    """There is no order; `member` is on a cycle."""

    def __init__(self, member: int) -> None:
        super().__init__(f"a cycle goes through {member}")
        self.member = member


def stable_order(reads: Sequence[Collection[int]]) -> list[int]:
    """0 .. n-1 so that everything comes after what it reads, the least of the ready ones first.

    `reads[i]` are the distinct members that i reads. Raises CycleError.
    """
    waiting = [len(sources) for sources in reads]
    users: list[list[int]] = [[] for _ in reads]
    for i, sources in enumerate(reads):
        for source in sources:
            users[source].append(i)
    ready = [i for i, count in enumerate(waiting) if count == 0]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for user in users[i]:
            waiting[user] -= 1
            if waiting[user] == 0:
                heapq.heappush(ready, user)
    if len(order) < len(reads):
        raise CycleError(_on_cycle(reads, waiting))
    return order


def _on_cycle(reads: Sequence[Collection[int]], waiting: Sequence[int]) -> int:
    """A member that reads itself in the end: walk back along what is unfinished."""
    at = next(i for i, count in enumerate(waiting) if count)
    seen: set[int] = set()
    while at not in seen:
        seen.add(at)
        at = next(source for source in reads[at] if waiting[source])
    return at
