"""Supernodes: nodes joined beforehand because sitting together can only save traffic.

Planning works on supernodes: bit k of a mask is supernode k, and they are in topological order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.plan.fusion.barriers import reads_whole_arrays, stands_alone
from autofuse.plan.fusion.clusters import bits, connected, live, mask_of, reach
from autofuse.plan.fusion.groups import is_source, needed_outputs, reads
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.fusion.partition import is_rematerialisable, with_operands
from autofuse.plan.fusion.prepared import mixes
from autofuse.plan.fusion.products import moves_of_products
from autofuse.plan.types import Refusal

# Whether joining a node with its one reader only saves a write and a read.
Gains = Callable[[Graph, int, int], bool]


@dataclass(frozen=True, slots=True)
class Export:
    """A value that others need: the supernodes reading it, and whether the graph returns it."""

    value: Value
    readers: int
    is_output: bool


@dataclass(frozen=True, slots=True)
class Supernode:
    """`own` nodes are computed here only by default; `full` adds the rematerialised nodes that they
    read.

    `reads` are the values `full` reads from other supernodes."""

    own: tuple[int, ...]
    full: frozenset[int]
    reads: tuple[Value, ...]
    exports: tuple[Export, ...]


@dataclass(frozen=True)
class Supernodes:
    """All supernodes of a graph with their dependencies as masks; `rematerialised` nodes are
    computed again by every kernel that reads them."""

    graph: Graph
    items: tuple[Supernode, ...]
    rematerialised: frozenset[int]

    @cached_property
    def home(self) -> Mapping[int, int]:
        """The supernode that owns each node."""
        return {n: k for k, supernode in enumerate(self.items) for n in supernode.own}

    @cached_property
    def preds(self) -> tuple[int, ...]:
        """Per supernode those that it reads from."""
        home = self.home
        return tuple(
            mask_of(home[v.node] for v in one.reads if v.node in home) for one in self.items
        )

    @cached_property
    def succs(self) -> tuple[int, ...]:
        """Per supernode those that read from it."""
        found = [0] * len(self.items)
        for k, mask in enumerate(self.preds):
            for before in bits(mask):
                found[before] |= 1 << k
        return tuple(found)

    @cached_property
    def up(self) -> tuple[int, ...]:
        """Per supernode everything it depends on, itself included."""
        return tuple(reach((k, bits(mask)) for k, mask in enumerate(self.preds)).values())

    @cached_property
    def down(self) -> tuple[int, ...]:
        """Per supernode everything that depends on it, itself included."""
        backwards = reversed(tuple(enumerate(self.succs)))
        found = reach((k, bits(mask)) for k, mask in backwards)
        return tuple(found[k] for k in range(len(self.items)))

    @cached_property
    def barriers(self) -> int:
        """Those that are kernels of their own."""
        return mask_of(
            k
            for k, one in enumerate(self.items)
            if any(stands_alone(self.graph, n) is not None for n in one.own)
        )

    @cached_property
    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """Per supernode and node outside that it reads (a graph input, an array constant), those
        that read it."""
        home, readers = self.home, dict[int, int]()
        mine: list[tuple[int, ...]] = []
        for k, supernode in enumerate(self.items):
            read = {v.node for v in reads(self.graph, supernode.full) if v.node not in home}
            mine.append(tuple(sorted(n for n in read if self.graph[n].types[0].size > 1)))
            for n in mine[-1]:
                readers[n] = readers.get(n, 0) | 1 << k
        return tuple(tuple(readers[n] for n in found) for found in mine)

    def between(self, first: int, last: int) -> Supernodes:
        """Those from `first` to before `last` on their own: what others read of them is a result,
        what they read of others is there."""
        inside = (1 << (last - first)) - 1
        items = tuple(
            replace(
                one,
                exports=tuple(
                    Export(
                        e.value, e.readers >> first & inside, e.is_output or e.readers >> last > 0
                    )
                    for e in one.exports
                ),
            )
            for one in self.items[first:last]
        )
        return Supernodes(self.graph, items, self.rematerialised)

    def nodes(self, mask: int) -> tuple[int, ...]:
        """The nodes of a set of supernodes, rematerialised ones included, ascending."""
        found: set[int] = set()
        for k in bits(mask):
            found |= self.items[k].full
        return tuple(sorted(found))

    def mask_of(self, nodes: Iterable[int]) -> int:
        """The supernodes that own some of these nodes."""
        return mask_of(self.home[n] for n in nodes if n in self.home)


def supernodes_of(graph: Graph, join: bool = True) -> Supernodes:
    """The supernodes of a canonical graph; with `join` false every live node is one of its own and
    only what is rematerialisable is rematerialised."""
    alive = live(graph)
    rematerialised = frozenset(
        n for n in alive if is_rematerialisable(graph, n) or (join and _expands(graph, n))
    )
    own = [n for n in alive if n not in rematerialised]
    parts = joined(graph, own, gains_moved) if join else [(n,) for n in own]
    while True:
        parts, blocked = _legal_parts(graph, parts, rematerialised)
        if not blocked:
            break
        rematerialised -= blocked
    kept = {n for part in parts for n in part} | rematerialised
    parts += [(n,) for n in sorted(_materialised(graph, parts, rematerialised)) if n in kept]
    parts.sort(key=lambda part: part[-1])
    return Supernodes(graph, _items(graph, parts, rematerialised), rematerialised)


def _expands(graph: Graph, n: int) -> bool:
    """A broadcast moves nothing that its readers could not read in less."""
    node = graph[n]
    repeats = node.spec.motion is Motion.REPEAT
    return repeats and node.types[0].size >= graph.type_of(node.inputs[0]).size


def joined(graph: Graph, nodes: Iterable[int], gains: Gains) -> list[tuple[int, ...]]:
    """Live nodes united with their one reader wherever that gains and no output is lost, by their
    first nodes."""
    inside, alive = frozenset(nodes), frozenset(live(graph))
    outputs = {v.node for v in graph.outputs}
    links: list[tuple[int, int]] = []
    for n in inside - outputs:
        users = [u for u in graph.users[n] if u in alive]
        if len(users) == 1 and users[0] in inside and gains(graph, n, users[0]):
            links.append((n, users[0]))
    return connected(sorted(inside), links)


def gains_in_place(graph: Graph, n: int, user: int) -> bool:
    """Elementwise into elementwise or a reduction: read at the index at which it is computed."""
    family, reader = graph[n].spec.family, graph[user].spec.family
    return family is Family.ELEMENTWISE and reader in (Family.ELEMENTWISE, Family.REDUCTION)


def gains_moved(graph: Graph, n: int, user: int) -> bool:
    """As `gains_in_place`, or where one of the two only moves elements, each at most once; but what
    a product may take in is kept apart from what is before it, and what runs once from calls."""
    if mixes(graph, (n, user)):
        return False
    if gains_in_place(graph, n, user):
        return True
    folded = moves_of_products(graph)
    if user in folded and n not in folded:
        return False
    made, reader = graph[n].spec, graph[user].spec
    if made.family is Family.ELEMENTWISE:
        # Concatenation and padding would compute every part at every element.
        return reader.one_to_one and graph[user].types[0].size <= graph[n].types[0].size
    if made.one_to_one:
        return reader.family is Family.ELEMENTWISE or reader.one_to_one
    return False


def _absorbs(graph: Graph, part: Iterable[int]) -> bool:
    return not any(reads_whole_arrays(graph, n) or stands_alone(graph, n) for n in part)


def _full(graph: Graph, part: Sequence[int], rematerialised: frozenset[int]) -> frozenset[int]:
    if not _absorbs(graph, part):
        return frozenset(part)
    return with_operands(graph, part, rematerialised.__contains__)


def _legal_parts(
    graph: Graph, parts: Sequence[tuple[int, ...]], rematerialised: frozenset[int]
) -> tuple[list[tuple[int, ...]], frozenset[int]]:
    """Parts that are no legal kernel taken apart, and rematerialised nodes that a lone node cannot
    hold."""
    kept: list[tuple[int, ...]] = []
    blocked: set[int] = set()
    for part in parts:
        if _is_kernel(graph, part, _full(graph, part, rematerialised)):
            kept.append(part)
            continue
        for n in part:
            full = _full(graph, (n,), rematerialised)
            if not _is_kernel(graph, (n,), full):
                blocked |= {c for c in full - {n} if not is_rematerialisable(graph, c)}
            kept.append((n,))
    return kept + [(n,) for n in sorted(blocked)], frozenset(blocked)


def _is_kernel(graph: Graph, part: Sequence[int], full: frozenset[int]) -> bool:
    if len(full) == 1:
        return True
    outputs = needed_outputs(graph, part)
    return not isinstance(check_group(graph, tuple(sorted(full)), outputs), Refusal)


def _materialised(
    graph: Graph, parts: Sequence[tuple[int, ...]], rematerialised: frozenset[int]
) -> frozenset[int]:
    """Copied nodes that must also exist in memory: returned, or read by a whole-array kernel."""
    found = {v.node for v in graph.outputs if v.node in rematerialised}
    for part in parts:
        if not _absorbs(graph, part):
            found |= {v.node for n in part for v in graph[n].inputs if v.node in rematerialised}
    return frozenset(found)


def _items(
    graph: Graph, parts: Sequence[tuple[int, ...]], rematerialised: frozenset[int]
) -> tuple[Supernode, ...]:
    owned = {n for part in parts for n in part}
    fulls = [_full(graph, part, rematerialised) for part in parts]
    needs = [tuple(v for v in reads(graph, full) if not is_source(graph, v.node)) for full in fulls]
    readers: dict[Value, int] = {}
    for k, values in enumerate(needs):
        for value in values:
            readers[value] = readers.get(value, 0) | 1 << k
    outputs = set(graph.outputs)
    items: list[Supernode] = []
    for part, full, values in zip(parts, fulls, needs, strict=True):
        made = [Value(n, i) for n in part for i in range(len(graph[n].types))]
        exports = tuple(
            Export(v, readers.get(v, 0), v in outputs) for v in made if v in readers or v in outputs
        )
        items.append(Supernode(part, full, values, exports))
    assert all(v.node in owned for v in readers), "a value that no supernode makes is read"
    return tuple(items)
