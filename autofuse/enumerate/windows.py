"""Cut a large graph where little is live, so that an exact method can work window by window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from autofuse.enumerate.supernodes import Supernodes, supernodes_of
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.clusters import bits

# How far from its even place a cut may move to find a narrow one, as a share of the limit.
_SLACK = 0.5


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbouring nodes planned together: values that must be `produced` for what comes after,
    and values that may be read because what comes before produces them, both ascending.

    `kind` is "tile" (tiles cover the graph once, in order) or "seam" (across the cut between two
    tiles: planned again when its tiles are, to undo what the cut forbade)."""

    nodes: frozenset[int]
    produced: tuple[Value, ...]
    given: tuple[Value, ...]
    kind: str


def windows(
    graph: Graph, limit: int = 600, overlap: int = 150, supernodes: Supernodes | None = None
) -> tuple[Window, ...]:
    """Windows of at most `limit` nodes each, tiles first: one tile when the graph fits, else a
    seam of `overlap` nodes on either side of each cut. `graph` must be canonical.

    A certificate of optimality found window by window holds per window only."""
    found = supernodes or supernodes_of(graph)
    sizes = [len(supernode.own) for supernode in found.items]
    if sum(sizes) <= limit:
        return (_window(found, 0, len(sizes), "tile"),) if sizes else ()
    cuts = [0, *cuts_under(sizes, live_bytes(found), limit), len(sizes)]
    spans = [(a, b, "tile") for a, b in pairwise(cuts)]
    half = min(overlap, limit // 2)
    for cut in cuts[1:-1]:
        first, last = _reach(sizes, cut, -half), _reach(sizes, cut, half)
        spans.append((first, last, "seam"))
    return tuple(_window(found, a, b, kind) for a, b, kind in spans if b > a)


def live_bytes(supernodes: Supernodes) -> list[int]:
    """Bytes of computed values alive between supernode k - 1 and supernode k, for each k."""
    steps = [0] * (len(supernodes.items) + 1)
    for k, supernode in enumerate(supernodes.items):
        for export in supernode.exports:
            last = export.readers.bit_length() - 1
            if last > k:
                nbytes = supernodes.graph.type_of(export.value).nbytes
                steps[k + 1] += nbytes
                steps[last + 1 if last + 1 < len(steps) else last] -= nbytes
    total, found = 0, []
    for step in steps[:-1]:
        total += step
        found.append(total)
    return found


def cuts_under(sizes: Sequence[int], live: Sequence[int], limit: int) -> list[int]:
    """Supernodes before which to cut so that no part owns more than `limit` nodes: the narrowest
    place in the second half of what fits."""
    cuts: list[int] = []
    start, left = 0, sum(sizes)
    while left > limit:
        end = _reach(sizes, start, limit)
        low = max(start + 1, _reach(sizes, start, int(limit * _SLACK)))
        cut = min(range(low, max(end, low) + 1), key=lambda k: (live[k], -k))
        left -= sum(sizes[start:cut])
        cuts.append(cut)
        start = cut
    return cuts


def _reach(sizes: Sequence[int], start: int, nodes: int) -> int:
    """The furthest supernode that is at most `nodes` nodes away, ahead or (negative) back."""
    at, step = start, 1 if nodes >= 0 else -1
    left = abs(nodes)
    while 0 <= at + min(step, 0) < len(sizes):
        left -= sizes[at + min(step, 0)]
        if left < 0:
            break
        at += step
    return at


def _window(supernodes: Supernodes, first: int, last: int, kind: str) -> Window:
    inside = (1 << last) - (1 << first)
    nodes: set[int] = set()
    given: set[Value] = set()
    produced: list[Value] = []
    for k in bits(inside):
        supernode = supernodes.items[k]
        nodes |= supernode.full
        given.update(v for v in supernode.reads if not inside >> supernodes.home[v.node] & 1)
        produced += [e.value for e in supernode.exports if e.is_output or e.readers & ~inside]
    for before in supernodes.items[:first]:  # alive across the window: also there to be read
        given.update(e.value for e in before.exports if e.readers >> last)
    return Window(frozenset(nodes), tuple(sorted(produced)), tuple(sorted(given)), kind)
