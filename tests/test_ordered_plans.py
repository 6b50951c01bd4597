"""Equal sets of groups are one plan and one candidate, whoever lists them in whatever order."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.baselines import BASELINES
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import host_loop, in_one_order, ordered_plan
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import FusionGroup, FusionPlan, PlanError, candidate_from_json
from autofuse.tuning.problem import default_candidate
from autofuse.zoo import zoo_graph
from benchmarks.fuzz.random_plans import random_candidate
from search_spaces import CpuLaunchSpace, FusionSpace
from tests.support.random_graphs import ALL_MOVES, random_graph

TraceFunction = Callable[[FrameType, str, Any], Any]
PLANNERS = (*BASELINES, "space", "walk")


def planned(graph: Graph, planner: str, seed: int) -> FusionPlan:
    """A plan by a baseline, of random choices of the search space, or of a random walk."""
    if planner == "walk":
        return random_candidate(graph, seed, 40).plan
    if planner == "space":
        rng = Random(seed)
        return FusionSpace(graph).choose(lambda _, options: rng.choice(options))
    return BASELINES[planner](graph).plan


def permuted(plan: FusionPlan, rng: Random) -> FusionPlan:
    """The same groups in another order, loop bodies too."""
    groups = [g if g.body is None else replace(g, body=permuted(g.body, rng)) for g in plan.groups]
    rng.shuffle(groups)
    return FusionPlan(tuple(groups))


def digest(graph: Graph, plan: FusionPlan) -> str:
    return default_candidate(graph, plan, CpuLaunchSpace(), "test").digest


@given(st.integers(0, 2**31), st.integers(1, 30), st.sampled_from(PLANNERS), st.randoms())
def test_any_order_of_groups_is_the_same_plan(seed, nodes, planner, rng) -> None:
    graph = canonical(random_graph(seed, nodes, moves=ALL_MOVES))
    plan = planned(graph, planner, seed)
    assert ordered_plan(graph, plan.groups) == plan
    shuffled = list(plan.groups)
    rng.shuffle(shuffled)
    assert ordered_plan(graph, shuffled) == plan
    again = in_one_order(graph, permuted(plan, rng))
    assert again == plan
    assert digest(graph, again) == digest(graph, plan)


@pytest.mark.parametrize("planner", PLANNERS)
def test_re_issued_loops_have_one_order_inside_too(planner: str) -> None:
    graph = canonical(zoo_graph("cartpole_naive", "small"))
    plan = planned(graph, planner, 3)
    again = in_one_order(graph, permuted(plan, Random(1)))
    assert again == plan
    assert digest(graph, again) == digest(graph, plan)


def diamond() -> Graph:
    """%1 and %2 read the input; %3 and %4 read both."""
    b = GraphBuilder()
    x = b.input("x", (8,), DType.F32)
    p, q = b.add("sin", x), b.add("cos", x)
    return b.build([b.add("add", p, q), b.add("sub", p, q)])


def group(nodes: tuple[int, ...], *outputs: int) -> FusionGroup:
    return FusionGroup(nodes, tuple(Value(n) for n in outputs))


def test_a_group_that_waits_comes_as_soon_as_it_can() -> None:
    """The group with %3 reads what the group with the higher node %4 writes."""
    graph = diamond()
    late, early = group((1, 3), 3), group((1, 2, 4), 2, 4)
    assert ordered_plan(graph, [late, early]).groups == (early, late)
    check_plan(graph, ordered_plan(graph, [late, early]))


def test_a_group_that_comes_twice_runs_once() -> None:
    graph = diamond()
    whole = group((1, 2, 3, 4), 3, 4)
    assert ordered_plan(graph, [whole, whole]).groups == (whole,)


def test_a_value_with_two_writers_is_there_after_the_first() -> None:
    graph = diamond()
    groups = [group((1,), 1), group((1, 2), 1, 2), group((3,), 3), group((4,), 4)]
    assert ordered_plan(graph, groups[::-1]).groups == tuple(groups)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([group((3,), 3), group((1,), 1)], r"reads %2, which no group writes"),
        (
            [group((1, 4), 1, 4), group((2, 3), 2, 3)],
            r"wait for each other in a circle: group .* reads %., which no earlier group can write",
        ),
    ],
)
def test_what_cannot_be_ordered_is_said_in_one_sentence(groups, message) -> None:
    for order in (groups, groups[::-1]):
        with pytest.raises(PlanError, match=message) as found:
            ordered_plan(diamond(), order)
        assert "\n" not in str(found.value)
    with pytest.raises(PlanError) as first:
        ordered_plan(diamond(), groups)
    assert str(first.value) == str(found.value)


def test_a_plan_stored_in_another_order_reads_back_as_it_was() -> None:
    graph = diamond()
    parts = (group((2,), 2), group((1,), 1), group((4,), 4), group((3,), 3))
    stored = replace(
        default_candidate(graph, FusionPlan(parts), CpuLaunchSpace(), ""), origin="old"
    )
    read = candidate_from_json(stored.to_json(), "old")
    assert read == stored and read.plan.groups == parts
    check_plan(graph, read.plan)
    assert read.digest == stored.digest


def against_their_rank(count: int) -> tuple[Graph, list[FusionGroup]]:
    """A chain of groups, each with a node of its own that ranks it before the one it reads from."""
    b = GraphBuilder()
    last, other = b.input("x", (8,), DType.F32), b.input("y", (8,), DType.F32)
    chain = [last := b.add("sin", last) for _ in range(count)]
    alone = [b.add("add", other, other) for _ in range(count)]
    pairs = list(zip(chain, reversed(alone), strict=True))
    return b.build([*chain, *alone]), [group((v.node, w.node), v.node, w.node) for v, w in pairs]


def steps_of(call: Callable[[], object]) -> int:
    """Lines of this project that a call runs."""
    steps = 0

    def count(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal steps
        steps += event == "line"
        return count if "autofuse" in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(count)
    try:
        call()
    finally:
        sys.settrace(before)
    return steps


def test_ordering_takes_steps_in_proportion_to_the_groups() -> None:
    counts = []
    for count in (100, 200):
        graph, groups = against_their_rank(count)
        assert ordered_plan(graph, groups[::-1]).groups == tuple(groups)
        counts.append(steps_of(partial(ordered_plan, graph, groups)))
    assert counts[0] > 100
    assert counts[1] <= 2.2 * counts[0]


def test_bodies_are_plans_of_their_own_graph() -> None:
    graph = canonical(zoo_graph("cartpole_naive", "small"))
    plan = BASELINES["unfused"](graph).plan
    loops = [g for g in plan.groups if g.body is not None]
    assert loops
    for loop in loops:
        assert loop.body is not None
        inner = host_loop(graph, loop)[0]
        assert ordered_plan(inner, reversed(loop.body.groups)) == loop.body
