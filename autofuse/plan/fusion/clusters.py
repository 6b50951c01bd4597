"""Sets of a graph's nodes while they are joined: liveness, reachability, connected parts, and
clusters between which no path may leave and return.

Sets are bit masks: bit i stands for item i, which is a node, a supernode or a buffer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from graphlib import CycleError, TopologicalSorter

from autofuse.graph.types import Graph, Value
from autofuse.order import closure
from autofuse.patience import look
from autofuse.plan.fusion.groups import is_source, reads
from autofuse.plan.types import PlanError


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def mask_of(items: Iterable[int]) -> int:
    """The mask of some items, which may come more than once."""
    mask = 0
    for item in items:
        mask |= 1 << item
    return mask


def live(graph: Graph) -> tuple[int, ...]:
    """Nodes that some output depends on and that a kernel has to compute, ascending."""
    wanted = needed(graph, (v.node for v in graph.outputs), range(len(graph.nodes)))
    return tuple(n for n in wanted if not is_source(graph, n))


def needed(graph: Graph, wanted: Iterable[int], inside: Collection[int]) -> tuple[int, ...]:
    """The nodes of `inside` that these need by way of `inside`, themselves included, ascending."""

    def near(n: int) -> Iterator[int]:
        return (v.node for v in graph[n].inputs if v.node in inside)

    return tuple(sorted(closure((n for n in wanted if n in inside), near)))


def reach(needs: Iterable[tuple[int, Iterable[int]]]) -> dict[int, int]:
    """Per item the mask of everything it needs, itself included. `needs` pairs each item with those
    that it needs directly, which must come before it."""
    found: dict[int, int] = {}
    for item, before in needs:
        mask = 1 << item
        for other in before:
            mask |= found[other]
        found[item] = mask
    return found


@lru_cache(maxsize=64)
def ancestors(graph: Graph) -> tuple[int, ...]:
    """For each node the mask of the nodes it depends on, itself included."""
    needs = ((i, (v.node for v in node.inputs)) for i, node in enumerate(graph.nodes))
    return tuple(reach(needs).values())


def is_convex(graph: Graph, nodes: Iterable[int], outputs: Iterable[Value]) -> bool:
    """Whether nothing that a group reads depends on something that it writes."""
    look()
    up, written = ancestors(graph), mask_of(v.node for v in outputs)
    return all(not up[value.node] & written for value in reads(graph, nodes))


class UnionFind:
    """Disjoint sets of items; each set is named by the one item that the others joined."""

    def __init__(self, items: Iterable[int]) -> None:
        self._parent = {i: i for i in items}

    def find(self, item: int) -> int:
        """The name of the set that has `item`."""
        parent = self._parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, item: int, into: int) -> None:
        """Put the set of `item` into that of `into`, which keeps its name."""
        self._parent[self.find(item)] = self.find(into)


def connected(items: Iterable[int], links: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """The connected parts of `items` under `links`, in the order of `items`."""
    given = tuple(items)
    sets = UnionFind(given)
    for a, b in links:
        sets.join(a, b)
    parts: dict[int, list[int]] = {}
    for item in given:
        parts.setdefault(sets.find(item), []).append(item)
    return [tuple(part) for part in parts.values()]


class Clusters:
    """Disjoint clusters of items that are being merged, each named by its lowest item.

    `needs` says which items each item reads from; what is no key of it is left out. `sets` are
    clusters to start from; every other item starts alone. `home` has the cluster of each item,
    `members` the items of each cluster, ascending. Raises PlanError when `sets` wait for each
    other in a circle."""

    def __init__(
        self, needs: Mapping[int, Iterable[int]], sets: Iterable[Iterable[int]] = ()
    ) -> None:
        self.home = {i: i for i in needs}
        self.members = {i: [i] for i in needs}
        for part in sets:
            self._start(sorted(part))
        self._mask = {c: mask_of(items) for c, items in self.members.items()}
        self._reads = dict.fromkeys(self.members, 0)
        self._feeds = dict.fromkeys(self.members, 0)
        for item, before in needs.items():
            for other in before:
                if other in self.home and self.home[other] != self.home[item]:
                    self._reads[self.home[item]] |= 1 << other
                    self._feeds[self.home[other]] |= 1 << item
        self._above, self._below = self._reached()

    def _start(self, part: list[int]) -> None:
        for item in part:
            del self.members[item]
            self.home[item] = part[0]
        self.members[part[0]] = part

    def _reached(self) -> tuple[dict[int, int], dict[int, int]]:
        """Per cluster the masks of the items of other clusters that it needs, directly or not, and
        of those that need it. Where clusters have been merged, one item stands for all of them."""
        near = {c: self.preds(c) for c in self.members}
        try:
            order = tuple(TopologicalSorter(near).static_order())
        except CycleError as error:
            raise PlanError(f"node sets wait for each other in a circle: {error.args[1]}") from None
        above, below = dict.fromkeys(order, 0), dict.fromkeys(order, 0)
        for cluster in order:
            for before in near[cluster]:
                above[cluster] |= above[before] | self._mask[before]
        for cluster in reversed(order):
            for before in near[cluster]:
                below[before] |= below[cluster] | self._mask[cluster]
        return above, below

    def preds(self, cluster: int) -> set[int]:
        """The clusters that one reads from."""
        return {self.home[i] for i in bits(self._reads[cluster])}

    def succs(self, cluster: int) -> set[int]:
        """The clusters that read from one."""
        return {self.home[i] for i in bits(self._feeds[cluster])}

    def needed_by(self, first: int, second: int) -> bool:
        """Whether cluster `second` needs something of cluster `first`, directly or not."""
        return bool(self._above[second] & self._mask[first])

    def between(self, first: int, second: int) -> int | None:
        """A third cluster that one of the two needs and that needs the other: the lowest of those
        read from."""
        for start, goal in ((first, second), (second, first)):
            if not self.needed_by(start, goal):
                continue
            near = sorted(self.preds(goal) - {start})
            found = next((c for c in near if self.needed_by(start, c)), None)
            if found is not None:
                return found
        return None

    def can_merge(self, first: int, second: int) -> bool:
        """Whether no path leaves two clusters and returns to them."""
        return self.between(first, second) is None

    def merge(self, first: int, second: int) -> int:
        """Join two clusters between which there is none; returns the name of the union."""
        kept, gone = min(first, second), max(first, second)
        mask = self._mask[kept] | self._mask.pop(gone)
        for found, back in ((self._above, self._below), (self._below, self._above)):
            for one, other in ((kept, gone), (gone, kept)):
                told = back[one] & ~back[other] & ~mask
                self._tell(found, told, found[other] & ~found[one] & ~mask)
        for found in (self._above, self._below):
            found[kept] = (found[kept] | found.pop(gone)) & ~mask
        members = sorted(self.members[kept] + self.members.pop(gone))
        for item in members:
            self.home[item] = kept
        for near in (self._reads, self._feeds):
            near[kept] = (near[kept] | near.pop(gone)) & ~mask
        self.members[kept], self._mask[kept] = members, mask
        return kept

    def _tell(self, found: dict[int, int], clusters: int, news: int) -> None:
        """Add to what those clusters reach that these items are in; nearly always there is no
        news, since who reads a value needs what it was made of."""
        if news:
            for cluster in {self.home[i] for i in bits(clusters)}:
                found[cluster] |= news
