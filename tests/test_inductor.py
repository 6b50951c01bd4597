"""Decisions of inductor and inductor-benchmark on graphs small enough to follow the rules."""

from __future__ import annotations

import pytest

from autofuse.baselines.inductor.index import flat, reshaped, whole
from autofuse.baselines.inductor.rules import Score, splits
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.types import Value
from autofuse.ops.dtypes import DType
from tests.support.rule_plans import F32, Ruled, chain, inputs, product, softmax, total

U32 = DType.U32
ROWS = (64, 64)


def planned(b: GraphBuilder, *outputs: Value) -> Ruled:
    return Ruled("inductor", b, *outputs)


def part(b: GraphBuilder, x: Value) -> Value:
    """The first 8 x 8 elements: other loops than those of the whole."""
    return b.add("slice", x, start=(0, 0), stop=(8, 8), stride=(1, 1))


# lowering: what is inlined


def test_a_pointwise_chain_is_inlined() -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", b.add("tanh", b.add("sin", *inputs(b, 1)))))
    assert p.groups == [["neg", "sin", "tanh"]]
    assert p.fused("inlined", "sin", "tanh", "lowering")


def test_a_small_value_is_recomputed_by_all_its_users() -> None:
    b = GraphBuilder()
    shared = b.add("tanh", *inputs(b, 1, ROWS))
    p = planned(b, b.add("reduce_sum", shared, axes=(1,)), part(b, shared))
    assert p.groups == [["reduce_sum", "tanh"], ["slice", "tanh"]]


@pytest.mark.parametrize(("reads", "stored"), [(4, False), (5, True)])
def test_a_reused_value_of_more_than_4_reads_is_stored(reads: int, stored: bool) -> None:
    b = GraphBuilder()
    shared = b.add("neg", total(b, inputs(b, reads, ROWS)))
    p = planned(b, b.add("reduce_sum", shared, axes=(1,)), part(b, shared))
    assert p.refused("reused-reads", "neg", passes="lowering") == stored
    assert sum("neg" in group for group in p.groups) == (1 if stored else 2)


@pytest.mark.parametrize(("reads", "stored"), [(8, False), (9, True)])
def test_more_than_8_reads_end_a_body(reads: int, stored: bool) -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", total(b, inputs(b, reads))))
    assert p.refused("accumulated-reads", "add", "neg", "lowering") == stored


@pytest.mark.parametrize(("length", "stored"), [(27, False), (28, True)])
def test_more_than_30_operations_on_two_reads_end_a_body(length: int, stored: bool) -> None:
    # The addition, two loads and the sines.
    b = GraphBuilder()
    p = planned(b, b.add("neg", chain(b, b.add("add", *inputs(b, 2)), length)))
    assert p.refused("accumulated-ops", "sin", "neg", "lowering") == stored


@pytest.mark.parametrize(("length", "stored"), [(99, False), (100, True)])
def test_a_body_of_one_read_may_have_100_operations(length: int, stored: bool) -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", chain(b, *inputs(b, 1), length)))
    assert p.refused("large-body", "sin", "neg", "lowering") == stored
    assert not p.decisions("sin", "neg", "lowering")[0].rule.startswith("accumulated")


@pytest.mark.parametrize(("length", "stored"), [(7, False), (8, True)])
def test_a_reduction_of_fewer_than_8_elements_is_unrolled(length: int, stored: bool) -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", b.add("reduce_sum", *inputs(b, 1, (64, length)), axes=(1,))))
    assert p.refused("reduction", "reduce_sum", "neg", "lowering") == stored
    assert p.groups == [["neg", "reduce_sum"]]


def test_random_numbers_are_a_buffer_that_fuses_with_its_user() -> None:
    b = GraphBuilder()
    key, stream = b.input("key", (2,), U32), b.input("stream", (), U32)
    bits = b.add("random_bits", key, stream, shape=(64,), generator="philox")
    p = planned(b, b.add("not", bits))
    assert p.refused("random", "random_bits", "not", "lowering")
    assert p.groups == [["not", "random_bits"]]


@pytest.mark.parametrize(("count", "copied"), [(8, False), (9, True)])
def test_up_to_8_parts_are_concatenated_inside_their_user(count: int, copied: bool) -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", b.add("concat", *inputs(b, count), axis=0)))
    assert p.refused("concat", "concat", "neg", "lowering") == copied
    assert len(p.groups) == (2 if copied else 1)


def test_a_part_with_other_users_is_concatenated_in_memory() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2)
    shared = b.add("tanh", x)
    p = planned(b, b.add("neg", b.add("concat", shared, y, axis=0)), b.add("sin", shared))
    assert p.refused("concat", "concat", "neg", "lowering")


# the scheduler


def test_softmax_is_one_kernel() -> None:
    b = GraphBuilder()
    p = planned(b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert len(p.groups) == 1
    assert p.fused("producer-consumer", "reduce_max", "reduce_sum", "fusion")


def test_reductions_of_one_array_share_a_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, ROWS)
    p = planned(b, b.add("reduce_sum", x, axes=(1,)), b.add("reduce_max", x, axes=(1,)))
    assert p.groups == [["reduce_max", "reduce_sum"]]
    assert any(d.rule == "shared-reads" and d.fused for d in p.result.decisions)


def test_rows_and_columns_share_no_kernel() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, ROWS)
    p = planned(b, b.add("reduce_sum", x, axes=(1,)), b.add("reduce_max", x, axes=(0,)))
    assert p.groups == [["reduce_max"], ["reduce_sum"]]
    assert p.refused("no-shared-data", "reduce_sum", "reduce_max")


def test_a_shared_scalar_is_no_reason_to_fuse() -> None:
    b = GraphBuilder()
    s, (x, y) = b.input("s", (), F32), inputs(b, 2)
    wide = b.add("broadcast", s, shape=(64,), dims=())
    p = planned(b, b.add("mul", x, wide), b.add("div", y, wide))
    assert p.groups == [["broadcast", "div"], ["broadcast", "mul"]]
    assert p.refused("few-bytes", "mul", "div")


def test_loops_of_other_sizes_are_not_fused() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    p = planned(b, b.add("neg", x), b.add("broadcast", b.add("sin", x), shape=(64, 8), dims=(0,)))
    assert p.refused("loop-sizes", "neg", "broadcast")
    assert len(p.groups) == 2


def test_a_value_read_elsewhere_than_written_is_not_fused() -> None:
    b = GraphBuilder()
    r = b.add("reduce_sum", *inputs(b, 1, ROWS), axes=(1,))
    p = planned(b, b.add("add", r, b.add("reverse", r, axes=(0,))))
    assert p.refused("index-mismatch", "reduce_sum", "add")
    assert p.groups == [["add", "reverse"], ["reduce_sum"]]


def test_a_library_call_is_not_fused() -> None:
    b = GraphBuilder()
    p = planned(b, b.add("neg", product(b, *inputs(b, 2, ROWS))))
    assert p.refused("extern", "dot_general", "neg", "fusion")


def test_loops_are_reordered_in_a_last_round() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 32))
    p = planned(b, b.add("neg", x), b.add("sin", b.add("transpose", x, perm=(1, 0))))
    rounds = {d.pass_name: d for d in p.result.decisions if d.pass_name.startswith("fusion")}
    assert rounds["fusion"].rule == "no-shared-data"
    assert rounds["fusion-reordering"].fused


def test_at_most_64_nodes_are_fused() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    chained = [b.add("mul", x, b.constant(float(k), F32, (64,))) for k in range(70)]
    p = planned(b, *chained)
    assert max(len(group) for group in p.groups) == 64
    assert sum(len(group) for group in p.groups) == 70
    assert any(d.rule == "max-nodes" for d in p.result.decisions)


@pytest.mark.parametrize(("between", "seen"), [(63, True), (64, False)])
def test_each_node_is_compared_with_the_next_64_users_of_a_value(between: int, seen: bool) -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (100,))
    others = [b.add("slice", x, start=(k,), stop=(k + 5,), stride=(1,)) for k in range(between)]
    p = planned(b, b.add("neg", x), *others, b.add("abs", x))
    assert bool(p.decisions("neg", "abs")) == seen
    assert (["abs", "neg"] in p.groups) == seen


@pytest.mark.parametrize(("between", "near"), [(63, True), (64, False)])
def test_independent_nodes_more_than_64_apart_are_not_fused(between: int, near: bool) -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (100,))
    others = [b.add("neg", b.input(f"y{k}", (k + 2,), F32)) for k in range(between)]
    p = planned(b, b.add("sin", x), *others, b.add("abs", x))
    assert (["abs", "sin"] in p.groups) == near
    assert p.refused("far-apart", "sin", "abs") != near


def test_scores_rank_kind_before_bytes_unless_bytes_differ_16_fold() -> None:
    assert Score(0, 1600, 0) < Score(1, 100, 0)
    assert Score(1, 100, 0) < Score(0, 1601, 0)
    assert Score(1, 100, -5) < Score(1, 100, -4)


@pytest.mark.parametrize(
    ("sizes", "rows", "fits"),
    [((64, 32), 64, True), ((2048,), 64, True), ((32, 64), 64, True), ((6, 4), 4, False)],
)
def test_pointwise_loops_divide_into_rows(sizes: tuple[int, ...], rows: int, fits: bool) -> None:
    assert splits(sizes, rows) == fits


def test_reshapes_do_not_change_an_access() -> None:
    index = whole((6, 4))
    offset, terms = flat(index, (6, 4))
    split = reshaped(offset, terms, (2, 3, 4))
    assert split is not None and flat(split, (2, 3, 4)) == (offset, terms)
    assert reshaped(*flat(whole((4, 6))[::-1], (6, 4)), (8, 3)) is None


# benchmarked fusion


def benched(b: GraphBuilder, *outputs: Value) -> Ruled:
    return Ruled("inductor-benchmark", b, *outputs)


def crowd(count: int, dtype: DType = F32) -> Ruled:
    """A sum of `count` arrays and a product of them all, so that each is alive throughout."""
    b = GraphBuilder()
    found = [b.input(f"x{k}", (4096,), dtype) for k in range(count)]
    times = found[0]
    for x in found[1:]:
        times = b.add("mul", times, x)
    return benched(b, total(b, found), times)


def test_a_kernel_that_spills_is_not_chosen() -> None:
    p = crowd(36)
    assert any(d.pass_name == "benchmark" and d.rule == "spills" for d in p.result.decisions)
    assert len(p.groups) > 1


def test_the_same_kernel_with_fewer_arrays_is_chosen() -> None:
    assert len(crowd(24).groups) == 1


def test_wider_elements_take_two_registers() -> None:
    assert len(crowd(24, DType.F64).groups) > 1


def test_one_launch_less_is_faster_in_the_model() -> None:
    b = GraphBuilder()
    p = benched(b, softmax(b, *inputs(b, 1, ROWS), ROWS))
    assert len(p.groups) == 1
    assert not any(d.pass_name == "benchmark" for d in p.result.decisions)


def test_rules_come_before_the_benchmark() -> None:
    b = GraphBuilder()
    p = benched(b, b.add("neg", product(b, *inputs(b, 2, ROWS))))
    assert p.refused("extern", "dot_general", "neg", "fusion")
    assert p.groups == [["dot_general"], ["neg"]]
