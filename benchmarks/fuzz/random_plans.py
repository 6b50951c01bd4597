"""Random walks over legal plans: merges of neighbours and siblings, recomputed producers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from autofuse.graph.types import Graph, Value
from autofuse.ops.spec import Family
from autofuse.plan.fusion.groups import MAX_UNROLL, host_loop, is_source, ordered_plan, reads
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig, PlanError

CHEAP = (Family.ELEMENTWISE, Family.MOVEMENT, Family.SOURCE, Family.RANDOM)
TILES = (1, 3, 8, 64, 1000)


class Walk:
    """A plan in the making: node sets, and for each node the set whose kernel writes it."""

    def __init__(self, graph: Graph, seed: int) -> None:
        self.graph, self.seed = graph, seed
        self.rng = np.random.default_rng(seed)
        nodes = [n for n in range(len(graph.nodes)) if not is_source(graph, n)]
        self.sets: tuple[frozenset[int], ...] = tuple(frozenset((n,)) for n in nodes)
        self.home: dict[int, frozenset[int]] = {n: frozenset((n,)) for n in nodes}

    def step(self) -> bool:
        """Try one random move; whether it was legal (and made)."""
        move = self._duplicate if self.rng.random() < 0.25 else self._merge
        before = self.sets, self.home
        if move() and self.plan() is not None:
            return True
        self.sets, self.home = before
        return False

    def plan(self) -> FusionPlan | None:
        """The plan as it stands, or None when it is not legal."""
        groups = [self._loop_body(group) for group in self._groups()]
        for group in groups:
            if group.body is None and isinstance(
                check_group(self.graph, group.nodes, group.outputs), Refusal
            ):
                return None
        try:
            return ordered_plan(self.graph, groups)
        except PlanError:
            return None

    def _loop_body(self, group: FusionGroup) -> FusionGroup:
        """A loop alone: sometimes one kernel, otherwise (always, if it must) run by the host
        kernels."""
        (node, *more) = group.nodes
        if more or self.graph[node].spec.family is not Family.CONTROL:
            return group
        refused = isinstance(check_group(self.graph, group.nodes, group.outputs), Refusal)
        if not refused and (self.seed + node) % 2:
            return group
        trip = self.graph.call(node).get("trip", 1)  # data end a `while`: it is not unrolled
        factors = [k for k in range(1, min(trip, MAX_UNROLL) + 1) if trip % k == 0]
        group = replace(group, body=FusionPlan(()), unroll=factors[self.seed // 2 % len(factors)])
        walk = Walk(host_loop(self.graph, group)[0], self.seed + node)
        for _ in range(self.seed % 20):
            walk.step()
        return replace(group, body=walk.plan())

    def _written(self, s: frozenset[int], wanted: set[Value]) -> tuple[Value, ...]:
        return tuple(sorted(v for v in wanted if v.node in s and self.home[v.node] == s))

    def _groups(self) -> list[FusionGroup]:
        alive = list(self.sets)
        while True:
            wanted = set(self.graph.outputs).union(*(reads(self.graph, s) for s in alive))
            outputs = {s: self._written(s, wanted) for s in alive}
            if all(outputs.values()):
                break
            alive = [s for s in alive if outputs[s]]
        return [FusionGroup(tuple(sorted(self._used(s, outputs[s]))), outputs[s]) for s in alive]

    def _used(self, nodes: frozenset[int], outputs: tuple[Value, ...]) -> set[int]:
        """The nodes of a set that its outputs need: a recomputed copy may have left some idle."""
        stack = [v.node for v in outputs]
        used: set[int] = set()
        while stack:
            n = stack.pop()
            if n in nodes and n not in used:
                used.add(n)
                stack.extend(v.node for v in self.graph[n].inputs)
        return used

    def _pick(self, items: list[frozenset[int]]) -> frozenset[int]:
        return items[int(self.rng.integers(len(items)))]

    def _merge(self) -> bool:
        if len(self.sets) < 2:
            return False
        a = self._pick(list(self.sets))
        mine = {v.node for v in reads(self.graph, a)}
        near = [
            s for s in self.sets
            if s != a and (s & mine or mine & {v.node for v in reads(self.graph, s)}
                           or any(v.node in a for v in reads(self.graph, s)))
        ]  # fmt: skip
        if not near or self.rng.random() < 0.1:
            near = [s for s in self.sets if s != a]
        if not near:
            return False
        b = self._pick(near)
        both = a | b
        self.sets = (*(s for s in self.sets if s not in (a, b)), both)
        self.home = {n: both if s in (a, b) else s for n, s in self.home.items()}
        return True

    def _reads(self, nodes: frozenset[int], n: int) -> bool:
        return any(v.node == n for v in reads(self.graph, nodes))

    def _duplicate(self) -> bool:
        """A cheap producer is computed again by every group that reads it."""
        if not self.home:
            return False
        n = int(self.rng.choice(sorted(self.home)))
        if self.graph[n].spec.family not in CHEAP:
            return False
        readers = {s for s in self.sets if self._reads(s, n)}
        if not readers:
            return False
        grown = {s: s | {n} if s in readers else s for s in self.sets}
        if len(set(grown.values())) < len(grown):
            return False
        self.sets = tuple(grown.values())
        self.home = {k: grown[s] for k, s in self.home.items()}
        return True


def random_launch(rng: np.random.Generator) -> LaunchConfig:
    """Settings that change how a kernel runs but not what it computes."""
    return LaunchConfig.of(
        tile=int(rng.choice(TILES)),
        stage=bool(rng.random() < 0.5),
        threads=int(rng.integers(1, 3)),
        math="strict" if rng.random() < 0.6 else "relaxed",
        stream=bool(rng.random() < 0.25),
        impl="blas" if rng.random() < 0.5 else "loops",
    )


def random_candidate(graph: Graph, seed: int, steps: int) -> Candidate:
    """The legal plan that a random walk of `steps` attempted moves ends at."""
    walk = Walk(graph, seed)
    for _ in range(steps):
        walk.step()
    plan = walk.plan()
    assert plan is not None
    rng = walk.rng
    return Candidate(plan, random_launches(graph, plan, rng))


def random_launches(
    graph: Graph, plan: FusionPlan, rng: np.random.Generator
) -> tuple[LaunchConfig, ...]:
    """A random configuration per group."""
    return tuple(_random_group_launch(graph, group, rng) for group in plan.groups)


def _random_group_launch(
    graph: Graph, group: FusionGroup, rng: np.random.Generator
) -> LaunchConfig:
    """Loops inside a kernel run some iterations at a time; kernels of a loop that the host runs
    have configurations of their own."""
    launch = random_launch(rng)
    if group.body is not None:
        body, _ = host_loop(graph, group)
        inner = (_random_group_launch(body, each, rng) for each in group.body.groups)
        return LaunchConfig(launch.settings, tuple(inner))
    trips = [graph.call(n)["trip"] for n in group.nodes if graph[n].op == "loop"]
    if trips:
        factors = [k for k in range(1, 5) if math.gcd(*trips) % k == 0]
        unroll = int(rng.choice(factors))
        launch = LaunchConfig.of(**dict(launch.settings), loop_unroll=unroll)
    return launch
