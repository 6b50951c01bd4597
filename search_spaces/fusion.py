"""Fusion decisions as named choices: which edges are fused, which loops run inside a kernel, and
how many iterations of a host loop are planned together.

Nodes that can only gain from sitting with their one reader are joined beforehand (supernodes), so
a decision is left only where fusing could lose. Movement is left to decide, and what it joins is
not: the choices of recorded spaces are named by these node pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from autofuse.enumerate.supernodes import gains_in_place, joined
from autofuse.graph.surgery.host_body import host_body
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph
from autofuse.ops.control import is_counted
from autofuse.ops.spec import Family
from autofuse.plan.fusion.barriers import stands_alone
from autofuse.plan.fusion.clusters import live
from autofuse.plan.fusion.partition import (
    NodeSet,
    fuse_independent,
    is_rematerialisable,
    merge_edges,
    plan_with_moves,
    whole_loop_is_legal,
)
from autofuse.plan.fusion.products import folded_moves
from autofuse.plan.types import FusionPlan, LoopBody, PlanError, Setting
from search_spaces.launch import Chooser

FUSE_ALL, FUSE_EDGES = "all", "edges"
# Iterations planned together at most, and nodes that they may come to: planning takes time too.
MOST_TRIPS, MOST_NODES = 16, 800


def unroll_factors(trip: int, nodes: int) -> tuple[int, ...]:
    """How many iterations of a loop whose body has `nodes` nodes may be planned together: 1, then
    at most three divisors of `trip`, small, middling and large."""
    most = min(MOST_TRIPS, MOST_NODES // max(nodes, 1))
    found = [k for k in range(2, most + 1) if trip % k == 0]
    picked = {found[0], found[len(found) // 2], found[-1]} if found else set()
    return (1, *sorted(picked))


class FusionSpace:
    """The fusion plans of one canonical graph."""

    def __init__(self, graph: Graph, prefix: str = "") -> None:
        self.graph = graph
        self.prefix = prefix
        self._unrolled: dict[tuple[int, int], FusionSpace] = {}

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Nodes that kernels must compute, rematerialisable ones apart."""
        return tuple(n for n in live(self.graph) if not is_rematerialisable(self.graph, n))

    @cached_property
    def supernodes(self) -> tuple[NodeSet, ...]:
        """Elementwise nodes joined with the one elementwise op or reduction that reads them."""
        return tuple(map(frozenset, joined(self.graph, self.live, gains_in_place)))

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """One (producer, reader) node pair for each pair of supernodes that a kernel could join;
        moves that a product can take in are chosen apart."""
        g = self.graph
        home = {n: i for i, nodes in enumerate(self.supernodes) for n in nodes}
        found: dict[tuple[int, int], tuple[int, int]] = {}
        for n in self.live:
            for value in g[n].inputs:
                a, b = home.get(value.node), home[n]
                apart = {value.node, n} & self.barriers or value.node in folded_moves(g, n)
                if a is not None and a != b and not apart:
                    found.setdefault((a, b), (value.node, n))
        return tuple(sorted(found.values(), key=lambda e: (e[1], e[0])))

    @cached_property
    def barriers(self) -> frozenset[int]:
        """Nodes that are kernels of their own."""
        return frozenset(n for n in self.live if stands_alone(self.graph, n) is not None)

    @cached_property
    def products(self) -> tuple[int, ...]:
        """Nodes whose library calls can do moves of their operands."""
        return tuple(n for n in self.live if folded_moves(self.graph, n))

    @cached_property
    def loops(self) -> Mapping[int, FusionSpace]:
        """The space of each loop's body."""
        return {
            n: FusionSpace(host_body(self.graph.call(n)), f"{self.prefix}L{n}.")
            for n in self.live
            if self.graph[n].spec.family is Family.CONTROL
        }

    def factors(self, loop: int) -> tuple[int, ...]:
        """The unroll factors of a loop; 1 comes first, and is all where data decide its end."""
        call = self.graph.call(loop)
        if not is_counted(self.graph[loop].op):
            return (1,)
        return unroll_factors(call["trip"], len(call["body"].nodes))

    def unrolled(self, loop: int, factor: int) -> FusionSpace:
        """The space of `factor` iterations of a loop's body chained."""
        if factor == 1:
            return self.loops[loop]
        if (loop, factor) not in self._unrolled:
            call = self.graph.call(loop)
            body = unrolled_body(call["body"], call["carries"], factor)
            self._unrolled[loop, factor] = FusionSpace(body, f"{self.prefix}L{loop}x{factor}.")
        return self._unrolled[loop, factor]

    def choose(
        self, chooser: Chooser, should_stop: Callable[[], bool] = lambda: False
    ) -> FusionPlan:
        """The plan of these choices; a merge that is not legal is left out, and so are all that are
        left when `should_stop` says so.

        Asks `policy` first: with "all" every legal edge is fused and no edge is asked about."""
        bodies: dict[int, LoopBody] = {}
        for n in self.loops:
            options: tuple[Setting, ...] = ("kernel", "body")
            whole = whole_loop_is_legal(self.graph, n)
            if not whole or chooser(f"{self.prefix}loop:{n}", options) == "body":
                bodies[n] = self._body(n, chooser, should_stop)
        fixed = self.barriers | frozenset(bodies)
        edges = [e for e in self.edges if not set(e) & fixed]
        if edges and chooser(f"{self.prefix}policy", (FUSE_ALL, FUSE_EDGES)) == FUSE_EDGES:
            edges = [e for e in edges if chooser(f"{self.prefix}fuse:{e[0]}-{e[1]}", (True, False))]
        sets = merge_edges(self.graph, self.supernodes, edges, fixed, should_stop)
        if len(sets) > 1 and chooser(f"{self.prefix}pack", (False, True)):
            sets = fuse_independent(self.graph, sets, fixed, should_stop)
        folded = [n for n in self.products if chooser(f"{self.prefix}moves:{n}", (True, False))]
        return plan_with_moves(self.graph, sets, folded, bodies)

    def _body(self, loop: int, chooser: Chooser, should_stop: Callable[[], bool]) -> LoopBody:
        """How a loop is run by the host."""
        factors, factor = self.factors(loop), 1
        if len(factors) > 1:
            factor = int(chooser(f"{self.prefix}unroll:{loop}", factors))
        return LoopBody(self.unrolled(loop, factor).choose(chooser, should_stop), factor)

    def _encode_loop(self, n: int, unroll: int, body: FusionPlan) -> dict[str, Setting]:
        factor = unroll if unroll in self.factors(n) else 1
        choices: dict[str, Setting] = {
            f"{self.prefix}loop:{n}": "body", f"{self.prefix}unroll:{n}": factor,
        }  # fmt: skip
        return choices | self.unrolled(n, factor).encode(body) if factor == unroll else choices

    def encode(self, plan: FusionPlan) -> dict[str, Setting]:
        """Choices whose plan is `plan`, or near it where the space cannot express it."""
        where: dict[int, set[int]] = {}
        choices: dict[str, Setting] = {f"{self.prefix}policy": FUSE_EDGES}
        for i, group in enumerate(plan.groups):
            for n in group.nodes:
                where.setdefault(n, set()).add(i)
            if group.body is not None and group.nodes[0] in self.loops:
                choices |= self._encode_loop(group.nodes[0], group.unroll, group.body)
        for n in self.products:
            own = (plan.groups[i] for i in where.get(n, ()))
            choices[f"{self.prefix}moves:{n}"] = any(len(group.nodes) > 1 for group in own)
        for a, b in self.edges:
            joined = bool(where.get(a, set()) & where.get(b, set()))
            choices[f"{self.prefix}fuse:{a}-{b}"] = joined
        return choices


__all__ = ["FUSE_ALL", "FUSE_EDGES", "FusionSpace", "PlanError", "unroll_factors"]
