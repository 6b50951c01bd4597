"""Equal groups share their facts: a cheap key, and verdicts and digests kept under it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autofuse.cost.bounds import Calibration, kernel_bound_us
from autofuse.graph.canonical import group_digest
from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import is_inline
from autofuse.plan.fusion.legality import MAX_BUFFERS, MAX_NODES, Refusal, check_group
from autofuse.plan.schedules.forms import REDUCTION_ROOTS
from autofuse.plan.schedules.multiplicity import may_repeat

Key = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KnownBounds:
    """Lower bounds of the groups of one graph by the peaks of one device, each worked out once."""

    graph: Graph
    calibration: Calibration
    known: dict[Key, float]

    def us(self, key: Key, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> float:
        """Microseconds of a group under its key."""
        if key not in self.known:
            self.known[key] = kernel_bound_us(self.graph, nodes, outputs, self.calibration)
        return self.known[key]


class Structures:
    """Groups of one graph up to renaming.

    Two groups with equal keys are the same graph of their own: they have one verdict (apart from
    the order of kernels around them), one bound and one digest. Unequal keys prove nothing.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._ids: dict[Hashable, int] = {}
        self._node = [self._intern((n.op, n.attrs, n.types, len(n.inputs))) for n in graph.nodes]
        # Output k of the node at a place is the number place * width + k, and no other is.
        self._width = max((len(n.types) for n in graph.nodes), default=1)
        self._operands = [tuple((v.node, v.index) for v in n.inputs) for n in graph.nodes]
        self._outside = [self._outside_ids(n) for n in range(len(graph.nodes))]
        self._anchor = [n.spec.family in REDUCTION_ROOTS for n in graph.nodes]
        self._inline = [is_inline(graph, n) for n in range(len(graph.nodes))]
        self._verdicts: dict[Key, Refusal | None] = {}
        self._apart: set[Key] = set()
        self._digests: dict[Key, str] = {}
        self._bounds: dict[Calibration, dict[Key, float]] = {}

    def _intern(self, what: Hashable) -> int:
        return self._ids.setdefault(what, len(self._ids))

    def _outside_ids(self, n: int) -> tuple[int, ...]:
        """What a reader outside sees of each output: a literal, or only a type."""
        node = self.graph[n]
        if is_inline(self.graph, n):
            return (self._intern(("inline", node.attrs)),)
        return tuple(self._intern(("memory", t)) for t in node.types)

    def key(self, nodes: Sequence[int], outputs: Sequence[Value]) -> Key:
        """The group with its nodes, ascending, and what they read numbered by position."""
        place, width = {n: i for i, n in enumerate(nodes)}, self._width
        outside: dict[tuple[int, int], int] = {}
        found: list[int] = []
        for n in nodes:
            found.append(self._node[n])
            for operand in self._operands[n]:
                inside = place.get(operand[0])
                if inside is not None:
                    found.append(inside * width + operand[1])
                else:
                    found.append(-1 - outside.setdefault(operand, len(outside)))
                    found.append(self._outside[operand[0]][operand[1]])
        found.append(-len(found))
        found.extend(place[v.node] * width + v.index for v in outputs)
        return tuple(found)

    def verdict(
        self, key: Key, nodes: tuple[int, ...], outputs: tuple[Value, ...]
    ) -> Refusal | None:
        """Why the group cannot be one kernel, or None; that nothing it reads depends on what it
        writes is left to the caller."""
        try:
            return self._verdicts[key]
        except KeyError:
            pass
        found: Refusal | None = None
        if not self._plainly_legal(nodes, outputs):
            verdict = check_group(self.graph, nodes, outputs, placed=True)
            found = verdict if isinstance(verdict, Refusal) else None
            if not isinstance(verdict, Refusal) and len(verdict) > 1 and self._multiplies(nodes):
                self._apart.add(key)
        self._verdicts[key] = found
        return found

    def sits_beside(self, key: Key) -> bool:
        """Whether a legal group computes products beside something that shares no items with them,
        so that both are launched alike and nothing else is gained; to be asked after `verdict`."""
        return key in self._apart

    def _multiplies(self, nodes: tuple[int, ...]) -> bool:
        return any(self.graph[n].spec.family is Family.CONTRACTION for n in nodes)

    def _plainly_legal(self, nodes: tuple[int, ...], outputs: tuple[Value, ...]) -> bool:
        """As `plan.legality.is_plain`, by what is known of the graph."""
        if any(self._anchor[n] for n in nodes):
            return False
        shapes = {self.graph.type_of(v).shape for v in outputs}
        if len(shapes) != 1 or len(nodes) > MAX_NODES:
            return False
        inside = set(nodes)
        read = {
            o
            for n in nodes
            for o in self._operands[n]
            if o[0] not in inside and not self._inline[o[0]]
        }
        return len(read) + len(outputs) <= MAX_BUFFERS and not may_repeat(self.graph, nodes)

    def bounds(self, calibration: Calibration) -> KnownBounds:
        """Lower bounds by these peaks."""
        return KnownBounds(self.graph, calibration, self._bounds.setdefault(calibration, {}))

    def digest(self, key: Key, nodes: Sequence[int], outputs: Sequence[Value]) -> str:
        """The group's digest, computed once for all groups with this key."""
        if key not in self._digests:
            self._digests[key] = group_digest(self.graph, nodes, outputs)
        return self._digests[key]


@lru_cache(maxsize=8)
def structures_of(graph: Graph) -> Structures:
    """What is known of the groups of a graph, for all who plan it: what serves untuned, the rules
    and the search look at the same kernels."""
    return Structures(graph)
