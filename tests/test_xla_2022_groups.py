"""Decisions of xla-2022: what runs side by side, and whole programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pytest

from autofuse.baselines.xla.flow import Flow
from autofuse.baselines.xla.horizontal import horizontal_loop_fusion
from autofuse.baselines.xla.instruction_fusion import instruction_fusion
from autofuse.baselines.xla.merger import fusion_merger
from autofuse.baselines.xla.multi_output import multi_output_fusion
from autofuse.baselines.xla.state import XlaState
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Value
from autofuse.plan.fusion.groups import reads
from autofuse.plan.types import Candidate, LaunchConfig, candidate_from_json
from tests.support.random_graphs import random_graph
from tests.support.seeds import seeds
from tests.support.xla_plans import F32, U32, Planned, inputs


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
    for seed in seeds(40):
        graph = canonical(random_graph(seed, 40))
        state = XlaState(graph, entry=True)
        for step in (
            partial(instruction_fusion, may_duplicate=False),
            partial(instruction_fusion, may_duplicate=True),
            fusion_merger,
            multi_output_fusion,
            horizontal_loop_fusion,
        ):
            step(state)
            for instr in state.instrs.values():
                read = reads(graph, instr.nodes)
                assert set(instr.operands) == set(read)
                assert all(instr.id in state.readers[v] for v in read)
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


def test_small_loops_share_a_kernel_up_to_4000_bytes_of_arguments() -> None:
    # 15 operands and a result are 128 bytes each: 31 * 128 = 3968, 32 * 128 = 4096.
    b = GraphBuilder()
    outs = []
    for k in range(32):
        total, *rest = (b.input(f"x{k}.{i}", (100 + k,), F32) for i in range(15))
        for x in rest:
            total = b.add("add", total, x)
        outs.append(total)
    p = Planned(b, *outs)
    assert sorted(len(g) for g in p.groups) == [14, 31 * 14]
