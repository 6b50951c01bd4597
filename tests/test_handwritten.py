"""The kernel written by hand: it compiles for every generation, and computes the workload."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.backends.cuda.build import REPORT
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.emulated import EmulatedPlan, build_emulated
from autofuse.backends.cuda.facts import complaints, parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.emulator.emulator import Order
from autofuse.graph.builder import GraphBuilder
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.measure.check.compare import check, reference_of
from autofuse.peers.types import BenchError
from autofuse.zoo.cartpole import cartpole_naive
from benchmarks.handwritten import VARIANTS, Variant, cartpole_program, kernel_program

H100 = TARGETS["H100"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_it_compiles_without_a_word_or_a_spill(arch: str) -> None:
    graph = cartpole_naive(2048, 100)
    for variant in (Variant(32, 10), Variant(64, 1, "relaxed")):
        (source,) = cartpole_program(graph, 100, variant, H100).sources
        cubin, log = compile_cubin(source.text, arch, (*source.flags, *REPORT))
        facts = parse_log(log)[source.name]
        assert cubin and complaints(log) == "" and facts.spilled == 0


@pytest.mark.wide(3)
@pytest.mark.parametrize("envs", [64, 37])
@pytest.mark.parametrize("unroll", [1, 10, 0])
def test_it_computes_the_roll_out(envs: int, unroll: int) -> None:
    graph = cartpole_naive(envs, 20)
    inputs = random_inputs(graph, 3)
    made = cartpole_program(graph, 20, Variant(32, unroll), H100)
    plan = EmulatedPlan(build_emulated(made).artifact, orders=(Order("forward"),))
    found = plan.run(inputs)
    assert check(found, reference_of(graph, inputs)).ok
    survived = np.asarray(evaluate(graph, inputs)[1])
    assert np.array_equal(found[1], survived)


def test_a_reset_is_drawn_from_the_right_words() -> None:
    """Environments that start out of bounds begin again with the first words of stream 0."""
    graph = cartpole_naive(64, 1)
    key, state = random_inputs(graph, 5)
    state = state + np.float32(1.0)
    plan = EmulatedPlan(
        build_emulated(cartpole_program(graph, 1, Variant(64, 1), H100)).artifact,
        orders=(Order("forward"),),
    )
    final, reward = plan.run((key, state))
    assert not reward.any() and np.abs(final).max() <= 0.05
    assert np.allclose(final, evaluate(graph, (key, state))[0], rtol=1e-5, atol=1e-8)


def test_variants_are_different_and_arguments_are_the_graphs() -> None:
    assert len(set(map(str, VARIANTS))) == len(VARIANTS) == 27
    made = cartpole_program(cartpole_naive(100, 10), 10, VARIANTS[0], H100)
    (action,) = made.actions
    assert (action.geometry.grid, action.geometry.block) == (4, 32)
    assert [a.size for a in action.arguments] == [2, 400, 400, 100]
    b = GraphBuilder()
    y = b.add("neg", b.input("x", (4,), "f32"))
    with pytest.raises(BenchError, match="each output once"):
        kernel_program(b.build([y, y]), made.sources[0], action.geometry, H100)
