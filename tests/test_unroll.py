"""A host loop whose body is several iterations chained: the graph of them, plans of it, and
stored candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autofuse.baselines import BASELINES
from autofuse.commands.pictures import graph_svg
from autofuse.commands.plan_tree import plan_data, tree_lines
from autofuse.cost.bounds import NOMINAL, group_bound_us, plan_bound_us
from autofuse.cost.traffic import group_traffic, plan_traffic
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical, digest, text
from autofuse.graph.readback import read_text
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph, Value
from autofuse.kernel.text.dialects import C
from autofuse.ops.dtypes import DType
from autofuse.ops.types import GraphError
from autofuse.plan.fusion.groups import host_loop
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.program.schedule import (
    Copy,
    Ref,
    Repeat,
    kernel_runs,
    launches_per_call,
    schedule,
)
from autofuse.plan.types import (
    Candidate,
    FusionGroup,
    FusionPlan,
    PlanError,
    candidate_from_json,
)
from autofuse.tuning.evaluate import group_digests
from search_spaces import FusionSpace
from tests.support.batching import Case, failures
from tests.support.unrolled_plans import BODY, GRAPH, LOOP, TRIP, by, candidate, loop_group

# --- the graph ------------------------------------------------------------------------------


def chain(factor: int) -> tuple[Graph, Graph]:
    """s -> sin(s) * t, and by hand what `factor` iterations of it are."""
    b = GraphBuilder()
    t, s = b.input("t", (), "i32"), b.input("s", (), "i32")
    body = b.build([b.add("mul", b.add("neg", s), t), s])
    b = GraphBuilder()
    t, s = b.input("t", (), "i32"), b.input("s", (), "i32")
    first, rows = b.add("mul", t, b.constant(factor, DType.I32)), []
    for copy in range(factor):
        rows.append(s)
        at = b.add("add", first, b.constant(copy, DType.I32)) if copy else first
        s = b.add("mul", b.add("neg", s), at)
    return canonical(body), b.build([s, *rows])


@pytest.mark.parametrize("factor", [2, 3])
def test_the_unrolled_graph_is_the_one_written_by_hand(factor: int) -> None:
    body, wanted = chain(factor)
    assert text(unrolled_body(body, 1, factor)) == text(wanted)


def test_an_unrolled_graph_is_canonical_and_one_trip_is_the_body() -> None:
    found = unrolled_body(BODY, 2, 3)
    assert canonical(found) == found and digest(found) != digest(BODY)
    assert found.input_types == BODY.input_types
    assert len(found.outputs) == 2 + 3 * (len(BODY.outputs) - 2)
    assert unrolled_body(BODY, 2, 1) is BODY
    with pytest.raises(GraphError, match="cannot be unrolled by 0"):
        unrolled_body(BODY, 2, 0)


def test_what_no_trip_changes_is_computed_once_for_all_copies() -> None:
    ops = [node.op for node in unrolled_body(BODY, 2, 3).nodes]
    assert ops.count("sin") == 1 and ops.count("tanh") == 3


@pytest.mark.parametrize("factor", [2, 3, 6])
def test_a_loop_of_the_unrolled_body_gives_the_same_states(factor: int) -> None:
    b = GraphBuilder()
    x, y, z = (b.input(n, (5,), "f32") for n in "xyz")
    body = unrolled_body(BODY, 2, factor)
    found = b.add_multi("loop", x, y, z, body=body, trip=TRIP // factor, carries=2)
    again, inputs = b.build([b.add("neg", found[0]), *found[1:]]), random_inputs(GRAPH, 0)
    wanted, got = evaluate(GRAPH, inputs), evaluate(again, inputs)
    rows = [np.stack(got[2 + k * factor : 2 + (k + 1) * factor], axis=1) for k in range(2)]
    stacks = [r.reshape(TRIP, 5) for r in rows]
    for one, other in zip(wanted, (*got[:2], *stacks), strict=True):
        np.testing.assert_array_equal(one, other)


# --- plans ----------------------------------------------------------------------------------


def test_unrolled_plans_give_the_reference_result() -> None:
    cases = [Case(GRAPH, by(k), f"fused by {k}") for k in (1, 2, 3, 6)]
    cases += [Case(GRAPH, by(k, rule), f"{rule} by {k}") for k in (2, 3) for rule in BASELINES]
    assert not failures(cases)


def nested(trips: tuple[int, int]) -> Graph:
    """A loop in a loop; the inner one's stack is stacked once more, both count their iterations."""
    deep = GraphBuilder()
    t, s = deep.input("t", (), "i32"), deep.input("s", (3,), "f32")
    step = deep.add("broadcast", deep.add("cast", t, dtype="f32"), shape=(3,), dims=())
    new = deep.add("sin", deep.add("add", s, step))
    deepest = deep.build([new, deep.add("cos", new)])
    inner = GraphBuilder()
    t, start = inner.input("t", (), "i32"), inner.input("s", (3,), "f32")
    step = inner.add("broadcast", inner.add("cast", t, dtype="f32"), shape=(3,), dims=())
    found = inner.add_multi("loop", start, body=deepest, trip=trips[1], carries=1)
    body = inner.build([inner.add("add", found[0], step), found[1]])
    b = GraphBuilder()
    x = b.input("x", (3,), "f32")
    return canonical(b.build(b.add_multi("loop", x, body=body, trip=trips[0], carries=1)))


def everything(outer: int, inner: int) -> Candidate:
    """A nested loop with both loops run by the host so many iterations at once."""

    def choose(name: str, options: tuple[object, ...]) -> object:
        wanted = inner if name.startswith("L") else outer
        if ".loop:" in f".{name}":
            return "body"
        return wanted if ".unroll:" in f".{name}" else options[0]

    graph = nested((4, 6))
    return candidate(graph, FusionSpace(graph).choose(choose))


def test_nested_loops_are_both_unrolled() -> None:
    graph = nested((4, 6))
    cases = [Case(graph, everything(*k), f"{k}") for k in ((2, 1), (1, 2), (2, 3), (4, 6))]
    for case in cases:
        (group,) = case.candidate.plan.groups
        assert group.body is not None and f"{group.unroll}" == case.label[1]
        assert {g.unroll for g in group.body.groups if g.body} == {int(case.label[4])}
    assert not failures(cases)


def test_rows_of_a_trip_lie_one_after_another() -> None:
    made = schedule(GRAPH, by(3))
    (repeat,) = (s for s in made.steps if isinstance(s, Repeat))
    assert repeat.trip == 2
    written = [r for run in kernel_runs((repeat,)) for r in run.writes]
    written += [s.target for s in repeat.turns[0] if isinstance(s, Copy)]
    assert {r for r in written if r.space == "out"} == {
        Ref("out", k, offset=20 * row, level=0, stride=60) for k in (2, 3) for row in range(3)
    }


def test_unrolling_launches_fewer_kernels_and_moves_fewer_bytes() -> None:
    launches = [launches_per_call(schedule(GRAPH, by(k)).steps) for k in (1, 2, 6)]
    moved = [plan_traffic(GRAPH, by(k).plan).bytes for k in (1, 2, 6)]
    assert launches == sorted(launches, reverse=True) and len(set(launches)) == 3
    assert moved == sorted(moved, reverse=True) and len(set(moved)) == 3


def test_bounds_and_traffic_count_the_trips_that_are_left() -> None:
    group = loop_group(3)
    body, trips = host_loop(GRAPH, group)
    assert trips == 2 and group.body is not None
    assert group_traffic(GRAPH, group) == plan_traffic(body, group.body) * 2
    each = plan_bound_us(body, group.body, replace(NOMINAL, launch_us=0.0))
    assert group_bound_us(GRAPH, group, NOMINAL) == pytest.approx(NOMINAL.launch_us + 2 * each)


def test_groups_are_known_by_the_kernels_of_the_unrolled_body() -> None:
    one, two = (group_digests(GRAPH, by(k).plan) for k in (1, 2))
    assert set(one) != set(two)


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (4, "a loop of 6 iterations cannot be unrolled by 4: no divisor"),
        (4096, "a loop cannot be unrolled by 4096: the limit is 64"),
    ],
)
def test_a_factor_that_does_not_fit_is_one_sentence(factor: int, message: str) -> None:
    plan = by(1).plan
    groups = tuple(replace(g, unroll=factor) if g.body else g for g in plan.groups)
    for use in (check_plan, plan_traffic):
        with pytest.raises(PlanError, match=f"^{message}$"):
            use(GRAPH, FusionPlan(groups))


def test_a_factor_needs_a_body_and_is_at_least_one() -> None:
    outputs = (Value(LOOP),)
    with pytest.raises(PlanError, match="is unrolled by 2, but re-issues no body"):
        FusionGroup((LOOP,), outputs, None, 2)
    with pytest.raises(PlanError, match="cannot be unrolled by 0"):
        FusionGroup((LOOP,), outputs, FusionPlan(()), 0)
    with pytest.raises(PlanError, match="has a body, but is not one loop"):
        host_loop(GRAPH, FusionGroup((LOOP + 1,), (Value(LOOP + 1),), FusionPlan(()), 2))


def test_a_shown_plan_says_how_many_trips_are_one() -> None:
    lines = {k: "\n".join(tree_lines(plan_data(GRAPH, by(k), C)["groups"])) for k in (1, 3, 6)}
    assert "6 iterations, each:" in lines[1] and "unrolled" not in lines[1]
    assert "2 iterations, unrolled by 3, each:" in lines[3]
    assert "1 iteration, unrolled by 6, each:" in lines[6]


def test_a_picture_draws_several_trips_as_one_box() -> None:
    one, three = (graph_svg(GRAPH, by(k).plan, "") for k in (1, 3))
    assert "iteration counter" in one and "unrolled" not in one
    assert "unrolled by 3" in three and "iteration counter" not in three
    assert graph_svg(read_text(text(GRAPH)), by(3).plan, "").count("unrolled by 3") == 1


# --- stored candidates ----------------------------------------------------------------------

OLD = (
    '{"bodies":[[{"tile":8}]],"launches":[{}],"plan":[{"body":[{"body":null,"nodes":[2],'
    '"outputs":[[2,0]]}],"nodes":[1],"outputs":[[1,0]]}]}'
)


def test_candidates_from_before_read_and_keep_their_text_and_digest() -> None:
    old = candidate_from_json(OLD)
    assert old.plan.groups[0].unroll == 1
    assert old.to_json() == OLD
    assert old.digest == "6097467dd91d1548eb3c73daf14d06ad"
    assert str(old.plan) == "[{1 -> %1} re-issuing [{2 -> %2}]]"


def test_a_factor_is_stored_and_part_of_what_a_candidate_is() -> None:
    for factor in (2, 3):
        one = by(factor)
        assert candidate_from_json(one.to_json()) == one
        assert f'"unroll":{factor}' in one.to_json()
    group = replace(loop_group(1), unroll=2)
    assert group != loop_group(1) and str(group) != str(loop_group(1))
    old = candidate_from_json(OLD)
    new = replace(old, plan=FusionPlan((replace(old.plan.groups[0], unroll=2),)))
    assert new.digest != old.digest and "re-issuing 2 trips at once by" in str(new.plan)


@pytest.mark.parametrize("unroll", ["0", "-2", '"x"', "null", "2.5", "true"])
def test_a_stored_factor_that_is_none_is_refused(unroll: str) -> None:
    with pytest.raises(PlanError):
        candidate_from_json(
            OLD.replace('"outputs":[[1,0]]', f'"outputs":[[1,0]],"unroll":{unroll}')
        )
