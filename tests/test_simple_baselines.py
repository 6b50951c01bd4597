"""Decisions of tvm, nnc, nvfuser, tensorrt and greedy-chains on graphs followed by hand."""

from __future__ import annotations

import pytest

from autofuse.baselines.tensorrt.patterns import Any, Scalar, matches, op
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from tests.support.rule_plans import F32, Ruled, chain, inputs, product, softmax

ROWS = (64, 32)


def spread(b: GraphBuilder, x: Value, shape: tuple[int, ...] = ROWS) -> Value:
    """A value per row, repeated along the row."""
    return b.add("broadcast", x, shape=shape, dims=(0,))


# tvm


def test_tvm_fuses_a_chain() -> None:
    b = GraphBuilder()
    p = Ruled("tvm", b, chain(b, *inputs(b, 1), 3))
    assert p.groups == [["sin", "sin", "sin"]]
    assert p.fused("dominator", "sin", "sin", "phase-0")


def test_tvm_fuses_a_diamond_up_to_where_its_ways_meet() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("tvm", b, b.add("mul", b.add("sin", top), b.add("cos", top)))
    assert p.groups == [["cos", "mul", "sin", "tanh"]]
    assert p.fused("dominator", "tanh", "mul", "phase-0")


def test_tvm_does_not_fuse_what_two_results_share() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("tvm", b, b.add("sin", top), b.add("cos", top))
    assert p.groups == [["cos"], ["sin"], ["tanh"]]
    assert p.refused("no-dominator", "tanh", "sin")


def test_tvm_splits_softmax_after_each_reduction() -> None:
    b = GraphBuilder()
    p = Ruled("tvm", b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert ["reduce_max"] in p.groups and ["reduce_sum"] in p.groups
    assert p.refused("reduce", "reduce_max", "broadcast", "phase-0")


def test_tvm_fuses_elementwise_ops_into_a_reduction() -> None:
    b = GraphBuilder()
    p = Ruled("tvm", b, b.add("reduce_sum", b.add("exp", *inputs(b, 1, ROWS)), axes=(1,)))
    assert p.groups == [["exp", "reduce_sum"]]


def test_tvm_does_not_fuse_a_transposition_into_a_reduction() -> None:
    b = GraphBuilder()
    turned = b.add("transpose", *inputs(b, 1, ROWS), perm=(1, 0))
    p = Ruled("tvm", b, b.add("reduce_sum", turned, axes=(1,)))
    assert p.groups == [["reduce_sum"], ["transpose"]]
    assert p.refused("path", "transpose", "reduce_sum", "phase-1")


def test_tvm_fuses_the_parts_of_a_concatenation_last() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    p = Ruled("tvm", b, b.add("concat", b.add("sin", x), b.add("cos", y), axis=0))
    assert p.groups == [["concat", "cos", "sin"]]
    assert p.refused("tuple", "sin", "concat", "phase-0")
    assert p.fused("dominator", "sin", "concat", "phase-2")


def test_tvm_gives_a_product_its_elementwise_epilogue() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (32, 32))
    p = Ruled("tvm", b, b.add("tanh", product(b, x, y)))
    assert p.fused("dominator", "dot_general", "tanh", "phase-0")


def test_tvm_does_not_fuse_into_the_operands_of_a_product() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (32, 32))
    p = Ruled("tvm", b, product(b, b.add("tanh", x), y))
    assert p.groups == [["dot_general"], ["tanh"]]
    assert p.refused("sink", "tanh", "dot_general")


def test_tvm_groups_have_at_most_256_ops() -> None:
    b = GraphBuilder()
    p = Ruled("tvm", b, chain(b, *inputs(b, 1), 300))
    assert sorted(len(g) for g in p.groups) == [44, 256]


# nnc


def test_nnc_pulls_producers_into_a_group() -> None:
    b = GraphBuilder()
    p = Ruled("nnc", b, chain(b, *inputs(b, 1), 3))
    assert p.groups == [["sin", "sin", "sin"]]
    assert p.fused("pulled", "sin", "sin", "pull-producers")


def test_nnc_keeps_a_value_that_others_need_as_a_second_result() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("nnc", b, b.add("sin", top), top)
    assert p.groups == [["sin", "tanh"]]
    assert len(p.result.plan.groups[0].outputs) == 2


def test_nnc_leaves_reductions_to_eager_kernels() -> None:
    b = GraphBuilder()
    p = Ruled("nnc", b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert ["reduce_max"] in p.groups and ["reduce_sum"] in p.groups
    assert p.refused("unsupported", "reduce_max", "broadcast")


def test_nnc_merges_groups_that_follow_each_other() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    p = Ruled("nnc", b, chain(b, x, 2), chain(b, y, 2, "cos"))
    assert p.groups == [["cos", "cos", "sin", "sin"]]
    assert any(d.rule == "adjacent" and d.fused for d in p.result.decisions)


def test_nnc_does_not_fuse_ops_on_bytes() -> None:
    b = GraphBuilder()
    x = b.input("x", (64,), DType.U8)
    p = Ruled("nnc", b, b.add("not", b.add("not", x)))
    assert p.groups == [["not"], ["not"]]


def test_nnc_takes_a_view_only_when_nobody_else_uses_it() -> None:
    b = GraphBuilder()
    wide = b.add("reshape", b.add("tanh", *inputs(b, 1)), shape=(1, 64))
    p = Ruled("nnc", b, b.add("sin", wide), wide)
    assert p.refused("view-users", "reshape", "sin")
    assert ["sin"] in p.groups


@pytest.mark.parametrize(("count", "whole"), [(60, True), (130, False)])
def test_nnc_groups_have_at_most_128_arguments(count: int, whole: bool) -> None:
    b = GraphBuilder()
    found, *others = inputs(b, count)
    for x in others:
        found = b.add("add", found, x)
    p = Ruled("nnc", b, found)
    assert (len(p.groups) == 1) == whole
    assert p.refused("arguments", "add", "add") != whole


# nvfuser


def test_nvfuser_takes_softmax_as_one_persistent_kernel() -> None:
    b = GraphBuilder()
    p = Ruled("nvfuser", b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert len(p.groups) == 1
    (whole,) = (d for d in p.result.decisions if d.pass_name == "whole-graph")
    assert whole.fused and "inner persistent" in whole.reason


@pytest.mark.parametrize(("length", "whole"), [(10_000, True), (40_000, False)])
def test_nvfuser_rows_must_fit_half_the_registers(length: int, whole: bool) -> None:
    # Rows of x and of the exponentials are kept: 8 bytes an element.
    b = GraphBuilder()
    shape = (2, length)
    p = Ruled("nvfuser", b, softmax(b, *inputs(b, 1, shape), shape))
    assert (len(p.groups) == 1) == whole
    assert any("bytes (limit 131072)" in d.reason for d in p.result.decisions) != whole


def test_nvfuser_does_not_fuse_what_is_not_connected() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    p = Ruled("nvfuser", b, b.add("sin", x), b.add("cos", y))
    assert p.groups == [["cos"], ["sin"]]
    assert any(d.pass_name == "whole-graph" and not d.fused for d in p.result.decisions)


def test_nvfuser_splits_reductions_of_different_axes() -> None:
    b = GraphBuilder()
    rows = b.add("reduce_sum", *inputs(b, 1, (8, 16, 32)), axes=(2,))
    p = Ruled("nvfuser", b, b.add("reduce_max", rows, axes=(1,)))
    assert p.groups == [["reduce_max"], ["reduce_sum"]]
    assert p.refused("no-scheduler", "reduce_sum", "reduce_max")


def test_nvfuser_fuses_before_and_after_a_reduction() -> None:
    b = GraphBuilder()
    folded = b.add("reduce_sum", b.add("exp", *inputs(b, 1, ROWS)), axes=(1,))
    p = Ruled("nvfuser", b, b.add("log", folded))
    assert p.groups == [["exp", "log", "reduce_sum"]]
    assert any("reduction scheduler" in d.reason for d in p.result.decisions)


def test_nvfuser_leaves_a_product_alone() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (32, 32))
    p = Ruled("nvfuser", b, b.add("tanh", product(b, b.add("sin", x), y)))
    assert p.groups == [["dot_general"], ["sin"], ["tanh"]]


def test_nvfuser_needs_one_tensor_that_covers_all_axes() -> None:
    b = GraphBuilder()
    x, y = b.input("x", (8,), F32), b.input("y", (12,), F32)
    s = b.add("sin", b.input("s", (), F32))
    first = b.add("mul", x, b.add("broadcast", s, shape=(8,), dims=()))
    second = b.add("mul", y, b.add("broadcast", s, shape=(12,), dims=()))
    p = Ruled("nvfuser", b, first, second)
    assert any("covers the axes" in d.reason for d in p.result.decisions)
    assert sorted(len(g) for g in p.groups) == [2, 3]


# tensorrt


def test_tensorrt_knows_softmax() -> None:
    b = GraphBuilder()
    p = Ruled("tensorrt", b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert len(p.groups) == 1
    assert any(d.rule == "softmax" and d.fused for d in p.result.decisions)


def test_tensorrt_does_not_know_softmax_without_its_maximum() -> None:
    b = GraphBuilder()
    raised = b.add("exp", *inputs(b, 1, ROWS))
    p = Ruled(
        "tensorrt", b, b.add("div", raised, spread(b, b.add("reduce_sum", raised, axes=(1,))))
    )
    assert p.groups == [["broadcast", "div"], ["exp"], ["reduce_sum"]]


def test_tensorrt_knows_layer_norm() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, ROWS)
    share, eps = b.constant(1 / 32, F32, (64,)), b.constant(1e-5, F32, (64,))
    mean = b.add("mul", b.add("reduce_sum", x, axes=(1,)), share)
    c = b.add("sub", x, spread(b, mean))
    variance = b.add("mul", b.add("reduce_sum", b.add("mul", c, c), axes=(1,)), share)
    p = Ruled(
        "tensorrt", b, b.add("mul", c, spread(b, b.add("rsqrt", b.add("add", variance, eps))))
    )
    assert len(p.groups) == 1
    assert any(d.rule == "layer-norm" and d.fused for d in p.result.decisions)


def test_tensorrt_knows_the_sum_of_squares() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, ROWS)
    p = Ruled("tensorrt", b, b.add("reduce_sum", b.add("mul", x, x), axes=(1,)))
    assert p.groups == [["mul", "reduce_sum"]]
    assert p.fused("sum-of-squares", "mul", "reduce_sum", "idiom")


def test_tensorrt_does_not_fuse_other_ops_into_a_reduction() -> None:
    b = GraphBuilder()
    p = Ruled("tensorrt", b, b.add("reduce_sum", b.add("exp", *inputs(b, 1, ROWS)), axes=(1,)))
    assert p.groups == [["exp"], ["reduce_sum"]]
    assert p.refused("pointwise", "exp", "reduce_sum")


@pytest.mark.parametrize(("length", "sizes"), [(64, [64]), (70, [6, 64])])
def test_tensorrt_pointwise_kernels_have_at_most_64_ops(length: int, sizes: list[int]) -> None:
    b = GraphBuilder()
    p = Ruled("tensorrt", b, chain(b, *inputs(b, 1), length))
    assert sorted(len(g) for g in p.groups) == sizes


def test_tensorrt_keeps_what_others_read() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("tensorrt", b, b.add("sin", top), b.add("cos", top))
    assert p.groups == [["cos"], ["sin"], ["tanh"]]
    assert p.refused("users", "tanh", "sin", "pointwise")


def test_tensorrt_writes_the_parts_of_a_concatenation_in_place() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    p = Ruled("tensorrt", b, b.add("concat", b.add("sin", x), b.add("cos", y), axis=0))
    assert p.groups == [["concat", "cos"], ["sin"]]
    copied = Ruled("tensorrt", b, b.add("concat", b.add("sin", x), y, axis=0))
    assert copied.refused("in-place", "sin", "concat")


def test_tensorrt_gives_a_product_its_bias_and_activation() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (32, 32))
    bias = b.add("broadcast", b.input("b", (32,), F32), shape=(32, 32), dims=(1,))
    p = Ruled("tensorrt", b, b.add("tanh", b.add("add", product(b, x, y), bias)))
    assert p.fused("epilogue", "dot_general", "add", "contraction-epilogue")
    assert p.fused("epilogue", "add", "tanh", "contraction-epilogue")


def test_tensorrt_knows_attention() -> None:
    b = GraphBuilder()
    q, k, v = inputs(b, 3, (32, 32))
    scores = b.add("mul", product(b, q, k), b.constant(0.2, F32, (32, 32)))
    p = Ruled("tensorrt", b, product(b, softmax(b, scores, (32, 32)), v))
    assert p.fused("attention", "dot_general", "mul", "attention")
    assert p.fused("attention", "div", "dot_general", "attention")


def test_tensorrt_puts_products_of_one_input_side_by_side() -> None:
    b = GraphBuilder()
    x, y, z = inputs(b, 3, (32, 32))
    p = Ruled("tensorrt", b, product(b, x, y), product(b, x, z))
    assert p.fused("side-by-side", "dot_general", "dot_general", "horizontal")


def test_patterns_match_either_order_and_the_same_node() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    half = b.constant(0.5, F32, (64,))
    graph = b.build([b.add("mul", half, b.add("mul", x, x)), b.add("mul", x, y)])
    square = op("mul", Any("a"), Any("a"))
    roots = [n for n in range(len(graph.nodes)) if matches(graph, n, op("mul", square, Scalar()))]
    assert roots == [graph.outputs[0].node]
    assert matches(graph, graph.outputs[1].node, square) is None


# greedy-chains


def test_chains_of_elementwise_ops_are_one_kernel() -> None:
    b = GraphBuilder()
    p = Ruled("greedy-chains", b, chain(b, *inputs(b, 1), 3))
    assert p.groups == [["sin", "sin", "sin"]]


def test_a_chain_ends_in_a_reduction() -> None:
    b = GraphBuilder()
    folded = b.add("reduce_sum", b.add("exp", *inputs(b, 1, ROWS)), axes=(1,))
    p = Ruled("greedy-chains", b, b.add("log", folded))
    assert p.groups == [["exp", "reduce_sum"], ["log"]]
    assert p.refused("not-elementwise", "reduce_sum", "log")


def test_a_chain_stops_where_a_value_has_two_users() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("greedy-chains", b, b.add("mul", b.add("sin", top), top))
    assert p.groups == [["mul", "sin"], ["tanh"]]
    assert p.refused("several-users", "tanh", "sin")


def test_a_chain_does_not_go_through_movement() -> None:
    b = GraphBuilder()
    turned = b.add("transpose", b.add("sin", *inputs(b, 1, ROWS)), perm=(1, 0))
    p = Ruled("greedy-chains", b, b.add("cos", turned))
    assert p.groups == [["cos"], ["sin"], ["transpose"]]
    assert p.refused("not-a-chain", "sin", "transpose")


def test_a_result_ends_a_chain() -> None:
    b = GraphBuilder()
    top = b.add("tanh", *inputs(b, 1))
    p = Ruled("greedy-chains", b, b.add("sin", top), top)
    assert p.groups == [["sin"], ["tanh"]]


def test_a_product_is_a_call_of_its_own() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (32, 32))
    p = Ruled("greedy-chains", b, b.add("tanh", product(b, x, y)))
    assert p.groups == [["dot_general"], ["tanh"]]
