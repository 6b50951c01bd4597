"""Atoms: nodes joined beforehand because sitting together can only save traffic.

Planning works on atoms: bit k of a mask is atom k, and atoms are in topological order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.plan.groups import is_source, needed_outputs, reads
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.partition import is_free

# Kernels that read whole arrays: nothing can be copied into them.
_WHOLE = (Family.CONTRACTION, Family.CONTROL)


def bits(mask: int) -> Iterator[int]:
    """Positions of the set bits, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Export:
    """A value that others need: the atoms reading it, and whether the graph returns it."""

    value: Value
    readers: int
    is_output: bool


@dataclass(frozen=True, slots=True)
class Atom:
    """`own` nodes are computed here only by default; `full` adds the copied nodes they read.

    `reads` are the values `full` reads from other atoms."""

    own: tuple[int, ...]
    full: frozenset[int]
    reads: tuple[Value, ...]
    exports: tuple[Export, ...]


@dataclass(frozen=True)
class Atoms:
    """All atoms of a graph with their dependencies as masks; `copied` nodes are computed again by
    every kernel that reads them."""

    graph: Graph
    items: tuple[Atom, ...]
    copied: frozenset[int]

    @cached_property
    def home(self) -> Mapping[int, int]:
        """The atom that owns each node."""
        return {n: k for k, atom in enumerate(self.items) for n in atom.own}

    @cached_property
    def preds(self) -> tuple[int, ...]:
        """Per atom the atoms it reads from."""
        home = self.home
        return tuple(_mask(home[v.node] for v in atom.reads) for atom in self.items)

    @cached_property
    def succs(self) -> tuple[int, ...]:
        """Per atom the atoms that read from it."""
        found = [0] * len(self.items)
        for k, mask in enumerate(self.preds):
            for before in bits(mask):
                found[before] |= 1 << k
        return tuple(found)

    @cached_property
    def up(self) -> tuple[int, ...]:
        """Per atom everything it depends on, itself included."""
        found: list[int] = []
        for k, mask in enumerate(self.preds):
            total = 1 << k
            for before in bits(mask):
                total |= found[before]
            found.append(total)
        return tuple(found)

    @cached_property
    def down(self) -> tuple[int, ...]:
        """Per atom everything that depends on it, itself included."""
        found = [0] * len(self.items)
        for k in range(len(self.items) - 1, -1, -1):
            total = 1 << k
            for after in bits(self.succs[k]):
                total |= found[after]
            found[k] = total
        return tuple(found)

    @cached_property
    def walls(self) -> int:
        """Contractions, which are kernels of their own."""
        found = (k for k, a in enumerate(self.items) if len(a.own) == 1 and _is_wall(self.graph, a))
        return _mask(found)

    @cached_property
    def sharing(self) -> tuple[tuple[int, ...], ...]:
        """Per atom and graph input or array constant that it reads, the atoms that read it."""
        readers: dict[int, int] = {}
        mine: list[tuple[int, ...]] = []
        for k, atom in enumerate(self.items):
            read = {v.node for v in reads(self.graph, atom.full) if is_source(self.graph, v.node)}
            mine.append(tuple(sorted(n for n in read if self.graph[n].types[0].size > 1)))
            for n in mine[-1]:
                readers[n] = readers.get(n, 0) | 1 << k
        return tuple(tuple(readers[n] for n in found) for found in mine)

    def nodes(self, mask: int) -> tuple[int, ...]:
        """The nodes of a set of atoms, copied ones included, ascending."""
        found: set[int] = set()
        for k in bits(mask):
            found |= self.items[k].full
        return tuple(sorted(found))

    def mask_of(self, nodes: Iterable[int]) -> int:
        """The atoms that own some of these nodes."""
        return _mask(self.home[n] for n in nodes if n in self.home)


def _is_wall(graph: Graph, atom: Atom) -> bool:
    return graph[atom.own[0]].spec.family is Family.CONTRACTION


def _mask(positions: Iterable[int]) -> int:
    found = 0
    for k in positions:
        found |= 1 << k
    return found


def atoms_of(graph: Graph, join: bool = True) -> Atoms:
    """The atoms of a canonical graph; with `join` false every live node is one of its own and only
    free nodes are copied."""
    live = _live(graph)
    copied = frozenset(n for n in live if is_free(graph, n) or (join and _expands(graph, n)))
    parts = _joined(graph, live - copied) if join else [(n,) for n in sorted(live - copied)]
    while True:
        parts, blocked = _legal_parts(graph, parts, copied)
        if not blocked:
            break
        copied -= blocked
    kept = {n for part in parts for n in part} | copied
    parts += [(n,) for n in sorted(_materialised(graph, parts, copied)) if n in kept]
    parts.sort(key=lambda part: part[-1])
    return Atoms(graph, _items(graph, parts, copied), copied)


def _live(graph: Graph) -> frozenset[int]:
    needed: set[int] = set()
    stack = [v.node for v in graph.outputs]
    while stack:
        n = stack.pop()
        if n not in needed and not is_source(graph, n):
            needed.add(n)
            stack.extend(v.node for v in graph[n].inputs)
    return frozenset(needed)


def _expands(graph: Graph, n: int) -> bool:
    """A broadcast moves nothing that its readers could not read in less."""
    node = graph[n]
    repeats = node.spec.motion is Motion.REPEAT
    return repeats and node.types[0].size >= graph.type_of(node.inputs[0]).size


def _joined(graph: Graph, nodes: frozenset[int]) -> list[tuple[int, ...]]:
    """Nodes united with their one reader wherever that only saves a write and a read."""
    root = {n: n for n in nodes}
    outputs = {v.node for v in graph.outputs}

    def find(n: int) -> int:
        while root[n] != n:
            root[n] = root[root[n]]
            n = root[n]
        return n

    for n in sorted(nodes):
        users = graph.users[n]
        if len(users) == 1 and n not in outputs and users[0] in root and _gains(graph, n, users[0]):
            root[find(n)] = find(users[0])
    parts: dict[int, list[int]] = {}
    for n in sorted(nodes):
        parts.setdefault(find(n), []).append(n)
    return [tuple(part) for part in parts.values()]


def _gains(graph: Graph, n: int, user: int) -> bool:
    made, reader = graph[n].spec, graph[user].spec
    if made.family is Family.ELEMENTWISE:
        # Concatenation and padding would compute every part at every element.
        smaller = graph[user].types[0].size <= graph[n].types[0].size
        moves = reader.one_to_one and smaller
        return reader.family in (Family.ELEMENTWISE, Family.REDUCTION) or moves
    if made.one_to_one:
        return reader.family is Family.ELEMENTWISE or reader.one_to_one
    return False


def _absorbs(graph: Graph, part: Iterable[int]) -> bool:
    return not any(graph[n].spec.family in _WHOLE for n in part)


def _full(graph: Graph, part: Sequence[int], copied: frozenset[int]) -> frozenset[int]:
    if not _absorbs(graph, part):
        return frozenset(part)
    found, stack = set(part), list(part)
    while stack:
        for value in graph[stack.pop()].inputs:
            if value.node in copied and value.node not in found:
                found.add(value.node)
                stack.append(value.node)
    return frozenset(found)


def _legal_parts(
    graph: Graph, parts: Sequence[tuple[int, ...]], copied: frozenset[int]
) -> tuple[list[tuple[int, ...]], frozenset[int]]:
    """Parts that are no legal kernel taken apart, and copied nodes that a lone node cannot hold."""
    kept: list[tuple[int, ...]] = []
    blocked: set[int] = set()
    for part in parts:
        if _is_kernel(graph, part, _full(graph, part, copied)):
            kept.append(part)
            continue
        for n in part:
            full = _full(graph, (n,), copied)
            if not _is_kernel(graph, (n,), full):
                blocked |= {c for c in full - {n} if not is_free(graph, c)}
            kept.append((n,))
    return kept + [(n,) for n in sorted(blocked)], frozenset(blocked)


def _is_kernel(graph: Graph, part: Sequence[int], full: frozenset[int]) -> bool:
    if len(full) == 1:
        return True
    outputs = needed_outputs(graph, part)
    return not isinstance(check_group(graph, tuple(sorted(full)), outputs), Refusal)


def _materialised(
    graph: Graph, parts: Sequence[tuple[int, ...]], copied: frozenset[int]
) -> frozenset[int]:
    """Copied nodes that must also exist in memory: returned, or read by a whole-array kernel."""
    found = {v.node for v in graph.outputs if v.node in copied}
    for part in parts:
        if not _absorbs(graph, part):
            found |= {v.node for n in part for v in graph[n].inputs if v.node in copied}
    return frozenset(found)


def _items(
    graph: Graph, parts: Sequence[tuple[int, ...]], copied: frozenset[int]
) -> tuple[Atom, ...]:
    owned = {n for part in parts for n in part}
    fulls = [_full(graph, part, copied) for part in parts]
    needs = [tuple(v for v in reads(graph, full) if not is_source(graph, v.node)) for full in fulls]
    readers: dict[Value, int] = {}
    for k, values in enumerate(needs):
        for value in values:
            readers[value] = readers.get(value, 0) | 1 << k
    outputs = set(graph.outputs)
    items: list[Atom] = []
    for part, full, values in zip(parts, fulls, needs, strict=True):
        made = [Value(n, i) for n in part for i in range(len(graph[n].types))]
        exports = tuple(
            Export(v, readers.get(v, 0), v in outputs) for v in made if v in readers or v in outputs
        )
        items.append(Atom(part, full, values, exports))
    assert all(v.node in owned for v in readers), "a value that no atom makes is read"
    return tuple(items)
