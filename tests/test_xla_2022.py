"""Decisions of xla-2022 on graphs small enough to follow the rules by hand: one kernel or two."""

from __future__ import annotations

import pytest

from autofuse.baselines.xla.shapes import reduction_kind
from autofuse.graph.builder import GraphBuilder
from autofuse.ops.dtypes import DType
from tests.support.xla_plans import F32, F64, Planned, inputs


def test_an_elementwise_chain_is_one_group() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = Planned(b, b.add("neg", b.add("tanh", b.add("sin", x))))
    assert p.groups == [["neg", "sin", "tanh"]]


def test_a_cheap_producer_is_duplicated_by_the_second_pass() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    shared = b.add("neg", x)
    p = Planned(
        b,
        b.add("reduce_sum", shared, axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )
    assert p.groups == [["neg", "reduce_sum"], ["neg", "slice"]]
    assert p.refused("duplication", "neg", passes="instruction-fusion")
    assert p.fused("producer-consumer", "neg", "slice", "instruction-fusion-duplicating")


def test_an_expensive_producer_is_not_duplicated() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    shared = b.add("tanh", x)
    p = Planned(
        b,
        b.add("reduce_sum", shared, axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )
    assert p.refused("expensive-duplication", "tanh", "slice")
    # The multi-output pass pulls it into the reduction, keeping its output.
    assert p.groups == [["reduce_sum", "tanh"], ["slice"]]


@pytest.mark.parametrize(("dtype", "expensive"), [(F32, False), (F64, True)])
def test_exp_is_cheap_in_f32_only(dtype: DType, expensive: bool) -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 64), dtype)
    shared = b.add("exp", x)
    p = Planned(
        b,
        b.add("reduce_sum", shared, axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )
    assert p.refused("expensive-duplication", "exp") == expensive


def test_an_expensive_producer_is_not_fused_into_a_broadcast() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = Planned(b, b.add("broadcast", b.add("tanh", x), shape=(8, 64), dims=(1,)))
    assert p.groups == [["broadcast"], ["tanh"]]
    assert p.refused("expensive-reuse", "tanh", "broadcast")


def concat_read_by(count: int) -> Planned:
    """A concat of two inputs whose users each add a slice of it to something."""
    b = GraphBuilder()
    x, y = inputs(b, 2, (1, 64))
    state = b.add("concat", x, y, axis=0)
    outs = []
    for k in range(count):
        part = b.add("slice", state, start=(k % 2, 0), stop=(k % 2 + 1, 64), stride=(1, 1))
        outs.append(b.add("sin", b.add("mul", part, b.add("cos", part))))
    return Planned(b, *outs)


def test_a_concat_with_several_users_is_refused_by_the_duplication_guard() -> None:
    p = concat_read_by(2)
    assert p.refused("code-duplication", "concat", passes="instruction-fusion-duplicating")
    why = [d.reason for d in p.decisions("concat") if d.rule == "code-duplication"]
    assert any("concat has 2 users" in reason for reason in why)
    assert ["concat"] in p.groups


def test_a_concat_with_one_user_fuses() -> None:
    p = concat_read_by(1)
    assert p.groups == [["concat", "cos", "mul", "sin", "slice"]]


def test_a_concat_sliced_twice_in_one_kernel_is_refused() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (1, 64))
    state = b.add("concat", x, y, axis=0)
    a, c = (b.add("slice", state, start=(k, 0), stop=(k + 1, 64), stride=(1, 1)) for k in range(2))
    p = Planned(b, b.add("mul", a, c))
    assert p.groups == [["concat"], ["mul", "slice", "slice"]]
    reasons = [d.reason for d in p.decisions("concat") if d.rule == "code-duplication"]
    assert any(r.startswith("2 index expressions") for r in reasons)


@pytest.mark.parametrize(("slices", "fused"), [(15, True), (16, False)])
def test_a_producer_below_more_than_15_indices_is_refused(slices: int, fused: bool) -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (32, 4))
    shared = b.add("neg", x)
    parts = [
        b.add("slice", shared, start=(k, 0), stop=(k + 1, 4), stride=(1, 1)) for k in range(slices)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = b.add("add", total, part)
    p = Planned(b, total)
    assert p.fused("producer-consumer", "neg") == fused
    assert p.refused("code-duplication", "neg") != fused
    assert len(p.groups) == (1 if fused else 2)


@pytest.mark.parametrize(("count", "groups"), [(61, 1), (62, 1), (63, 2)])
def test_operands_and_outputs_are_capped_at_64(count: int, groups: int) -> None:
    # The last producer to join is refused when the union of operands, plus the two outputs
    # counted before fusing, passes 64.
    b = GraphBuilder()
    xs = inputs(b, count)
    total = xs[0]
    for x in xs[1:]:
        total = b.add("add", total, x)
    p = Planned(b, total)
    assert len(p.groups) == groups
    assert p.refused("budget", "add") == (groups > 1)


def merge_case(read: int, producers: str) -> Planned:
    """A fusion reading `read` inputs, whose result a tanh kernel and a library call read twice."""
    b = GraphBuilder()
    xs = inputs(b, read, (64, 64))
    total = xs[0]
    for x in xs[1:]:
        total = b.add("add", total, x)
    shared = b.add(producers, total)
    return Planned(
        b,
        b.add("reduce_sum", b.add("neg", shared), axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )


@pytest.mark.parametrize(("read", "merged"), [(3, True), (4, False)])
def test_the_merger_moves_at_most_a_tenth_more_bytes(read: int, merged: bool) -> None:
    # Two users: before, read + 3 writes; after, 2 reads. 6/6 = 1.00 for three, 8/7 = 1.14 for four.
    p = merge_case(read, "abs")
    assert p.fused("merge", "abs", passes="fusion-merger") == merged
    assert p.refused("byte-ratio", "abs", passes="fusion-merger") != merged
    if merged:
        assert len(p.groups) == 2
        assert all("abs" in group for group in p.groups)


def expensive_case(rows: int) -> Planned:
    """tanh of a broadcast row (reads 1/rows of what it writes) with two users."""
    b = GraphBuilder()
    x = b.input("x", (64,), F32)
    spread = b.add("broadcast", x, shape=(rows, 64), dims=(1,))
    shared = b.add("tanh", spread)
    return Planned(
        b,
        b.add("reduce_sum", b.add("neg", shared), axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(1, 8), stride=(1, 1)),
    )


def test_the_merger_duplicates_expensive_ops_when_that_saves_most_bytes() -> None:
    # 64 rows: (2 * 1) / (1 + 3 * 64) = 0.01 < 0.3, and 49 KB > 1024 B.
    p = expensive_case(64)
    assert p.fused("merge", "tanh", passes="fusion-merger")


def test_the_merger_does_not_duplicate_expensive_ops_for_little() -> None:
    # One input as large as the output: 2 / 4 = 0.5 is not below 0.3.
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    shared = b.add("tanh", b.add("neg", x))
    p = Planned(
        b,
        b.add("reduce_sum", b.add("abs", shared), axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )
    assert p.refused("expensive", "tanh", passes="fusion-merger")


def test_siblings_of_one_shape_become_one_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = Planned(b, b.add("neg", b.add("tanh", x)), b.add("abs", b.add("sin", x)))
    assert p.groups == [["abs", "neg", "sin", "tanh"]]
    assert any(d.rule == "siblings" and d.fused for d in p.result.decisions)
    assert len(p.result.plan.groups[0].outputs) == 2


def test_siblings_of_other_shapes_stay_apart() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    part = b.add("slice", x, start=(0,), stop=(8,), stride=(1,))
    p = Planned(b, b.add("neg", b.add("tanh", x)), b.add("abs", b.add("sin", part)))
    assert len(p.groups) == 2
    refusals = [d for d in p.result.decisions if d.pass_name == "multi-output-siblings"]
    assert [d.rule for d in refusals] == ["shapes"]


def test_a_producer_that_is_an_output_joins_its_consumer() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    shared = b.add("tanh", x)
    p = Planned(b, shared, b.add("neg", b.add("sin", shared)))
    assert p.groups == [["neg", "sin", "tanh"]]
    assert p.fused("producer-consumer", "tanh", passes="multi-output-producer")


@pytest.mark.parametrize(
    ("shape", "axes", "kind"),
    [
        ((64, 32), (1,), "row"),
        ((64, 16), (1,), "row"),
        ((64, 24), (1,), ""),
        ((8, 64, 64), (0, 2), "row"),
        ((16, 64), (0,), ""),
        ((32, 64), (0,), "column"),
        ((63, 16), (0,), ""),
        ((64, 32), (0,), "column"),
        ((64, 8), (0,), "column"),
        ((64, 7), (0,), ""),
        ((128, 8), (0,), "column"),
        ((128, 2), (0,), ""),
        ((256, 2), (0,), "column"),
        ((8, 64, 16, 4), (0, 2), ""),
        ((1, 64, 32), (0, 2), "row"),
        ((40,), (0,), "row"),
    ],
)
def test_which_reductions_get_a_kernel_of_their_own(
    shape: tuple[int, ...], axes: tuple[int, ...], kind: str
) -> None:
    assert reduction_kind(shape, axes) == kind


def test_a_small_column_reduction_fuses_like_an_elementwise_op() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (16, 64))
    p = Planned(b, b.add("neg", b.add("reduce_sum", b.add("abs", x), axes=(0,))))
    assert p.groups == [["abs", "neg", "reduce_sum"]]


def test_a_fast_reduction_ends_its_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    p = Planned(b, b.add("neg", b.add("reduce_sum", b.add("abs", x), axes=(0,))))
    assert p.groups == [["abs", "reduce_sum"], ["neg"]]
    assert p.refused("not-loop-fusible", "reduce_sum", "neg")


def test_a_loop_does_not_go_inside_a_loop() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (5, 5, 5))
    inner = b.add("reduce_max", x, axes=(0,))
    p = Planned(b, b.add("reduce_max", b.add("neg", inner), axes=(0,)))
    assert len(p.groups) == 2
    assert any(d.rule == "nested-loop" and not d.fused for d in p.result.decisions)


def test_a_reduction_does_not_read_through_a_transposition() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 32))
    p = Planned(b, b.add("reduce_sum", b.add("transpose", x, perm=(1, 0)), axes=(1,)))
    assert p.groups == [["reduce_sum"], ["transpose"]]
    assert p.refused("reduction-transpose", "transpose", "reduce_sum")


@pytest.mark.parametrize(("constant", "expensive"), [(True, False), (False, True)])
def test_integer_quotients_by_a_constant_are_cheap(constant: bool, expensive: bool) -> None:
    b = GraphBuilder()
    x = b.input("x", (64, 64), DType.I32, low=1, high=8)
    shared = b.add("div", x, b.constant(7, DType.I32, (64, 64)) if constant else x)
    p = Planned(
        b,
        b.add("reduce_max", shared, axes=(1,)),
        b.add("slice", shared, start=(0, 0), stop=(8, 8), stride=(1, 1)),
    )
    assert p.refused("expensive-duplication", "div", "slice") == expensive


@pytest.mark.parametrize(("padded", "reused"), [(True, False), (False, True)])
def test_padding_is_read_repeatedly_and_what_is_padded_is_not(padded: bool, reused: bool) -> None:
    b = GraphBuilder()
    x, fill = b.input("x", (64,), F32), b.input("fill", (), F32)
    if padded:
        x = b.add("tanh", x)
    else:
        fill = b.add("tanh", fill)
    p = Planned(b, b.add("pad", x, fill, low=(4,), high=(4,)))
    assert p.refused("expensive-reuse", "tanh", "pad") == reused


@pytest.mark.parametrize(("dtype", "together"), [(F32, 3), (F64, 2)])
def test_column_reductions_share_40000_bytes_of_shared_memory(dtype: DType, together: int) -> None:
    # 2 * 32 * 33 elements each: 8448 bytes in f32, 16896 in f64.
    b = GraphBuilder()
    x = b.input("x", (64, 64), dtype)
    sums = [b.add("reduce_sum", b.add(op, x), axes=(0,)) for op in ("abs", "neg", "floor")]
    p = Planned(b, *sums)
    assert max(group.count("reduce_sum") for group in p.groups) == together
    full = [d for d in p.result.decisions if d.rule == "budget" and "shared memory" in d.reason]
    assert bool(full) == (together < 3)


def test_at_most_8_reductions_share_a_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 64))
    ops = ("abs", "neg", "floor", "ceil", "sin", "cos", "exp", "sign", "round")
    p = Planned(b, *(b.add("reduce_max", b.add(op, x), axes=(1,)) for op in ops))
    assert sorted(group.count("reduce_max") for group in p.groups) == [1, 8]
    assert any("reductions in one kernel" in d.reason for d in p.result.decisions)
