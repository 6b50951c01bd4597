"""A loop with two states and two stacks, and candidates that run from the host it several
iterations at once."""

from __future__ import annotations

from dataclasses import replace

from autofuse.baselines import BASELINES
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import group_of
from autofuse.plan.fusion.legalise import legalise
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from search_spaces import FusionSpace

TRIP = 6


def counting() -> Graph:
    """Two states of which one is the other's past, both stacked; iterations are counted."""
    inner = GraphBuilder()
    t = inner.input("t", (), "i32")
    s, u = inner.input("s", (5,), "f32"), inner.input("u", (5,), "f32")
    w = inner.input("w", (5,), "f32")
    step = inner.add("cast", t, dtype="f32")
    turned = inner.add(
        "mul", inner.add("sin", w), inner.add("broadcast", step, shape=(5,), dims=())
    )
    new = inner.add("add", inner.add("tanh", s), inner.add("add", turned, u))
    body = inner.build([new, s, new, inner.add("cos", new)])
    b = GraphBuilder()
    x, y, z = (b.input(n, (5,), "f32") for n in "xyz")
    found = b.add_multi("loop", x, y, z, body=body, trip=TRIP, carries=2)
    return canonical(b.build([b.add("neg", found[0]), *found[1:]]))


GRAPH = counting()
LOOP = next(n for n, node in enumerate(GRAPH.nodes) if node.op == "loop")
BODY: Graph = GRAPH.call(LOOP)["body"]


def fused(graph: Graph) -> FusionPlan:
    return FusionSpace(graph).choose(lambda _, options: options[0])


def candidate(graph: Graph, plan: FusionPlan) -> Candidate:
    launch = LaunchConfig()
    launches = (
        LaunchConfig((), (launch,) * len(g.body.groups)) if g.body else launch for g in plan.groups
    )
    return Candidate(plan, tuple(launches))


def by(factor: int, rule: str = "") -> Candidate:
    """The loop run by the host `factor` iterations at once, fused or by a rule-based planner."""
    before = BASELINES["unfused"](GRAPH).plan
    body = unrolled_body(BODY, 2, factor)
    inner = legalise(body, BASELINES[rule](body).plan)[0] if rule else fused(body)
    groups = (
        replace(g, body=inner, unroll=factor) if g.nodes == (LOOP,) else g for g in before.groups
    )
    return candidate(GRAPH, FusionPlan(tuple(groups)))


def loop_group(factor: int) -> FusionGroup:
    return next(g for g in by(factor).plan.groups if g.nodes == (LOOP,))


def whole(unroll: int, graph: Graph = GRAPH, loop: int = LOOP) -> Candidate:
    """Every node a kernel of its own, the loop too, `unroll` iterations at a time."""
    plan = FusionPlan(tuple(group_of(graph, [n]) for n in range(loop, len(graph.nodes))))
    return Candidate(plan, (LaunchConfig.of(loop_unroll=unroll, tile=4),) * len(plan.groups))
