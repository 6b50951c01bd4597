"""The rules of TVM's FuseOps (`src/relay/transforms/fuse_ops.cc`, TVM 0.8 to 0.15).

Ops have a pattern; a group grows from an op to its immediate post-dominator, when every op on every
path between agrees. One result per group; no cost model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from autofuse.baselines.base import BaselineResult
from autofuse.baselines.merging import Fusing, MergeRefusal
from autofuse.graph.types import Graph
from autofuse.ops.spec import Family
from autofuse.order import closure
from autofuse.patience import look
from autofuse.plan.fusion.clusters import UnionFind

PHASES = ("phase-0", "phase-1", "phase-2")
MAX_OPS = 256  # relay.FuseOps.max_depth


class Pattern(IntEnum):
    """How an op's elements depend on its operands'; larger is harder to fuse."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCE = 3
    OUT_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


OPAQUE = (Family.SCAN, Family.SORT, Family.RANDOM, Family.CONTROL, Family.SOLVER)


def pattern_of(graph: Graph, node: int) -> Pattern:
    """Ops of several results, scans, sorts, transforms, random numbers and loops are opaque."""
    n = graph[node]
    family = n.spec.family
    if n.spec.transforms is not None:
        return Pattern.OPAQUE
    if len(n.types) > 1 or family in OPAQUE:
        return Pattern.OPAQUE
    if family in (Family.CONTRACTION, Family.WINDOW):
        return Pattern.OUT_FUSABLE
    if family is Family.REDUCTION:
        return Pattern.REDUCE
    if n.op == "broadcast" or (family is Family.ELEMENTWISE and len(n.inputs) > 1):
        return Pattern.BROADCAST
    return Pattern.ELEMENTWISE if family is Family.ELEMENTWISE else Pattern.INJECTIVE


Condition = Callable[[Pattern, bool], bool]


class Dominators:
    """The graph with a tuple before every concatenation and one for several results, and each
    node's immediate post-dominator with the hardest pattern on the way.

    Tuples have the negative number -1 - (node of the concatenation); that of the results is None's
    place: nothing fuses into it, so its operands have no parent.
    """

    def __init__(self, state: Fusing) -> None:
        self.graph, self.state = state.graph, state
        self.next: dict[int, list[tuple[int, Pattern]]] = {}
        self.parent: dict[int, int | None] = {}
        self.pattern: dict[int, Pattern] = {}
        self._depth: dict[int, int] = {}
        for node in reversed(state.items):
            self._add(node, self._edges(node), node in state.outputs)
            if self.graph[node].op == "concat":
                self._add(-1 - node, [(node, Pattern.INJECTIVE)], leaves=False)

    def _edges(self, node: int) -> list[tuple[int, Pattern]]:
        found: list[tuple[int, Pattern]] = []
        for user in self.state.users[node]:
            if self.graph[user].op == "concat":
                found.append((-1 - user, Pattern.INJECTIVE))
            else:
                found.append((user, self._edge(node, user)))
        return found

    def _edge(self, node: int, user: int) -> Pattern:
        """An operand of the result's own shape is read elementwise by a broadcasting op."""
        own = pattern_of(self.graph, user)
        same = self.graph[node].types[0].shape == self.graph[user].types[0].shape
        return Pattern.ELEMENTWISE if own is Pattern.BROADCAST and same else own

    def _add(self, node: int, edges: list[tuple[int, Pattern]], leaves: bool) -> None:
        self.next[node] = edges
        at: int | None = None
        pattern = Pattern.ELEMENTWISE
        if leaves or not edges:
            pattern = Pattern.OPAQUE
        else:
            at = edges[0][0]
            for user, edge in edges:
                pattern = max(pattern, edge)
                at, pattern = self._common(at, user, pattern)
        self.parent[node], self.pattern[node] = at, pattern
        self._depth[node] = 1 if at is None else self._depth[at] + 1

    def _common(self, a: int | None, b: int | None, pattern: Pattern) -> tuple[int | None, Pattern]:
        while a != b:
            if a is None or b is None:
                return None, Pattern.OPAQUE
            if self._depth[a] >= self._depth[b]:
                a, b = b, a  # the deeper one, now b, goes up
            pattern = max(pattern, self.pattern[b])
            b = self.parent[b]
        return a, pattern

    def path(self, source: int, sink: int) -> list[int]:
        """Nodes after `source` on the ways to `sink`, the sink last."""

        def after(at: int) -> Iterator[int]:
            return (user for user, _ in self.next[at] if user != sink)

        return [*sorted(closure(after(source), after)), sink]


class _Fuser:
    """Groups with the pattern of their sink, or of the contraction in them."""

    def __init__(self, graph: Graph) -> None:
        self.state = Fusing(graph)
        self.tree = Dominators(self.state)
        patterns = {n: pattern_of(graph, n) for n in self.state.items}
        tuples = {n: Pattern.TUPLE for n in self.tree.next if n < 0}
        self.own: dict[int, Pattern] = patterns | tuples
        self.groups = UnionFind(self.own)
        self.pattern = dict(self.own)
        self.size = {n: int(n >= 0) for n in self.own}

    def run(self, phase: int) -> None:
        """Try every node, producers first."""
        for node in sorted(self.own, key=lambda n: (_node_of(n), n >= 0)):
            sink = self.tree.parent[node]
            if self.own[node] is Pattern.OPAQUE or sink is None:
                if node >= 0 and phase == 0:
                    self._note_alone(node)
                continue
            if self.groups.find(node) == self.groups.find(sink):
                continue
            refusal = self._refusal(phase, node, sink)
            shown, into = _node_of(node), _node_of(sink)
            if shown != into:
                reason = f"all ops up to the post-dominator %{into} agree"
                self.state.notes.add(PHASES[phase], shown, into, refusal, ("dominator", reason))
            if refusal is None:
                self._commit(node, sink)

    def _note_alone(self, node: int) -> None:
        opaque = self.own[node] is Pattern.OPAQUE
        rule = ("opaque", f"%{node} is opaque") if opaque else (
            "no-dominator", "its users never meet again, or it is a result"
        )  # fmt: skip
        for user in self.state.users[node] or [node]:
            self.state.notes.add(PHASES[0], node, user, rule, rule)

    def _refusal(self, phase: int, node: int, sink: int) -> MergeRefusal:
        look()
        pattern, condition = self.own[node], self._condition(phase, node, sink)
        if isinstance(condition, tuple):
            return condition
        path = self.tree.path(node, sink)
        if self.size[self.groups.find(node)] + sum(self.size[n] for n in path) > MAX_OPS:
            return "size", f"more than {MAX_OPS} ops"
        for at in path:
            found = self.pattern[self.groups.find(at)]
            if not condition(found, at == sink):
                name = pattern.name.lower()
                return "path", f"%{max(at, -1 - at)} is {found.name.lower()}, in the way of {name}"
        return None

    def _tuple_condition(self, own: Pattern, sink: int) -> Condition | tuple[str, str]:
        if own > Pattern.INJECTIVE or self.own[sink] is not Pattern.TUPLE:
            return "phase", "only injective ops go into tuples"
        if self.pattern[self.groups.find(sink)] > Pattern.INJECTIVE:
            return "tuple", "the tuple is in no injective group"
        return lambda kind, last: kind <= Pattern.INJECTIVE or last

    def _condition(self, phase: int, node: int, sink: int) -> Condition | tuple[str, str]:
        """What every op on the way must satisfy, or why there is nothing to try."""
        own, way = self.own[node], self.tree.pattern[node]
        if phase == 2:
            return self._tuple_condition(own, sink)
        if self.own[sink] is Pattern.TUPLE:
            return "tuple", "tuples are fused last"
        if own is Pattern.OUT_FUSABLE:
            if phase or way is not Pattern.ELEMENTWISE:
                return "epilogue", "a contraction takes elementwise ops of its own shape only"
            return lambda kind, last: kind <= Pattern.BROADCAST
        if own <= Pattern.BROADCAST:
            if way > Pattern.REDUCE:
                return "sink", f"the way to the post-dominator is {way.name.lower()}"
            return _broadcast_path
        if own in (Pattern.INJECTIVE, Pattern.TUPLE):
            if phase != 1:
                return "phase", "injective ops are fused in the second phase"
            return lambda kind, last: kind <= Pattern.INJECTIVE
        return "reduce", "a reduction starts no group"

    def _commit(self, node: int, sink: int) -> None:
        """Everything on the way joins the sink's group."""
        for at in (node, *self.tree.path(node, sink)):
            child, parent = self.groups.find(at), self.groups.find(sink)
            if child == parent:
                continue
            self.groups.join(child, parent)
            self.size[parent] += self.size[child]
            if self.pattern[child] is Pattern.OUT_FUSABLE:
                self.pattern[parent] = Pattern.OUT_FUSABLE

    def merge(self) -> None:
        """The groups as clusters of nodes."""
        for node in self.state.items:
            together = [
                n
                for n in self.state.operands[node]
                if self.groups.find(n) == self.groups.find(node)
            ]
            for other in together:
                a, b = self.state.home[other], self.state.home[node]
                if a != b:
                    self.state.merge(a, b)


def _node_of(number: int) -> int:
    """Tuples have numbers below nought."""
    return number if number >= 0 else -1 - number


def _broadcast_path(kind: Pattern, last: bool) -> bool:
    if not last:
        return kind <= Pattern.INJECTIVE
    return kind <= Pattern.REDUCE or kind is Pattern.OUT_FUSABLE


def tvm(graph: Graph) -> BaselineResult:
    """The plan TVM would make of a canonical graph; bodies of loops likewise."""
    fuser = _Fuser(graph)
    for phase in range(len(PHASES)):
        fuser.run(phase)
    fuser.merge()
    return fuser.state.result(tvm)
