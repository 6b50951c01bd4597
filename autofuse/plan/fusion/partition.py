"""Node sets to plans: merging where it is legal, horizontal fusion, and what each set writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family, Motion
from autofuse.order import closure
from autofuse.plan.fusion.barriers import SHARED, may_be_library
from autofuse.plan.fusion.clusters import Clusters, connected
from autofuse.plan.fusion.groups import is_inline, is_source, needed_outputs, ordered_plan, reads
from autofuse.plan.fusion.legality import check_group, refusal_of
from autofuse.plan.fusion.products import fold_moves, product_of
from autofuse.plan.types import FusionGroup, FusionPlan, LoopBody, PlanError, Refusal

NodeSet = frozenset[int]
Bodies = Mapping[int, LoopBody]


def is_rematerialisable(graph: Graph, node: int) -> bool:
    """Whether a node reads nothing and costs next to nothing: every reader computes its own."""
    n = graph[node]
    if n.spec.family is Family.SOURCE:
        return not is_source(graph, node)
    return n.spec.motion is Motion.REPEAT and is_inline(graph, n.inputs[0].node)


def with_rematerialised(graph: Graph, nodes: Iterable[int]) -> NodeSet:
    """A node set with the rematerialisable nodes its members read."""
    return with_operands(graph, nodes, partial(is_rematerialisable, graph))


def with_operands(graph: Graph, nodes: Iterable[int], accepted: Callable[[int], bool]) -> NodeSet:
    """A node set with the accepted nodes its members read, and those that these read."""

    def near(n: int) -> Iterable[int]:
        return (v.node for v in graph[n].inputs if accepted(v.node))

    return frozenset(closure(nodes, near))


def plan_of_sets(graph: Graph, sets: Iterable[NodeSet], bodies: Bodies) -> FusionPlan:
    """The plan whose kernels compute these node sets, each with the outputs that others or the
    graph need from it; the first set that has a node writes it. `bodies` says how a loop is
    run by the host.

    A library call or a host loop reads rematerialisable nodes from memory, each from a kernel
    of its own, which waits for nobody. Raises PlanError when sets wait for each other in a circle
    or a needed value is computed nowhere."""
    found = {completed(graph, s, bodies) for s in sets}
    wanted = {v for v in graph.outputs if not is_source(graph, v.node)}
    for nodes in found:
        wanted.update(v for v in reads(graph, nodes) if not is_source(graph, v.node))
    return ordered_plan(graph, groups_writing(graph, found, bodies, wanted))


def plan_with_moves(
    graph: Graph, sets: Iterable[NodeSet], products: Iterable[int], bodies: Bodies
) -> FusionPlan:
    """The plan of disjoint node sets after these products, in turn, have taken in the moves before
    them. One is left as it is where a set would then have to write what no kernel can (a value of
    its own and the same one moved), or where sets would wait for each other in a circle: another
    reader of a move still has it from a set that reads what this product gives."""
    sets, folded = list(sets), list[int]()
    plan = plan_of_sets(graph, sets, bodies)
    for n in products:
        try:
            tried = plan_of_sets(graph, fold_moves(graph, sets, (*folded, n)), bodies)
        except PlanError:
            continue
        if all(_is_kernel(graph, g) for g in tried.groups if g not in plan.groups):
            plan = tried
            folded.append(n)
    return plan


def _is_kernel(graph: Graph, group: FusionGroup) -> bool:
    found = group.body or check_group(graph, group.nodes, group.outputs)
    return not isinstance(found, Refusal)


def groups_writing(
    graph: Graph, found: set[NodeSet], bodies: Bodies, wanted: set[Value]
) -> list[FusionGroup]:
    """Groups of completed node sets that write the wanted values, each written once. A wanted
    rematerialisable value gets a kernel of its own, and a product never writes a move that it has
    taken in: who reads that would wait for the product's other operand."""
    stored = {
        with_rematerialised(graph, [v.node]) for v in wanted if is_rematerialisable(graph, v.node)
    }
    taken: set[Value] = set()
    groups: list[FusionGroup] = []
    moved = {s for s in found if _is_product(graph, s)}
    first = sorted(found - moved, key=lambda s: (max(s), min(s), sorted(s)))
    for nodes in (*sorted(stored, key=max), *first, *sorted(moved, key=max)):
        outputs = tuple(sorted(v for v in wanted - taken if v.node in nodes))
        taken.update(outputs)
        if outputs:
            body = bodies.get(min(nodes)) if len(nodes) == 1 else None
            groups.append(_group(nodes, outputs, body))
    return groups


def _is_product(graph: Graph, nodes: NodeSet) -> bool:
    """Whether a product has taken moves in."""
    return len(nodes) > 1 and product_of(graph, tuple(sorted(nodes))) is not None


def _group(nodes: NodeSet, outputs: tuple[Value, ...], body: LoopBody | None) -> FusionGroup:
    group = FusionGroup(tuple(sorted(nodes)), outputs)
    return group if body is None else replace(group, body=body.plan, unroll=body.unroll)


def completed(graph: Graph, nodes: NodeSet, bodies: Bodies) -> NodeSet:
    """A node set with the rematerialisable nodes that its kernel computes: none where its one node
    may be a library call or is run by the host by `bodies`, or it is a product with moves of its
    operands, and so reads them from memory."""
    only = min(nodes)
    if len(nodes) == 1 and (only in bodies or may_be_library(graph, only)):
        return nodes
    if product_of(graph, tuple(sorted(nodes))) is not None:
        return nodes
    return with_rematerialised(graph, nodes)


class Partition:
    """Disjoint node sets under construction; rematerialisable nodes stay outside until the end.
    `fixed` nodes are joined with nothing. Raises PlanError when the sets wait for each other in a
    circle."""

    def __init__(self, graph: Graph, sets: Iterable[NodeSet], fixed: frozenset[int]) -> None:
        self.graph = graph
        self.fixed = fixed
        given = tuple(sets)
        needs = {n: tuple(v.node for v in graph[n].inputs) for nodes in given for n in nodes}
        self.clusters = Clusters(needs, given)

    @property
    def sets(self) -> list[NodeSet]:
        """The node sets as they are now."""
        return [frozenset(members) for members in self.clusters.members.values()]

    def merge(self, a: int, b: int) -> Refusal | None:
        """Join the sets of nodes a and b, or say why not."""
        first, second = self.clusters.home[a], self.clusters.home[b]
        if first == second:
            return None
        members = self.clusters.members
        union = frozenset(members[first]).union(members[second])
        if union & self.fixed:
            return SHARED
        if not self.clusters.can_merge(first, second):
            return Refusal("convex", "another kernel lies between them")
        refusal = refused(self.graph, union)
        if refusal is None:
            self.clusters.merge(first, second)
        return refusal


def refused(graph: Graph, nodes: NodeSet) -> Refusal | None:
    """Why the kernel that computes these nodes, and no other kernel does, cannot be one."""
    outputs = needed_outputs(graph, nodes)
    if not outputs:
        return Refusal("empty", "nobody needs what it computes")
    return refusal_of(graph, tuple(sorted(with_rematerialised(graph, nodes))), outputs)


def merge_edges(
    graph: Graph, sets: Sequence[NodeSet], edges: Sequence[tuple[int, int]], fixed: frozenset[int],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[NodeSet]:  # fmt: skip
    """Merge along `edges` (node pairs) wherever that is legal, until `should_stop` says so.

    Tries each connected part as a whole first: when everything may be one kernel, as it often may,
    one check decides instead of one per edge."""
    whole = _whole_parts(graph, sets, edges, fixed)
    if whole is not None:
        return whole
    partition = Partition(graph, sets, fixed)
    for a, b in edges:
        if should_stop():
            break
        partition.merge(a, b)
    return partition.sets


def _whole_parts(
    graph: Graph, sets: Sequence[NodeSet], edges: Sequence[tuple[int, int]], fixed: frozenset[int]
) -> list[NodeSet] | None:
    """The connected parts under `edges`, if each is a legal kernel and no cycle appears."""
    home = {n: i for i, nodes in enumerate(sets) for n in nodes}
    links = ((home[a], home[b]) for a, b in edges if not {a, b} & fixed)
    parts = connected(range(len(sets)), links)
    found = [frozenset[int]().union(*map(sets.__getitem__, part)) for part in parts]
    if any(refused(graph, nodes) is not None for nodes in found if not nodes & fixed):
        return None
    try:
        plan_of_sets(graph, found, {})
    except PlanError:
        return None
    return found


def fuse_independent(
    graph: Graph, sets: Sequence[NodeSet], fixed: frozenset[int],
    should_stop: Callable[[], bool] = lambda: False,
) -> list[NodeSet]:  # fmt: skip
    """Horizontal fusion: sets that neither read nor feed each other put into one kernel, each into
    the first that takes it, until `should_stop` says so."""
    partition = Partition(graph, sets, fixed)
    leaders: list[int] = []
    for nodes in sorted(sets, key=min):
        if nodes & fixed:
            continue
        for leader in leaders:
            if should_stop():
                return partition.sets
            if partition.merge(leader, min(nodes)) is None:
                break
        else:
            leaders.append(min(nodes))
    return partition.sets


def whole_loop_is_legal(graph: Graph, node: int) -> bool:
    """Whether a counted loop may run inside one kernel."""
    outputs = tuple(Value(node, i) for i in range(len(graph[node].types)))
    return not isinstance(check_group(graph, (node,), outputs), Refusal)
