"""Orders and closures of whatever depends on one another: nodes, groups, pieces, boxes.

Everything is told by functions from an item to others, so that no copy of a graph is made, and
walks are iterative, because chains are thousands of nodes long.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)
# From an item to those that it is made from, or that are made from it.
Near = Callable[[T], Iterable[T]]


def closure(starts: Iterable[T], near: Near[T]) -> set[T]:
    """`starts` with everything that `near` leads to from them, in any number of steps."""
    found = set(starts)
    stack = list(found)
    while stack:
        for other in near(stack.pop()):
            if other not in found:
                found.add(other)
                stack.append(other)
    return found


def post_order(roots: Iterable[T], before: Near[T]) -> Iterator[T]:
    """What `roots` need, each once and after all that is `before` it, as a depth-first walk meets
    them."""
    seen: set[T] = set()
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        way = [(root, iter(before(root)))]
        while way:
            at, rest = way[-1]
            for other in rest:
                if other not in seen:
                    seen.add(other)
                    way.append((other, iter(before(other))))
                    break
            else:
                way.pop()
                yield at


def stable_order(
    items: Iterable[T],
    reads: Callable[[T], Iterable[Hashable]],
    writes: Callable[[T], Iterable[Hashable]] | None = None,
    key: Callable[[T], Any] | None = None,
) -> list[T]:
    """Different items so that whatever one reads is written by one before it, and of those that
    can come next the least by `key`. A value that several write is there after the first of them.
    Without `writes`, items read items. Those that can never come are left out."""
    # Items that are compared without a key are numbers.
    ranked = sorted(items, key=key)  # type: ignore[type-var, arg-type]
    readers: dict[Hashable, list[int]] = {}
    waits: list[int] = []
    for k, item in enumerate(ranked):
        needed = list(reads(item))
        waits.append(len(needed))
        for value in needed:
            readers.setdefault(value, []).append(k)
    ready = [k for k, left in enumerate(waits) if not left]  # ascending, so it is a heap
    order: list[T] = []
    while ready:
        item = ranked[heappop(ready)]
        order.append(item)
        for value in (item,) if writes is None else writes(item):
            for k in readers.pop(value, ()):
                waits[k] -= 1
                if not waits[k]:
                    heappush(ready, k)
    return order


def on_circle(left: Collection[T], before: Near[T]) -> T:
    """One that waits for itself in the end, of those that `stable_order` leaves out: the first that
    comes twice on the way back from the first of them."""
    at, seen = next(iter(left)), set[T]()
    while at not in seen:
        seen.add(at)
        at = next(other for other in before(at) if other in left)
    return at


def depths(order: Iterable[T], before: Near[T]) -> dict[T, int]:
    """The longest way to each item of an order, in steps from one that nothing is before."""
    found: dict[T, int] = {}
    for at in order:
        found[at] = max((found[other] + 1 for other in before(at)), default=0)
    return found
