"""Decisions of xla-2022 on graphs small enough to follow the rules by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest
from random_graphs import random_graph
from test_baselines import check_plan

from autofuse.baselines.base import BaselineResult, Decision, read_values
from autofuse.baselines.xla_2022 import xla_2022
from autofuse.baselines.xla_flow import Flow
from autofuse.baselines.xla_horizontal import horizontal_loop_fusion
from autofuse.baselines.xla_instruction_fusion import instruction_fusion
from autofuse.baselines.xla_merger import fusion_merger
from autofuse.baselines.xla_multi_output import multi_output_fusion
from autofuse.baselines.xla_shapes import reduction_kind
from autofuse.baselines.xla_state import State
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph, Value
from autofuse.ops.dtypes import DType
from autofuse.plan.types import Candidate, LaunchConfig, candidate_from_json

F32, F64, U32 = DType.F32, DType.F64, DType.U32
N = (64,)


class Planned:
    """A graph planned by xla-2022, seen through op names."""

    def __init__(self, builder: GraphBuilder, *outputs: Value) -> None:
        self.graph: Graph = canonical(builder.build(outputs))
        self.result: BaselineResult = xla_2022(self.graph)
        check_plan(self.graph, self.result.plan)

    @property
    def groups(self) -> list[list[str]]:
        """Ops of each group, sorted; groups sorted."""
        found = self.result.plan.groups
        return sorted(sorted(self.graph[n].op for n in g.nodes) for g in found)

    def decisions(self, producer: str, consumer: str = "", passes: str = "") -> list[Decision]:
        return [
            d
            for d in self.result.decisions
            if self.graph[d.producer_node].op == producer
            and (not consumer or self.graph[d.consumer_node].op == consumer)
            and d.pass_name.startswith(passes)
        ]

    def refused(self, rule: str, producer: str, consumer: str = "", passes: str = "") -> bool:
        found = self.decisions(producer, consumer, passes)
        return any(d.rule == rule and not d.fused for d in found)

    def fused(self, rule: str, producer: str, consumer: str = "", passes: str = "") -> bool:
        found = self.decisions(producer, consumer, passes)
        return any(d.rule == rule and d.fused for d in found)


def inputs(b: GraphBuilder, count: int, shape: Sequence[int] = N) -> list[Value]:
    return [b.input(f"x{k}", shape, F32) for k in range(count)]


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


def independent(count: int, op: Callable[[GraphBuilder, Value], Value], n: int) -> Planned:
    """`count` outputs of `op`, each of its own input and of a shape of its own."""
    b = GraphBuilder()
    return Planned(b, *(op(b, b.input(f"x{k}", (n + k,), F32)) for k in range(count)))


def test_small_independent_loops_run_side_by_side() -> None:
    p = independent(3, lambda b, x: b.add("neg", b.add("tanh", x)), 100)
    assert len(p.groups) == 1
    assert all(
        d.pass_name == "horizontal-loop" for d in p.result.decisions if d.rule.startswith("side")
    )


def test_at_most_32_loops_run_side_by_side() -> None:
    p = independent(40, lambda b, x: b.add("neg", b.add("tanh", x)), 100)
    assert sorted(len(g) for g in p.groups) == [16, 64]


@pytest.mark.parametrize(("size", "groups"), [(262_144, 1), (262_145, 2)])
def test_large_loops_do_not_run_side_by_side(size: int, groups: int) -> None:
    b = GraphBuilder()
    x, y = b.input("x", (size,), F32), b.input("y", (size,), F32)
    p = Planned(b, b.add("neg", x), b.add("abs", y))
    assert len(p.groups) == groups


@pytest.mark.parametrize(("length", "groups"), [(29, 1), (30, 2)])
def test_long_loops_do_not_run_side_by_side(length: int, groups: int) -> None:
    # A fusion of n unary ops has n + 1 instructions, its parameter included.
    def chain(b: GraphBuilder, x: Value) -> Value:
        for _ in range(length):
            x = b.add("sin", x)
        return x

    assert len(independent(2, chain, 100).groups) == groups


def test_loops_that_share_an_input_do_not_run_side_by_side() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    y, z = b.input("y", (64,), F32), b.input("z", (64,), F32)
    p = Planned(b, b.add("add", x, y), b.add("mul", x, z))
    assert len(p.groups) == 2
    assert any(d.rule == "parameter" for d in p.result.decisions)


def test_reductions_of_one_shape_run_side_by_side() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (64, 64))
    p = Planned(b, b.add("reduce_sum", x, axes=(1,)), b.add("reduce_max", y, axes=(1,)))
    assert p.groups == [["reduce_max", "reduce_sum"]]


def test_random_bits_stay_alone() -> None:
    b = GraphBuilder()
    key, stream = b.input("key", (2,), U32), b.input("stream", (), U32)
    bits = b.add("random_bits", key, stream, shape=(64,), generator="philox")
    p = Planned(b, b.add("not", bits))
    assert p.groups == [["not"], ["random_bits"]]
    assert p.refused("library-call", "random_bits", "not")


def softmax() -> tuple[GraphBuilder, Value]:
    b = GraphBuilder()
    (x,) = inputs(b, 1, (64, 128))
    top = b.add("reduce_max", x, axes=(1,))
    shifted = b.add("sub", x, b.add("broadcast", top, shape=(64, 128), dims=(0,)))
    raised = b.add("exp", shifted)
    total = b.add("reduce_sum", raised, axes=(1,))
    return b, b.add("div", raised, b.add("broadcast", total, shape=(64, 128), dims=(0,)))


def test_softmax_is_three_kernels() -> None:
    """Maximum, sum of exponentials, and quotient: exp is cheap in f32, so merging it into both
    of its users moves (2 * 1) / (1 + 3) of the bytes."""
    p = Planned(*softmax())
    assert p.groups == [
        ["broadcast", "broadcast", "div", "exp", "sub"],
        ["broadcast", "exp", "reduce_sum", "sub"],
        ["reduce_max"],
    ]
    assert p.fused("merge", "exp", passes="fusion-merger")


def test_a_leftover_reshape_is_read_through() -> None:
    b = GraphBuilder()
    x, y = inputs(b, 2, (1, 64))
    state = b.add("concat", x, y, axis=0)
    flat = b.add("reshape", state, shape=(128,))
    a = b.add("slice", flat, start=(0,), stop=(64,), stride=(1,))
    c = b.add("slice", flat, start=(64,), stop=(128,), stride=(1,))
    p = Planned(b, b.add("mul", a, c), b.add("neg", state))
    assert ["reshape"] not in p.groups


def test_instructions_know_what_they_read() -> None:
    """The incremental reader tables agree with the graph after every pass of random graphs."""
    for seed in range(40):
        graph = canonical(random_graph(seed, 40))
        state = State(graph, entry=True)
        for step in (
            partial(instruction_fusion, may_duplicate=False),
            partial(instruction_fusion, may_duplicate=True),
            fusion_merger,
            multi_output_fusion,
            horizontal_loop_fusion,
        ):
            step(state)
            for instr in state.instrs.values():
                reads = read_values(graph, sorted(instr.nodes))
                assert set(instr.operands) == set(reads)
                assert all(instr.id in state.readers[v] for v in reads)
                assert instr.roots <= instr.nodes
                fresh = Flow(state.facts, state.shapes, instr.nodes, instr.roots)
                assert state.flow(instr).count == fresh.count
                assert state.flow(instr).reused == fresh.reused


def test_a_stored_plan_reads_back_equal() -> None:
    plan = Planned(*softmax()).result.plan
    candidate = Candidate(plan, tuple(LaunchConfig() for _ in plan.groups))
    assert candidate_from_json(candidate.to_json()) == candidate


def test_a_long_chain_is_one_group() -> None:
    b = GraphBuilder()
    (x,) = inputs(b, 1)
    for _ in range(1000):
        x = b.add("sin", x)
    assert len(Planned(b, x).groups) == 1


def cartpole_step(b: GraphBuilder, state: Sequence[Value], force: Value) -> list[Value]:
    """One explicit Euler step of the cart and pole, each argument of shape (2048,)."""

    def c(value: float) -> Value:
        return b.constant(value, F32, (2048,))

    def op(name: str, x: Value, y: Value) -> Value:
        return b.add(name, x, y)

    x, v, th, om = state
    sin, cos = b.add("sin", th), b.add("cos", th)
    push = op("add", force, op("mul", c(0.05), op("mul", op("mul", om, om), sin)))
    temp = op("div", push, c(1.1))
    lever = op("sub", c(4 / 3), op("div", op("mul", c(0.1), op("mul", cos, cos)), c(1.1)))
    turn = op("sub", op("mul", c(9.8), sin), op("mul", cos, temp))
    om_dot = op("div", turn, op("mul", c(0.5), lever))
    v_dot = op("sub", temp, op("div", op("mul", c(0.05), op("mul", om_dot, cos)), c(1.1)))
    steps = ((x, v), (v, v_dot), (th, om), (om, om_dot))
    return [op("add", a, op("mul", c(0.02), d)) for a, d in steps]


def test_cartpole_with_separate_states_is_one_kernel() -> None:
    b = GraphBuilder()
    *state, force = inputs(b, 5, (2048,))
    p = Planned(b, *cartpole_step(b, state, force))
    assert len(p.groups) == 1
    assert len(p.result.plan.groups[0].outputs) == 4


def test_the_concat_of_a_cartpole_state_is_a_kernel_of_its_own() -> None:
    """Two steps with the state concatenated between them, as the case study of the rules has it:
    the concat has several users, so they all read it from memory."""
    b = GraphBuilder()
    (state,), force = inputs(b, 1, (4, 2048)), b.input("force", (2048,), F32)
    for _ in range(2):
        rows = [
            b.add("reshape", b.add("slice", state, start=(k, 0), stop=(k + 1, 2048), stride=(1, 1)),
                  shape=(2048,))
            for k in range(4)
        ]  # fmt: skip
        made = cartpole_step(b, rows, force)
        state = b.add("concat", *(b.add("reshape", m, shape=(1, 2048)) for m in made), axis=0)
    p = Planned(b, state)
    assert p.refused("code-duplication", "concat", passes="instruction-fusion")
    assert len(p.groups) >= 2
    assert sum("concat" in group for group in p.groups) == 2
