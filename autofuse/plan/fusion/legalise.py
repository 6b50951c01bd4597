"""Plans of kernels that ours can be: groups that legality refuses are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from autofuse.graph.types import Graph
from autofuse.plan.fusion.barriers import may_be_library, reads_whole_arrays
from autofuse.plan.fusion.clusters import needed
from autofuse.plan.fusion.groups import host_loop, ordered_plan, reads
from autofuse.plan.fusion.legality import refusal_of
from autofuse.plan.fusion.partition import (
    NodeSet,
    completed,
    groups_writing,
    is_rematerialisable,
    merge_edges,
)
from autofuse.plan.types import FusionGroup, FusionPlan


def legalise(graph: Graph, plan: FusionPlan) -> tuple[FusionPlan, int]:
    """A plan of legal kernels nearest to `plan`: refused groups are cut and merged again greedily,
    the others stay as they are.

    Returns it and how many groups had to be cut. Loop bodies are legalised too."""
    kept: list[FusionGroup] = []
    pieces: list[FusionGroup] = []
    cut = 0
    for group in plan.groups:
        if group.body is not None:
            body, inner = legalise(host_loop(graph, group)[0], group.body)
            kept.append(replace(group, body=body))
            cut += inner
        elif refusal_of(graph, group.nodes, group.outputs) is not None:
            pieces += _pieces(graph, group)
            cut += 1
        else:
            kept.append(group)
    if not cut:
        return plan, 0
    return ordered_plan(graph, [*kept, *_once(graph, pieces, kept)]), cut


def _once(
    graph: Graph, pieces: Iterable[FusionGroup], kept: Iterable[FusionGroup]
) -> Iterator[FusionGroup]:
    """The pieces without values that something wrote before, and without what only these needed:
    each value has one writer."""
    written = {v for group in kept for v in group.outputs}
    for piece in pieces:
        outputs = tuple(v for v in piece.outputs if v not in written)
        written.update(outputs)
        if outputs:
            nodes = needed(graph, (v.node for v in outputs), frozenset(piece.nodes))
            yield replace(piece, nodes=nodes, outputs=outputs)


def _pieces(graph: Graph, group: FusionGroup) -> Iterator[FusionGroup]:
    """A refused group as several that are not, down to single nodes."""
    for piece in _cut_groups(graph, group, _merged_again(graph, group)):
        if refusal_of(graph, piece.nodes, piece.outputs) is not None:
            singles = [frozenset((n,)) for n in piece.nodes if not is_rematerialisable(graph, n)]
            yield from _cut_groups(graph, piece, singles)
        else:
            yield piece


def _cut_groups(graph: Graph, group: FusionGroup, sets: Iterable[NodeSet]) -> list[FusionGroup]:
    """The groups of disjoint node sets that together write what `group` did."""
    own = set(group.nodes)
    found = {completed(graph, s, {}) for s in sets}
    between = {v for nodes in found for v in reads(graph, nodes) if v.node in own}
    return groups_writing(graph, found, {}, between.union(group.outputs))


def _merged_again(graph: Graph, group: FusionGroup) -> list[NodeSet]:
    """The nodes of a refused group merged along its edges wherever that is legal."""
    own = [n for n in group.nodes if not is_rematerialisable(graph, n)]
    inside = frozenset(own)
    fixed = frozenset(n for n in own if may_be_library(graph, n) or reads_whole_arrays(graph, n))
    edges = [(v.node, n) for n in own for v in graph[n].inputs if v.node in inside]
    return merge_edges(graph, [frozenset((n,)) for n in own], edges, fixed)
