"""Decisions of xla-2026 that follow by hand from its rules and its cost model (of an H100)."""

from __future__ import annotations

import pytest

from autofuse.baselines.priority.planner import xla_2026
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.plan.fusion.legality import check_plan
from tests.support.xla_plans import F32, U32, Planned2026, inputs

PASS = "priority-fusion"
LARGE = (4096, 4096)


def rows(b: GraphBuilder, x: Value) -> Value:
    """The sums of the rows of a matrix."""
    return b.add("reduce_sum", x, axes=(1,))


def corner(b: GraphBuilder, x: Value) -> Value:
    """The first 8 x 8 elements of a matrix."""
    return b.add("slice", x, start=(0, 0), stop=(8, 8), stride=(1, 1))


def total_of(b: GraphBuilder, values: list[Value]) -> Value:
    total = values[0]
    for value in values[1:]:
        total = b.add("add", total, value)
    return total


def test_an_elementwise_chain_is_one_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = Planned2026(b, b.add("neg", b.add("tanh", b.add("sin", x))))
    assert p.groups == [["neg", "sin", "tanh"]]
    assert p.fused("priority", "sin")


def test_recomputing_something_small_is_cheaper_than_a_launch() -> None:
    """4096 tanh of 467 cycles on 32 blocks of 128 threads take 0.1 us, a launch takes 1 us: what
    the list of expensive ops forbade in 2022 is only priced now."""
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    shared = b.add("tanh", x)
    p = Planned2026(b, rows(b, shared), corner(b, shared))
    assert p.groups == [["reduce_sum", "tanh"], ["slice", "tanh"]]


@pytest.mark.parametrize(("op", "fused"), [("tanh", False), ("neg", True)])
def test_recomputing_something_large_must_cost_less_than_reading_it(op: str, fused: bool) -> None:
    """2^24 elements: tanh takes 117 us of arithmetic per copy; writing and twice reading its
    result takes 60 us. Negating takes 0.8 us per copy, hidden behind the reads."""
    b = GraphBuilder()
    (x,) = inputs(b, 1, LARGE)
    shared = b.add(op, x)
    p = Planned2026(b, rows(b, shared), b.add("reduce_max", shared, axes=(0,)))
    assert p.fused("priority", op) == fused
    assert p.refused("cost-model", op) != fused
    assert sum(op in group for group in p.groups) == (2 if fused else 1)


@pytest.mark.parametrize(("op", "fused"), [("tanh", False), ("neg", True)])
def test_a_broadcast_recomputes_its_operand_for_every_row(op: str, fused: bool) -> None:
    """Inside the broadcast the row is computed 4096 times over: 117 us for tanh, 0.8 for neg."""
    b = GraphBuilder()
    x = b.input("x", (4096,), F32)
    p = Planned2026(b, b.add("broadcast", b.add(op, x), shape=LARGE, dims=(1,)))
    assert p.fused("priority", op, "broadcast") == fused
    assert p.refused("cost-model", op, "broadcast") != fused


def test_a_slice_computes_only_what_it_keeps() -> None:
    """Of 2^24 tanh the slice needs 64, so moving them into it saves nearly all of the time."""
    b = GraphBuilder()
    (x,) = inputs(b, 1, LARGE)
    p = Planned2026(b, corner(b, b.add("tanh", x)))
    assert p.groups == [["slice", "tanh"]]


@pytest.mark.parametrize(("count", "groups"), [(93, 1), (94, 1), (95, 2)])
def test_operands_and_outputs_are_capped_at_96(count: int, groups: int) -> None:
    # As in 2022 with 64: the two outputs counted before fusing, and the union of operands.
    b = GraphBuilder()
    p = Planned2026(b, total_of(b, inputs(b, count)))
    assert len(p.groups) == groups
    assert p.refused("budget", "add") == (groups > 1)


@pytest.mark.parametrize(("length", "fused"), [(15, True), (16, False)])
def test_two_reductions_of_16_elements_or_more_stay_apart(length: int, fused: bool) -> None:
    # Columns of so few rows have no kernel of their own, so only this rule is in the way.
    b = GraphBuilder()
    (x,) = inputs(b, 1, (length, length, 8))
    inner = b.add("reduce_max", x, axes=(0,))
    p = Planned2026(b, b.add("reduce_max", b.add("neg", inner), axes=(0,)))
    assert len(p.groups) == (1 if fused else 2)
    rules = [d.rule for d in p.result.decisions if not d.fused]
    assert ("two-reductions" in rules) != fused


def test_a_reduction_kernel_may_end_in_elementwise_ops() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    p = Planned2026(b, b.add("neg", rows(b, b.add("abs", x))))
    assert p.groups == [["abs", "neg", "reduce_sum"]]


def test_a_reduction_kernel_does_not_become_a_loop() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    spread = b.add("broadcast", rows(b, x), shape=(64, 64), dims=(0,))
    p = Planned2026(b, b.add("neg", spread))
    assert p.groups == [["broadcast", "neg"], ["reduce_sum"]]
    assert p.refused("loop-fallback", "reduce_sum")


def test_a_result_of_the_graph_is_never_moved() -> None:
    """The multi-output pass keeps its output instead: one launch less for no extra bytes."""
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    shared = b.add("tanh", x)
    p = Planned2026(b, shared, b.add("neg", b.add("sin", shared)))
    assert p.refused("is-output", "tanh", passes=PASS)
    assert p.fused("producer-consumer", "tanh", passes="multi-output-producer")
    assert p.groups == [["neg", "sin", "tanh"]]


def test_a_producer_is_fused_into_all_its_users_or_none() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (64, 64))
    shared = b.add("neg", x)
    dims = {"lhs_contract": (1,), "rhs_contract": (0,), "lhs_batch": (), "rhs_batch": ()}
    p = Planned2026(b, b.add("dot_general", shared, y, **dims), corner(b, shared))
    assert p.refused("library-call", "neg", "dot_general")
    assert p.refused("all-or-none", "neg", "slice")
    assert p.groups == [["dot_general"], ["neg"], ["slice"]]


def test_a_bitcast_goes_first_and_for_free() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (8, 8))
    flat = b.add("reshape", b.add("tanh", x), shape=(64,))
    p = Planned2026(b, b.add("sin", flat))
    assert p.groups == [["reshape", "sin", "tanh"]]
    assert p.fused("bitcast", "reshape", "sin")


def test_a_concat_with_several_users_fuses() -> None:
    """What the paper had to patch XLA for: along the major axis a concat is six cycles."""
    b = GraphBuilder()
    x, y = inputs(b, 2, (1, 64))
    state = b.add("concat", x, y, axis=0)
    parts = [b.add("slice", state, start=(k, 0), stop=(k + 1, 64), stride=(1, 1)) for k in (0, 1)]
    p = Planned2026(b, *(b.add("sin", part) for part in parts))
    assert all("concat" in group for group in p.groups)
    assert p.fused("priority", "concat")


@pytest.mark.parametrize(("width", "fused"), [(1024, True), (1000, False)])
def test_a_concat_that_splits_warps_is_dear(width: int, fused: bool) -> None:
    """Along another axis than the first an element costs 400 cycles, not 6, unless every operand
    is a multiple of 32: 98 us per copy against 60 us of writing and reading the result."""
    b = GraphBuilder()
    x, y = inputs(b, 2, (8192, width))
    both = b.add("concat", x, y, axis=1)
    p = Planned2026(b, rows(b, both), b.add("reduce_max", both, axes=(0,)))
    assert p.fused("priority", "concat") == fused
    assert p.refused("cost-model", "concat") != fused


def test_random_numbers_are_ops_like_others() -> None:
    b = GraphBuilder()
    key, stream = b.input("key", (2,), U32), b.input("stream", (), U32)
    bits = b.add("random_bits", key, stream, shape=(64,), generator="philox")
    p = Planned2026(b, b.add("not", bits))
    assert p.groups == [["not", "random_bits"]]


def test_siblings_need_no_profit() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = Planned2026(b, b.add("neg", b.add("tanh", x)), b.add("abs", b.add("sin", x)))
    assert p.groups == [["abs", "neg", "sin", "tanh"]]
    assert any(d.rule == "siblings" and d.fused for d in p.result.decisions)


def test_a_reduction_joins_a_loop_over_its_input() -> None:
    """Refused in 2022 as fusions of different kinds."""
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    p = Planned2026(b, rows(b, b.add("abs", x)), b.add("neg", b.add("sin", x)))
    assert p.groups == [["abs", "neg", "reduce_sum", "sin"]]


@pytest.mark.parametrize(("half", "groups"), [(64, 1), (256, 2)])
def test_siblings_of_disjoint_slices_of_a_large_array_stay_apart(half: int, groups: int) -> None:
    # Below 1024 bytes (256 elements) sharing is allowed although nothing is shared.
    b = GraphBuilder()
    x = b.input("x", (2 * half,), F32)
    cuts = [b.add("slice", x, start=(k * half,), stop=((k + 1) * half,), stride=(1,))
            for k in (0, 1)]  # fmt: skip
    p = Planned2026(b, b.add("sin", cuts[0]), b.add("cos", cuts[1]))
    assert len(p.groups) == groups
    assert any(d.rule == "disjoint-slices" for d in p.result.decisions) == (groups > 1)


def test_a_transposition_and_a_reduction_do_not_share_a_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    turned = b.add("transpose", b.add("neg", x), perm=(1, 0))
    p = Planned2026(b, turned, rows(b, b.add("abs", x)))
    assert len(p.groups) == 2
    refused = [d.rule for d in p.result.decisions if d.pass_name == "multi-output-siblings"]
    assert refused == ["shapes"]


def test_softmax_is_three_kernels() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 128))
    top = b.add("reduce_max", x, axes=(1,))
    shifted = b.add("sub", x, b.add("broadcast", top, shape=(64, 128), dims=(0,)))
    raised = b.add("exp", shifted)
    spread = b.add("broadcast", rows(b, raised), shape=(64, 128), dims=(0,))
    p = Planned2026(b, b.add("div", raised, spread))
    assert p.groups == [
        ["broadcast", "broadcast", "div", "exp", "sub"],
        ["broadcast", "exp", "reduce_sum", "sub"],
        ["reduce_max"],
    ]


def test_plans_are_made_of_kernels_that_can_be_built() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (15, 15, 8))
    inner = b.add("reduce_max", x, axes=(0,))
    p = Planned2026(b, b.add("reduce_max", b.add("neg", inner), axes=(0,)))
    result = xla_2026(p.graph)
    check_plan(p.graph, result.plan)
    assert result.decisions[: len(p.result.decisions)] == p.result.decisions
