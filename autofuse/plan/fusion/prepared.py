"""What of a plan had better run once: numbers that constants alone decide, kept apart from the
kernels of calls, which would compute them again each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from autofuse.graph.settled import constant_inputs, settled
from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.clusters import connected, needed
from autofuse.plan.fusion.groups import is_source, ordered_plan, reads
from autofuse.plan.fusion.legality import refusal_of
from autofuse.plan.types import FusionGroup, FusionPlan

_COMPUTES = (Family.ELEMENTWISE, Family.REDUCTION, Family.SCAN, Family.WINDOW)


@lru_cache(maxsize=256)
def prepared(graph: Graph) -> frozenset[int]:
    """Nodes of constants alone, declared ones among them, that compute, and whose results take no
    more memory than what they are computed from: to read those instead is never more. (XLA and
    Inductor fold what constants decide; weights that are stored narrow may stay so.)"""
    known = settled(graph)
    given = {graph.inputs[p] for p in constant_inputs(graph)}
    # What each settled value is read from, and whether a declared constant is among it.
    sources: dict[int, frozenset[int]] = {}
    found: set[int] = set()
    for n in sorted(known):
        node = graph[n]
        own = frozenset[int]().union(*(sources[v.node] for v in node.inputs))
        computes = node.spec.family in _COMPUTES and bool(own & (given | found))
        if computes and _nbytes(graph, (n,)) <= _nbytes(graph, own):
            found.add(n)
        sources[n] = frozenset((n,)) if n in found or is_source(graph, n) else own
    return frozenset(found)


def mixes(graph: Graph, nodes: Collection[int]) -> bool:
    """Whether a kernel would compute in each call what may be prepared."""
    once = prepared(graph)
    return not once.isdisjoint(nodes) and not settled(graph).issuperset(nodes)


def prepared_apart(graph: Graph, plan: FusionPlan) -> FusionPlan:
    """`plan` with what may be prepared in kernels of its own, which run once."""
    once = prepared(graph)
    if not any(mixes(graph, group.nodes) for group in plan.groups):
        return plan
    kept = [left for group in plan.groups for left in _without(graph, group)]
    needed = {v.node for group in kept for v in reads(graph, group.nodes)}
    needed |= {v.node for v in graph.outputs}
    written = {v.node for group in kept for v in group.outputs}
    return ordered_plan(graph, [*kept, *_once(graph, (needed & once) - written)])


def _without(graph: Graph, group: FusionGroup) -> Iterator[FusionGroup]:
    """A group without what may be prepared, unless it then reads too much to be a kernel."""
    if group.body is not None or not mixes(graph, group.nodes):
        yield group
        return
    once = prepared(graph)
    outputs = tuple(v for v in group.outputs if v.node not in once)
    nodes = needed(graph, {v.node for v in outputs}, frozenset(group.nodes) - once)
    left = replace(group, nodes=nodes, outputs=outputs)
    yield group if refusal_of(graph, nodes, outputs) is not None else left


def _nbytes(graph: Graph, nodes: Iterable[int]) -> int:
    return sum(t.nbytes for n in nodes for t in graph[n].types)


def _written(graph: Graph, part: Iterable[int], wanted: Collection[int]) -> tuple[Value, ...]:
    made = (n for n in part if n in wanted)
    return tuple(Value(n, k) for n in made for k in range(len(graph[n].types)))


def _once(graph: Graph, wanted: Collection[int]) -> Iterator[FusionGroup]:
    """Kernels that write these values, with all that they need; all that are of one shape and read
    the same literals in one where that is legal, else one each."""
    inside = frozenset(n for n in settled(graph) if not is_source(graph, n))
    nodes = needed(graph, wanted, inside)
    links = [(v.node, n) for n in nodes for v in graph[n].inputs if v.node in inside]
    for part in connected(nodes, links):
        outputs = _written(graph, part, wanted)
        if refusal_of(graph, part, outputs) is None:
            yield FusionGroup(part, outputs)
        else:
            for value in outputs:
                yield FusionGroup(needed(graph, (value.node,), inside), (value,))
