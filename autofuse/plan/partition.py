"""Node sets to plans: merging with legality and cycle checks, outputs, packing, repair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.plan.groups import is_inline, is_source, ordered_plan, reads, reissued
from autofuse.plan.legality import Refusal, check_group
from autofuse.plan.types import FusionGroup, FusionPlan, LoopBody, PlanError

NodeSet = frozenset[int]
Bodies = Mapping[int, LoopBody]


def is_free(graph: Graph, node: int) -> bool:
    """Nodes that read nothing and cost next to nothing: every reader computes its own copy."""
    n = graph[node]
    if n.spec.family is Family.SOURCE:
        return not is_source(graph, node)
    return n.spec.motion is Motion.REPEAT and is_inline(graph, n.inputs[0].node)


def with_free(graph: Graph, nodes: Iterable[int]) -> NodeSet:
    """A node set with the free nodes its members read."""
    found, stack = set(nodes), list(nodes)
    while stack:
        for value in graph[stack.pop()].inputs:
            if value.node not in found and is_free(graph, value.node):
                found.add(value.node)
                stack.append(value.node)
    return frozenset(found)


def plan_of_sets(graph: Graph, sets: Iterable[NodeSet], bodies: Bodies) -> FusionPlan:
    """The plan whose kernels compute these node sets; the first set that has a node writes it.

    `bodies` says how a loop is re-issued. Raises PlanError on a cycle or when a
    needed value is computed nowhere."""
    groups = groups_of_sets(graph, sets, bodies)
    return ordered_plan(graph, groups)


def groups_of_sets(graph: Graph, sets: Iterable[NodeSet], bodies: Bodies) -> list[FusionGroup]:
    """The groups of node sets, each with the outputs that others or the graph need from it.

    A library call or a re-issued loop reads free nodes from memory, each from a kernel of its own,
    which waits for nobody."""
    found = {s if _reads_memory(graph, s, bodies) else with_free(graph, s) for s in sets}
    wanted = {v for v in graph.outputs if not is_source(graph, v.node)}
    for nodes in found:
        wanted.update(v for v in reads(graph, nodes) if not is_source(graph, v.node))
    return _groups(graph, found, bodies, wanted)


def _groups(
    graph: Graph, found: set[NodeSet], bodies: Bodies, wanted: set[Value]
) -> list[FusionGroup]:
    """Groups of node sets that write the wanted values, each written once."""
    stored = {with_free(graph, [v.node]) for v in wanted if is_free(graph, v.node)}
    taken: set[Value] = set()
    groups: list[FusionGroup] = []
    for nodes in sorted(stored | found, key=lambda s: (s not in stored, max(s), min(s), len(s))):
        outputs = tuple(sorted(v for v in wanted if v.node in nodes and v not in taken))
        taken.update(outputs)
        if outputs:
            group = FusionGroup(tuple(sorted(nodes)), outputs)
            body = bodies.get(min(nodes)) if len(nodes) == 1 else None
            if body is not None:
                group = replace(group, body=body.plan, unroll=body.unroll)
            groups.append(group)
    return groups


def _reads_memory(graph: Graph, nodes: NodeSet, bodies: Bodies) -> bool:
    """Whether a kernel can compute nothing besides its one node."""
    only = min(nodes)
    family = graph[only].spec.family
    return len(nodes) == 1 and (family is Family.CONTRACTION or only in bodies)


class Partition:
    """Disjoint node sets under construction; free nodes stay outside until the end."""

    def __init__(self, graph: Graph, sets: Iterable[NodeSet], fixed: frozenset[int]) -> None:
        self.graph = graph
        self.fixed = fixed
        self.members: dict[int, NodeSet] = {}
        self.owner: dict[int, int] = {}
        for nodes in sets:
            self._adopt(min(nodes), nodes)

    def _adopt(self, name: int, nodes: NodeSet) -> None:
        self.members[name] = nodes
        for n in nodes:
            self.owner[n] = name

    def merge(self, a: int, b: int) -> Refusal | None:
        """Join the sets of nodes a and b, or say why not."""
        first, second = self.owner[a], self.owner[b]
        if first == second:
            return None
        union = self.members[first] | self.members[second]
        if union & self.fixed:
            return Refusal("library", "a library call or a re-issued loop stands alone")
        if self._path_around(first, second) or self._path_around(second, first):
            return Refusal("convex", "another kernel lies between them")
        verdict = self.check(union)
        if isinstance(verdict, Refusal):
            return verdict
        del self.members[first], self.members[second]
        self._adopt(min(union), union)
        return None

    def check(self, nodes: NodeSet) -> Refusal | None:
        """Whether a node set could be one kernel."""
        full = with_free(self.graph, nodes)
        outputs = self._outputs(nodes)
        if not outputs:
            return Refusal("empty", "nobody needs what it computes")
        verdict = check_group(self.graph, tuple(sorted(full)), outputs)
        return verdict if isinstance(verdict, Refusal) else None

    def _outputs(self, nodes: NodeSet) -> tuple[Value, ...]:
        wanted = {v for v in self.graph.outputs if v.node in nodes}
        for n in nodes:
            for user in self.graph.users[n]:
                if user not in nodes:
                    wanted.update(v for v in self.graph[user].inputs if v.node == n)
        return tuple(sorted(wanted))

    def _path_around(self, start: int, goal: int) -> bool:
        """Whether `goal` depends on `start` through a third set."""
        seen = {start, goal}
        stack = [s for s in self._successors(start) if s != goal]
        while stack:
            at = stack.pop()
            if at == goal:
                return True
            if at in seen:
                continue
            seen.add(at)
            for after in self._successors(at):
                if after == goal:
                    return True
                if after not in seen:
                    stack.append(after)
        return False

    def _successors(self, name: int) -> set[int]:
        found = {
            self.owner[user]
            for n in self.members[name]
            for user in self.graph.users[n]
            if user in self.owner
        }
        return found - {name}


def merge_edges(
    graph: Graph, sets: Sequence[NodeSet], edges: Sequence[tuple[int, int]], fixed: frozenset[int]
) -> list[NodeSet]:
    """Merge along `edges` (node pairs) wherever that is legal.

    Tries each connected part as a whole first: when everything may be one kernel, as it often may,
    one check decides instead of one per edge."""
    whole = _whole_parts(graph, sets, edges, fixed)
    if whole is not None:
        return whole
    partition = Partition(graph, sets, fixed)
    for a, b in edges:
        partition.merge(a, b)
    return list(partition.members.values())


def _whole_parts(
    graph: Graph, sets: Sequence[NodeSet], edges: Sequence[tuple[int, int]], fixed: frozenset[int]
) -> list[NodeSet] | None:
    """The connected parts under `edges`, if each is a legal kernel and no cycle appears."""
    home = {n: i for i, nodes in enumerate(sets) for n in nodes}
    root = list(range(len(sets)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for a, b in edges:
        if not {a, b} & fixed:
            root[find(home[a])] = find(home[b])
    parts: dict[int, set[int]] = {}
    for i, nodes in enumerate(sets):
        parts.setdefault(find(i), set()).update(nodes)
    found = [frozenset(p) for p in parts.values()]
    partition = Partition(graph, found, fixed)
    for nodes in found:
        if not nodes & fixed and partition.check(nodes) is not None:
            return None
    try:
        plan_of_sets(graph, found, {})
    except PlanError:
        return None
    return found


def pack_independent(graph: Graph, sets: Sequence[NodeSet], fixed: frozenset[int]) -> list[NodeSet]:
    """Sets that neither read nor feed each other put into one kernel, level by level."""
    partition = Partition(graph, sets, fixed)
    leaders: list[int] = []
    for nodes in sorted(sets, key=min):
        if nodes & fixed:
            continue
        for leader in leaders:
            if partition.merge(leader, min(nodes)) is None:
                break
        else:
            leaders.append(min(nodes))
    return list(partition.members.values())


def realise(graph: Graph, plan: FusionPlan) -> tuple[FusionPlan, int]:
    """A plan of legal kernels nearest to `plan`: refused groups are cut and merged again greedily,
    the others stay as they are.

    Returns it and how many groups had to be cut. Loop bodies are realised too."""
    kept: list[FusionGroup] = []
    pieces: list[FusionGroup] = []
    cut = 0
    for group in plan.groups:
        if group.body is not None:
            body, inner = realise(reissued(graph, group)[0], group.body)
            kept.append(replace(group, body=body))
            cut += inner
        elif isinstance(check_group(graph, group.nodes, group.outputs), Refusal):
            pieces += _pieces(graph, group)
            cut += 1
        else:
            kept.append(group)
    if not cut:
        return plan, 0
    return ordered_plan(graph, [*kept, *_once(pieces, kept)]), cut


def _once(pieces: Iterable[FusionGroup], kept: Iterable[FusionGroup]) -> Iterator[FusionGroup]:
    """The pieces without values that something wrote before: each value has one writer."""
    written = {v for group in kept for v in group.outputs}
    for piece in pieces:
        outputs = tuple(v for v in piece.outputs if v not in written)
        written.update(outputs)
        if outputs:
            yield replace(piece, outputs=outputs)


def _pieces(graph: Graph, group: FusionGroup) -> Iterator[FusionGroup]:
    """A refused group as several that are not, down to single nodes."""
    for piece in _cut_groups(graph, group, _recut(graph, group)):
        if isinstance(check_group(graph, piece.nodes, piece.outputs), Refusal):
            singles = [frozenset((n,)) for n in piece.nodes if not is_free(graph, n)]
            yield from _cut_groups(graph, piece, singles)
        else:
            yield piece


def _cut_groups(graph: Graph, group: FusionGroup, sets: Iterable[NodeSet]) -> list[FusionGroup]:
    """The groups of disjoint node sets that together write what `group` did."""
    own = set(group.nodes)
    found = {s if _reads_memory(graph, s, {}) else with_free(graph, s) for s in sets}
    between = {v for nodes in found for v in reads(graph, nodes) if v.node in own}
    return _groups(graph, found, {}, between.union(group.outputs))


def _recut(graph: Graph, group: FusionGroup) -> list[NodeSet]:
    inside = frozenset(group.nodes)
    singles = [frozenset((n,)) for n in group.nodes if not is_free(graph, n)]
    fixed = frozenset(
        n for n in inside if graph[n].spec.family in (Family.CONTRACTION, Family.CONTROL)
    )
    edges = [
        (value.node, n)
        for n in group.nodes
        for value in graph[n].inputs
        if value.node in inside and not is_free(graph, value.node) and not is_free(graph, n)
    ]
    return merge_edges(graph, singles, edges, fixed)


def whole_loop_is_legal(graph: Graph, node: int) -> bool:
    """Whether a counted loop may run inside one kernel."""
    outputs = tuple(Value(node, i) for i in range(len(graph[node].types)))
    return not isinstance(check_group(graph, (node,), outputs), Refusal)
