"""Cut a large graph into slices that come again, so that each distinct one is planned once.

Layers of a network and steps of a simulation are equal but for what they read. Slices are spans of
supernodes in their topological order: no path leaves one and returns to it, so plans of slices are
a plan of the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

from autofuse.enumerate.structure import Structures
from autofuse.enumerate.supernodes import Supernodes
from autofuse.enumerate.windows import Window, cuts_under
from autofuse.graph.settled import settled
from autofuse.graph.types import Value
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.types import FusionGroup


@dataclass(frozen=True, slots=True)
class Slice:
    """The supernodes from `first` to before `last`: the nodes that they compute, ascending, and the
    values of them that others need. `like` is the first slice that is the same graph of its own,
    by position."""

    first: int
    last: int
    nodes: tuple[int, ...]
    produced: tuple[Value, ...]
    like: int

    def moved(self, group: FusionGroup, other: Slice) -> FusionGroup:
        """A group of this slice as one of another that is like it."""
        place = dict(zip(self.nodes, other.nodes, strict=True))
        return replace(
            group,
            nodes=tuple(place[n] for n in group.nodes),
            outputs=tuple(Value(place[v.node], v.index) for v in group.outputs),
        )


@dataclass(frozen=True, slots=True)
class _Span:
    """Supernodes from `first` to before `last`, which own so many nodes; equal `name`s are
    equal graphs, or made of such that are."""

    first: int
    last: int
    nodes: int
    name: int


def slices(supernodes: Supernodes, shapes: Structures, limit: int) -> tuple[Slice, ...]:
    """A graph as slices of at most `limit` nodes each (a larger supernode is one), in order.

    Cuts are where the fewest values are alive. Of these those stay that make slices come again: as
    in byte-pair encoding, the two neighbours that are found together most often are joined while
    they fit. Values alive over more than `limit` nodes (masks, skip connections) hinder no cut."""
    sizes = [len(one.own) for one in supernodes.items]
    cuts = [0, *_cuts(sizes, _alive(supernodes, sizes, limit), limit), len(sizes)]
    names: dict[Hashable, int] = {}
    spans = [
        _Span(a, b, sum(sizes[a:b]), names.setdefault(_key(supernodes, shapes, a, b), len(names)))
        for a, b in pairwise(cuts)
        if b > a
    ]
    joined = _lone_joined(_joined(spans, len(names), limit), limit)
    first: dict[Hashable, int] = {}
    found: list[Slice] = []
    for span in joined:
        key = _key(supernodes, shapes, span.first, span.last)
        nodes, produced = _content(supernodes, span.first, span.last)
        like = first.setdefault(key, len(found))
        found.append(Slice(span.first, span.last, nodes, produced, like))
    return tuple(found)


def window_of(supernodes: Supernodes, part: Slice) -> Window:
    """A slice as a window that may read what is before it."""
    graph, inside = supernodes.graph, set(part.nodes)
    read = reads(graph, part.nodes)
    given = tuple(v for v in read if v.node not in inside and not is_source(graph, v.node))
    return Window(frozenset(inside), part.produced, given, "tile")


def _content(
    supernodes: Supernodes, first: int, last: int
) -> tuple[tuple[int, ...], tuple[Value, ...]]:
    nodes = supernodes.nodes((1 << last) - (1 << first))
    exports = (e for one in supernodes.items[first:last] for e in one.exports)
    return nodes, tuple(sorted(e.value for e in exports if e.is_output or e.readers >> last))


def _key(supernodes: Supernodes, shapes: Structures, first: int, last: int) -> Hashable:
    """Equal for spans that are planned alike: the same graph, with constants and results of the
    program at the same places."""
    graph = supernodes.graph
    nodes, produced = _content(supernodes, first, last)
    known, results = settled(graph), set(graph.outputs)
    return (
        shapes.key(nodes, produced),
        tuple(v.node in known for n in nodes for v in graph[n].inputs) if known else (),
        tuple(v in results for v in produced),
    )


def _alive(supernodes: Supernodes, sizes: Sequence[int], limit: int) -> list[int]:
    """Computed values alive between supernode k - 1 and supernode k, for each k, but for those that
    live over more than `limit` nodes."""
    before = [0, *accumulate(sizes)]
    steps = [0] * (len(sizes) + 1)
    for k, one in enumerate(supernodes.items):
        for export in one.exports:
            last = export.readers.bit_length() - 1
            if last > k and before[last] - before[k] <= limit:
                steps[k + 1] += 1
                steps[last + 1] -= 1
    return list(accumulate(steps))[:-1]


def _cuts(sizes: Sequence[int], alive: Sequence[int], limit: int) -> Iterator[int]:
    """Supernodes before which no fewer values are alive than anywhere within half the limit, so
    that equal parts are cut alike, and those between them that the limit asks for."""
    before = [0, *accumulate(sizes)]
    first = end = start = 0
    for k in (*range(1, len(sizes)), len(sizes)):
        if k < len(sizes):
            while before[k] - before[first] > limit // 2:
                first += 1
            while end < len(sizes) and before[end] - before[k] <= limit // 2:
                end += 1
            if alive[k] > min(alive[max(first, 1) : end]):
                continue
        if before[k] - before[start] > limit:
            for cut in cuts_under(sizes[start:k], alive[start:k], limit):
                yield start + cut
        if k < len(sizes):
            yield k
        start = k


def _joined(spans: Sequence[_Span], names: int, limit: int) -> list[_Span]:
    """Pairs of neighbours that come at least twice joined while they fit, the most frequent pair
    first, of equal ones the first."""
    found = list(spans)
    while True:
        counts, counted = Counter[tuple[int, int]](), dict[tuple[int, int], int]()
        for k, (a, b) in enumerate(pairwise(found)):
            pair = (a.name, b.name)
            if a.nodes + b.nodes <= limit and counted.get(pair, -2) < k - 1:
                counts[pair] += 1
                counted[pair] = k
        most, times = max(counts.items(), key=lambda item: item[1], default=((0, 0), 0))
        if times < 2:
            return found
        found, names = _replaced(found, most, names), names + 1


def _replaced(spans: Sequence[_Span], pair: tuple[int, int], name: int) -> list[_Span]:
    """The spans with every such pair of neighbours as one of a new name."""
    found: list[_Span] = []
    fresh = True  # whether the last one may still be the first of a pair
    for span in spans:
        if found and fresh and (found[-1].name, span.name) == pair:
            found[-1] = _Span(found[-1].first, span.last, found[-1].nodes + span.nodes, name)
            fresh = False
        else:
            found.append(span)
            fresh = True
    return found


def _lone_joined(spans: Sequence[_Span], limit: int) -> list[_Span]:
    """Neighbours that come once joined while they fit: nothing is planned twice for it."""
    times = Counter(span.name for span in spans)
    found: list[_Span] = []
    for span in spans:
        last = found[-1] if found else None
        lone = times[span.name] == 1
        if last and lone and times[last.name] == 1 and last.nodes + span.nodes <= limit:
            found[-1] = replace(last, last=span.last, nodes=last.nodes + span.nodes)
        else:
            found.append(span)
    return found
