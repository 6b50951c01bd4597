"""Why groups are refused, rule by rule; what makes a plan no plan; forms of known kernels."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.fusion.groups import group_of, is_source, needed_outputs, ordered_plan
from autofuse.plan.fusion.legality import (
    MAX_BUFFERS,
    MAX_NODES,
    GroupVerdict,
    Refusal,
    check_group,
    check_plan,
)
from autofuse.plan.schedules.forms import Demand, Form
from autofuse.plan.types import FusionGroup, FusionPlan, PlanError
from autofuse.zoo import zoo_graph


def judge(graph: Graph, *nodes: int) -> GroupVerdict:
    """The verdict on these nodes (all that compute something, when none are named)."""
    chosen = nodes or tuple(n for n in range(len(graph.nodes)) if not is_source(graph, n))
    return check_group(graph, chosen, needed_outputs(graph, chosen))


def forms(graph: Graph) -> tuple[Form, ...]:
    verdict = judge(graph)
    assert not isinstance(verdict, Refusal), verdict
    return verdict


def built(make: Callable[[GraphBuilder], Value | list[Value]]) -> Graph:
    b = GraphBuilder()
    made = make(b)
    return b.build(made if isinstance(made, list) else [made])


def chain(b: GraphBuilder) -> Value:
    x = b.input("x", (8,), "f32")
    return b.add("sin", b.add("cos", b.add("tanh", x)))


def wide(b: GraphBuilder) -> Value:
    parts = [b.input(f"x{k}", (4,), "f32") for k in range(MAX_BUFFERS + 1)]
    return b.add("concat", *parts, axis=0)


def long(b: GraphBuilder) -> Value:
    x = b.input("x", (4,), "f32")
    for _ in range(MAX_NODES + 1):
        x = b.add("sin", x)
    return x


ROLES = {"lhs_contract": [1], "rhs_contract": [0], "lhs_batch": [], "rhs_batch": []}


def product(b: GraphBuilder) -> Value:
    """Whole numbers have no tiles."""
    x, y = b.input("x", (8, 8), "i64"), b.input("y", (8, 8), "i64")
    return b.add("neg", b.add("dot_general", x, y, **ROLES))


def summed_product(b: GraphBuilder) -> Value:
    """A sum of everything leaves neither rows nor columns to a block."""
    x, y = b.input("x", (8, 64), "f32"), b.input("y", (64, 8), "f32")
    return b.add("reduce_sum", b.add("dot_general", x, y, **ROLES), axes=(0, 1))


def no_domain(b: GraphBuilder) -> list[Value]:
    """Two outputs of one value whose axes do not match in order."""
    x = b.add("sin", b.input("x", (5, 7), "f32"))
    return [b.add("cos", x), b.add("reshape", b.add("tanh", x), shape=(7, 5))]


def crossed_axes(b: GraphBuilder) -> Value:
    """Row sums, then column maxima: together one item would be left of 512."""
    x = b.input("x", (512, 512), "f32")
    total = b.add("reduce_sum", x, axes=(1,))
    spread = b.add("broadcast", total, shape=(512, 512), dims=(0,))
    return b.add("reduce_max", b.add("sub", x, spread), axes=(0,))


def scratch(b: GraphBuilder) -> Value:
    """A column sum that every row of one item needs in full."""
    x = b.input("x", (3, 70_000), "f32")
    total = b.add("reduce_sum", x, axes=(0,))
    return b.add("reduce_max", total, axes=(0,))


def twice(b: GraphBuilder) -> Value:
    """A sum that one element needs at its own place and at the mirrored one."""
    x = b.input("x", (40, 40, 50), "f32")
    total = b.add("reduce_sum", x, axes=(2,))
    return b.add("add", total, b.add("transpose", total, perm=(1, 0)))


Step = Callable[[GraphBuilder, Value], Value]


def loop(b: GraphBuilder, shape: tuple[int, ...], step: Step, stack: bool = False) -> list[Value]:
    inner = GraphBuilder()
    inner.input("t", (), "i32")
    state = inner.input("s", shape, "f32")
    new = step(inner, state)
    body = inner.build([new, inner.add("cos", new)] if stack else [new])
    x = b.input("x", shape, "f32")
    return list(b.add_multi("loop", x, body=body, trip=3, carries=1))


def sorted_state(b: GraphBuilder, s: Value) -> Value:
    """Every element of the new state needs all of the old one."""
    total = b.add("reduce_sum", s, axes=(0,))
    return b.add("sub", s, b.add("broadcast", total, shape=(100,), dims=()))


def running(b: GraphBuilder, s: Value) -> Value:
    return b.add("cumsum", s, axis=1)


def sine(b: GraphBuilder, s: Value) -> Value:
    return b.add("sin", s)


def stack_reader(b: GraphBuilder) -> list[Value]:
    state, stack = loop(b, (4, 8), sine, stack=True)
    return [state, b.add("abs", stack)]


def shifting(b: GraphBuilder) -> Value:
    """Each of these sums of padded shifts multiplies the places where the one before is needed."""
    x, zero = b.input("x", (64,), "f32"), b.constant(0.0, DType.F32)
    for _ in range(12):
        later = b.add("slice", x, start=(1,), stop=(64,), stride=(1,))
        earlier = b.add("slice", x, start=(0,), stop=(63,), stride=(1,))
        ahead = b.add("pad", later, zero, low=(0,), high=(1,))
        x = b.add("add", ahead, b.add("pad", earlier, zero, low=(1,), high=(0,)))
    return x


REFUSED: dict[str, Graph] = {
    "buffers": built(wide),
    "size": built(long),
    "library": built(product),
    "tile": built(summed_product),
    "domain": built(no_domain),
    "parallelism": built(crossed_axes),
    "scratch": built(scratch),
    "anchor": built(twice),
    "loop-state": built(lambda b: loop(b, (100,), sorted_state)),
    "loop-body": built(lambda b: loop(b, (4, 8), running)),
    "loop-stack": built(stack_reader),
    "recompute": built(shifting),
}


@pytest.mark.parametrize("rule", REFUSED)
def test_refusal_names_its_rule(rule: str) -> None:
    verdict = judge(REFUSED[rule])
    assert isinstance(verdict, Refusal)
    assert verdict.rule == rule
    assert str(verdict).startswith(f"[{rule}] ")


def test_a_hole_in_a_chain_is_not_convex() -> None:
    verdict = judge(built(chain), 1, 3)
    assert isinstance(verdict, Refusal) and verdict.rule == "convex"


def test_empty_groups_and_sources_are_refused() -> None:
    graph = built(chain)
    empty = check_group(graph, (), ())
    source = check_group(graph, (0, 1), (Value(1),))
    assert isinstance(empty, Refusal) and empty.rule == "empty"
    assert isinstance(source, Refusal) and source.rule == "source"


def test_form_of_softmax_is_one_row_each() -> None:
    (form,) = forms(canonical(zoo_graph("softmax", "small")))
    assert (form.kind, len(form.parallel)) == ("row", 1)


def test_form_of_a_column_sum_is_one_column_each() -> None:
    (form,) = forms(built(lambda b: b.add("reduce_sum", b.input("x", (300, 70), "f32"), axes=(0,))))
    assert (form.kind, form.parallel) == ("item", (70,))


def test_form_of_cartpole_is_one_environment_each() -> None:
    (form,) = forms(canonical(zoo_graph("cartpole_naive", "small")))
    assert form.kind == "item"
    assert len(form.parallel) == 1 and form.carries


def test_form_of_a_scan_leaves_its_axis_to_the_item() -> None:
    (form,) = forms(built(lambda b: b.add("cumsum", b.input("x", (6, 100), "f32"), axis=1)))
    assert (form.kind, form.parallel) == ("row", (6,))
    (form,) = forms(built(lambda b: b.add("cumsum", b.input("x", (6, 8), "f32"), axis=1)))
    assert (form.kind, form.parallel) == ("item", (6,))


def test_a_loop_body_is_looked_through_once_for_all_groups_around_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Bodies may have thousands of nodes, and hundreds of groups hold the loop."""
    runs: list[int] = []
    run = Demand.run

    def counted(self: Demand) -> Demand:
        runs.append(len(self.graph.nodes))
        return run(self)

    monkeypatch.setattr(Demand, "run", counted)

    def make(b: GraphBuilder) -> Value:
        found = loop(b, (61, 67), sine)[0]
        for op in ("cos", "tanh", "exp", "neg"):
            found = b.add(op, found)
        return found

    graph = canonical(built(make))
    (body,) = (dict(n.attrs)["body"] for n in graph.nodes if n.op == "loop")
    first = next(n for n, node in enumerate(graph.nodes) if node.op == "loop")
    seen = []
    for last in range(first, len(graph.nodes)):
        assert not isinstance(judge(graph, *range(first, last + 1)), Refusal)
        seen.append(runs.count(len(body.nodes)))
    assert seen[0] > 0 and set(seen) == {seen[0]}


def test_trips_of_a_loop_are_never_parallel() -> None:
    graph = built(lambda b: loop(b, (1, 1), sine, stack=True))
    (form,) = forms(graph)
    assert dict(form.tags)[Value(1, 1)][0] == frozenset()


def test_what_loops_leave_needs_no_axes_in_common() -> None:
    """A matrix, and a number of each iteration: one item does all of it."""

    def program(b: GraphBuilder) -> list[Value]:
        inner = GraphBuilder()
        inner.input("t", (), "i32")
        s = inner.input("s", (3, 3), "f32")
        axes = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
        corner = inner.add("slice", s, start=(0, 0), stop=(1, 1), stride=(1, 1))
        rows = inner.add("reshape", corner, shape=())
        body = inner.build([inner.add("dot_general", s, s, **axes), rows])
        x = b.input("x", (3, 3), "f32")
        return list(b.add_multi("loop", x, body=body, trip=200, carries=1))

    graph = built(program)
    (form,) = forms(graph)
    assert (form.items, len(form.outputs)) == (1, 2)
    assert dict(form.tags)[Value(1, 1)] == (frozenset(),)


def test_unrelated_parts_are_one_form_each() -> None:
    sizes = ((1000,), (40, 50), (7,))
    graph = built(lambda b: [b.add("sin", b.input(f"x{k}", s, "f32")) for k, s in enumerate(sizes)])
    assert sorted(form.items for form in forms(graph)) == [7, 1000, 2000]


def test_equal_parts_share_a_form() -> None:
    graph = built(lambda b: [b.add("sin", b.input(f"x{k}", (50,), "f32")) for k in range(3)])
    (form,) = forms(graph)
    assert (form.items, len(form.outputs)) == (50, 3)


def plan_of(graph: Graph, *parts: tuple[int, ...]) -> FusionPlan:
    return FusionPlan(tuple(group_of(graph, part) for part in parts))


def test_plans_in_order_pass() -> None:
    graph = built(chain)
    check_plan(graph, plan_of(graph, (1,), (2, 3)))
    check_plan(graph, ordered_plan(graph, plan_of(graph, (3,), (2,), (1,)).groups))


def test_plan_errors_say_what_is_wrong() -> None:
    graph = built(chain)
    wrong = {
        "before any group wrote it": plan_of(graph, (2, 3), (1,)),
        "no group writes graph output": plan_of(graph, (1,), (2,)),
        "names nodes that the graph does not have": FusionPlan((FusionGroup((9,), (Value(9),)),)),
        "which it does not compute": FusionPlan((FusionGroup((1,), (Value(2),)),)),
        "has a body, but is not one loop": FusionPlan(
            (FusionGroup((1, 2, 3), (Value(3),), FusionPlan(())),)
        ),
        r"\[convex\]": FusionPlan((FusionGroup((1,), (Value(1),)), FusionGroup((2,), (Value(2),)),
                                   FusionGroup((1, 3), (Value(1), Value(3))))),
    }  # fmt: skip
    for message, plan in wrong.items():
        with pytest.raises(PlanError, match=message):
            check_plan(graph, plan)


def test_groups_in_a_cycle_have_no_order() -> None:
    def crossed(b: GraphBuilder) -> list[Value]:
        x, y = b.input("x", (8,), "f32"), b.input("y", (8,), "f32")
        p, q = b.add("sin", x), b.add("cos", y)
        return [b.add("add", p, q), b.add("sub", q, p)]

    graph = built(crossed)
    with pytest.raises(PlanError, match="no earlier group can write"):
        ordered_plan(graph, plan_of(graph, (2, 5), (3, 4)).groups)
