"""At how many indices a kernel needs its values: what is counted, and what lowering then does."""

from __future__ import annotations

import pytest

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.surgery.unroll import unrolled_body
from autofuse.graph.types import Graph, Value
from autofuse.kernel.ir.types import statements
from autofuse.kernel.lower import extract, lower
from autofuse.plan.fusion.groups import host_loop, is_source
from autofuse.plan.fusion.legality import Refusal, check_group
from autofuse.plan.schedules import multiplicity
from autofuse.plan.schedules.forms import single_form
from autofuse.plan.schedules.multiplicity import (
    MOST_REPEATED,
    Multiplicity,
    index_counts,
    may_repeat,
)
from autofuse.plan.types import FusionGroup, LaunchConfig
from search_spaces import FusionSpace
from tests.support.batching import Case, failures
from tests.support.stencils import STEPS, chain, looped, rolled, shrinking
from tests.support.unrolled_plans import candidate, fused

SHAPES = {1: (70,), 2: (21, 20), 3: (18, 17, 20)}
NO_LIMIT = 1 << 20


def computed(graph: Graph) -> tuple[int, ...]:
    return tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))


def counts(graph: Graph, limit: int = NO_LIMIT) -> Multiplicity:
    """The counts of a graph as one kernel of one segment."""
    form = single_form(graph, computed(graph), graph.outputs)
    assert form is not None
    return index_counts(graph, form, limit)


def of_op(graph: Graph, found: Multiplicity, op: str) -> list[int]:
    """The counts of all nodes of one op, from the output back."""
    return [found.counts[Value(n)] for n in reversed(computed(graph)) if graph[n].op == op]


@pytest.mark.parametrize(
    ("rank", "expected"), [(1, [1, 3, 5, 7]), (2, [1, 5, 13, 25]), (3, [1, 7, 25, 63])]
)
def test_offsets_that_add_up_are_counted_once(rank: int, expected: list[int]) -> None:
    graph = chain(shrinking, SHAPES[rank], 4)
    assert of_op(graph, counts(graph), "tanh") == expected


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize(("rank", "depth"), [(1, 4), (2, 3), (3, 2)])
def test_the_count_is_what_lowering_computes(name: str, rank: int, depth: int) -> None:
    graph = chain(STEPS[name], SHAPES[rank], depth)
    group, _ = extract(graph, FusionGroup(computed(graph), graph.outputs))
    emitted = str(lower(group, LaunchConfig())).count("= tanh(")
    assert emitted == sum(of_op(graph, counts(graph), "tanh")) > depth


def test_counting_stops_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    visits: list[int] = []
    visit = multiplicity._Probe.visit
    monkeypatch.setattr(
        multiplicity._Probe, "visit", lambda p, index: (visits.append(p.node), visit(p, index))[1]
    )
    found = counts(chain(STEPS["padded"], SHAPES[3], 16), MOST_REPEATED)
    assert found.repeated > MOST_REPEATED
    assert sum(found.counts.values()) < 16 * MOST_REPEATED
    assert len(visits) < 16 * MOST_REPEATED


def test_equal_steps_are_followed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = looped(rolled, SHAPES[1], 8)
    body = unrolled_body(graph.call(computed(graph)[0])["body"], 1, 8)
    first, again = counts(body, 200), []
    monkeypatch.setattr(multiplicity._Probe, "visit", lambda p, index: again.append(p.node))
    assert counts(body, 200) == first and not again


def test_what_moves_nothing_is_not_counted() -> None:
    b = GraphBuilder()
    x = b.input("x", (8, 8), "f32")
    for _ in range(40):
        x = b.add("add", x, b.add("transpose", x, perm=(1, 0)))
    graph = b.build([x])
    assert not may_repeat(graph, computed(graph))
    # Two places each, however long the chain is.
    assert counts(graph).worst == min(v for v, n in counts(graph).counts.items() if n == 2)
    moved = chain(rolled, SHAPES[2], 4)
    assert may_repeat(moved, computed(moved))


def test_few_elements_in_registers_are_no_repetition() -> None:
    """Steps on 16 elements that one item has to itself are 16 computations, and no more."""
    b = GraphBuilder()
    x = b.input("x", (100, 16), "f32")
    for _ in range(12):
        ahead = b.add("slice", x, start=(0, 1), stop=(100, 16), stride=(1, 1))
        last = b.add("slice", x, start=(0, 0), stop=(100, 1), stride=(1, 1))
        x = b.add("tanh", b.add("add", x, b.add("concat", ahead, last, axis=1)))
    graph = b.build([x])
    found = counts(graph)
    assert max(found.counts.values()) == 16 and found.repeated == 0
    assert not isinstance(check_group(graph, computed(graph), graph.outputs), Refusal)


def test_data_dependent_indices_are_told_apart() -> None:
    b = GraphBuilder()
    x = b.add("sin", b.input("x", (50,), "f32"))
    places = [b.input(f"i{k}", (50,), "i32") for k in range(2)]
    parts = [b.add("gather", x, p, axis=0) for p in (*places, places[0])]
    graph = b.build([b.add("add", b.add("add", parts[0], parts[1]), parts[2])])
    assert of_op(graph, counts(graph), "sin") == [2]


def test_a_fold_inside_an_item_reads_at_its_own_steps() -> None:
    b = GraphBuilder()
    x = b.input("x", (40, 5, 100), "f32")
    column = b.add("reduce_sum", b.add("exp", x), axes=(1,))
    graph = b.build([column])
    assert of_op(graph, counts(graph), "exp") == [5]


@pytest.mark.parametrize("name", ["padded", "rolled"])
def test_too_much_repetition_is_refused_by_name(name: str) -> None:
    graph = chain(STEPS[name], SHAPES[1], 9)  # a row has no rows around it to keep
    verdict = check_group(graph, computed(graph), graph.outputs)
    assert isinstance(verdict, Refusal) and verdict.rule == "recompute"
    assert "indices or more per item" in verdict.reason


def test_a_loop_in_one_kernel_is_counted_by_one_trip() -> None:
    """Every element of a state of 16 in registers, computed once an iteration."""
    graph = looped(rolled, (16,), 24)
    verdict = check_group(graph, computed(graph), graph.outputs)
    assert not isinstance(verdict, Refusal)
    (form,) = verdict
    assert index_counts(graph, form).repeated == 0


def every_group(graph: Graph, groups: tuple[FusionGroup, ...]) -> list[tuple[Graph, FusionGroup]]:
    found: list[tuple[Graph, FusionGroup]] = []
    for group in groups:
        if group.body is None:
            found.append((graph, group))
        else:
            found += every_group(host_loop(graph, group)[0], group.body.groups)
    return found


@pytest.mark.parametrize("name", ["padded", "rolled"])
def test_unrolled_loops_of_stencils_are_kernels_of_bounded_size(name: str) -> None:
    """24 steps on 40^3 once took minutes and gigabytes: 7^k places for k iterations in one
    kernel."""
    graph = looped(STEPS[name], (40, 40, 40), 24)
    space = FusionSpace(graph)
    (loop,) = space.loops
    for factor in space.factors(loop):
        body = space.unrolled(loop, factor).graph
        for inside, group in every_group(body, fused(body).groups):
            kernel = lower(extract(inside, group)[0], LaunchConfig())
            assert sum(1 for _ in statements(kernel.body)) < 2 * MOST_REPEATED


def test_chains_of_stencils_have_right_plans() -> None:
    cases = []
    for rank, shape in SHAPES.items():
        for depth in (1, 2, 3, 5, 8):
            name = list(STEPS)[(rank + depth) % 3]
            graph = chain(STEPS[name], shape, depth)
            cases.append(Case(graph, candidate(graph, fused(graph)), f"{name} {rank}-D x {depth}"))
    assert not failures(cases, level="-O0")
