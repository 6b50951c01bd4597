"""What of a plan had better run once: numbers that constants alone decide, kept apart from the
kernels of calls, which would compute them again each time."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
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
    more memory than what they are computed from, all of them together: to read those instead is
    never more. (XLA and Inductor fold what constants decide; weights that are stored narrow may
    stay so, and of two halves of each byte neither is prepared.)"""
    apart = frozenset[int]()
    while True:
        found, sources = _smaller(graph, apart)
        large = _larger_together(graph, found, sources)
        if not large:
            return found
        apart |= large


def _smaller(
    graph: Graph, apart: Collection[int]
) -> tuple[frozenset[int], dict[int, frozenset[int]]]:
    """Those nodes as far as each by itself goes, without those `apart`, and what each settled value
    is read from, a declared constant among it or not."""
    known = settled(graph)
    given = {graph.inputs[p] for p in constant_inputs(graph)}
    sources: dict[int, frozenset[int]] = {}
    found: set[int] = set()
    for n in sorted(known):
        node = graph[n]
        own = frozenset[int]().union(*(sources[v.node] for v in node.inputs))
        computes = node.spec.family in _COMPUTES and bool(own & (given | found))
        if computes and n not in apart and _nbytes(graph, (n,)) <= _nbytes(graph, own):
            found.add(n)
        sources[n] = frozenset((n,)) if n in found or is_source(graph, n) else own
    return frozenset(found), sources


def _larger_together(
    graph: Graph, found: frozenset[int], sources: Mapping[int, frozenset[int]]
) -> frozenset[int]:
    """Of nodes that something else reads those that share what they are computed from, and together
    take more memory than it does."""
    beneath = {
        n: frozenset(s for v in graph[n].inputs for s in sources[v.node])
        for n in _read_by_others(graph, found, sources)
    }
    links = [(n, s) for n, below in beneath.items() for s in below - found]
    large: set[int] = set()
    for part in connected({*beneath, *(s for _, s in links)}, links):
        own = [n for n in part if n in beneath]
        below = frozenset[int]().union(*(beneath[n] for n in own))
        if len(own) > 1 and _nbytes(graph, own) > _nbytes(graph, below):
            large.update(own)
    return frozenset(large)


def _read_by_others(
    graph: Graph, found: frozenset[int], sources: Mapping[int, frozenset[int]]
) -> list[int]:
    """Those of `found` that are results, or that others read which compute something."""
    wanted = {v.node for v in graph.outputs}
    for n, node in enumerate(graph.nodes):
        moves = n in sources and node.spec.family is Family.MOVEMENT
        if n not in found and not moves:
            wanted |= {s for v in node.inputs for s in sources.get(v.node, ())}
    return sorted(found & wanted)


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
