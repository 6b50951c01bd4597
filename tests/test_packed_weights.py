"""Weights are computed and packed once, and every result is right, on the CPU and on CUDA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autofuse import spec, trace, xp
from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.emulated import EmulatedPlan, build_emulated
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.emulator.emulator import ORDERS
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.plan.fusion.groups import group_of, ordered_plan
from autofuse.plan.parameters import LaunchConfig
from autofuse.plan.program.packing import packing_of
from autofuse.plan.program.schedule import Run, schedule
from autofuse.plan.types import Candidate
from tests.support.seeds import examples
from tests.support.tile_programs import PROGRAMS
from tests.support.weighted import (
    SETTINGS,
    TOLERANCE,
    dequantising,
    each_alone,
    error,
    in_one,
    packed_launch,
    split,
    weighted,
)

# Right results


@pytest.mark.wide(10)
@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=1, deadline=None)
@given(chosen=SETTINGS)
def test_every_program_with_weights_is_right_under_every_setting(
    name: str, chosen: dict[str, int | str | bool]
) -> None:
    graph = weighted(name)
    assert error(graph, in_one(graph, packed_launch(**chosen))) < TOLERANCE["f32"]


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16"])
@pytest.mark.parametrize("name", ["epilogue", "convolution_last", "two_layers"])
def test_every_type_is_right(name: str, dtype: str) -> None:
    graph = weighted(name, dtype)
    candidate = in_one(graph, packed_launch(term_block=32, row_block=20))
    assert packing_of(graph, candidate.plan.groups[0], candidate.launches[0]) is not None
    assert error(graph, candidate) < TOLERANCE[dtype]


@settings(max_examples=examples(15), deadline=None)
@given(
    sizes=st.tuples(st.integers(1, 70), st.integers(2, 150), st.integers(1, 60)),
    batch=st.integers(1, 3),
    turned=st.booleans(),
    chosen=SETTINGS,
)
def test_products_of_any_size_are_right(
    sizes: tuple[int, int, int], batch: int, turned: bool, chosen: dict[str, int | str | bool]
) -> None:
    rows, columns, terms = sizes
    lying = (batch, columns, terms) if turned else (batch, terms, columns)

    def fn(a: Any, b: Any) -> Any:
        return a @ (b.mT if turned else b) * 2

    graph = canonical(trace(fn, spec((batch, rows, terms)), spec(lying, constant=True)))
    assert error(graph, in_one(graph, packed_launch(**chosen))) < TOLERANCE["f32"]


def test_work_on_weights_is_done_once_in_groups_of_its_own_or_while_packing() -> None:
    graph = dequantising()
    for candidate in (each_alone(graph), in_one(graph, packed_launch())):
        assert error(graph, candidate) < TOLERANCE["f32"]
        made = schedule(graph, candidate)
        assert made.binding.read == ()  # calls read what was prepared, not the weights
        assert all(isinstance(step, Run) for step in made.steps)
        assert 4 * 96 * 40 <= made.binding.held <= 2 * 4 * 96 * 40


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_right_operand_of_a_library_call_is_turned_once(dtype: str) -> None:
    def fn(x: Any, w: Any) -> Any:
        return x @ np.exp(w)

    graph = canonical(trace(fn, spec((9, 20), dtype), spec((20, 33), dtype, constant=True)))
    candidate = each_alone(graph, LaunchConfig.of(threads=1, impl="blas"))
    assert len(schedule(graph, candidate).prepare) == 1 == len(schedule(graph, candidate).steps)
    assert error(graph, candidate) < TOLERANCE[dtype]


def test_results_that_depend_on_constants_alone_are_copied_to_each_call() -> None:
    def fn(x: Any, w: Any) -> Any:
        return {"w": w, "twice": w * 2, "y": x + w}

    graph = canonical(trace(fn, spec(8), spec(8, constant=True)))
    assert error(graph, each_alone(graph)) == 0.0


def test_a_loop_over_constants_runs_once() -> None:
    def fn(x: Any, w: Any) -> Any:
        return x + xp.fori_loop(4, lambda _, state: state * w, w)

    graph = canonical(trace(fn, spec(6), spec(6, constant=True)))
    assert error(graph, each_alone(graph)) < TOLERANCE["f32"]
    assert len(schedule(graph, each_alone(graph)).steps) == 1


def test_what_a_call_needs_first_is_not_done_before() -> None:
    """A settled value that a mixed group writes is there only in the call; so is what reads it."""

    def fn(x: Any, w: Any) -> Any:
        turned = np.exp(w)
        return {"a": x + turned, "b": x @ np.tanh(turned)}

    graph = canonical(trace(fn, spec((16, 16)), spec((16, 16), constant=True)))
    ops = {node.op: n for n, node in enumerate(graph.nodes)}
    pairs = (("exp", "add"), ("tanh", "dot_general"))
    groups = [group_of(graph, [ops[name] for name in pair]) for pair in pairs]
    candidate = Candidate(ordered_plan(graph, groups), (packed_launch(),) * 2)
    made = schedule(graph, candidate)
    assert made.prepare == () and made.binding.held == 0
    assert [step.packs for step in made.steps if isinstance(step, Run)] == [False, True, False]
    assert error(graph, candidate) < TOLERANCE["f32"]


# On CUDA


@pytest.mark.parametrize("make", [each_alone, in_one])
def test_cuda_prepares_too_but_packs_in_its_kernels(
    make: Callable[[Graph, LaunchConfig], Candidate],
) -> None:
    graph = dequantising(rows=3)
    candidate = make(graph, packed_launch(threads=64, row_block=4, micro="4x64"))
    built_ = build_emulated(cuda_program(graph, candidate))
    plan = EmulatedPlan(built_.artifact, orders=ORDERS[:1])
    inputs = random_inputs(graph, 1)
    constants, rest = split(graph, inputs)
    with pytest.raises(LaunchError, match="constants have not been bound"):
        plan.run(rest)
    plan.prepare(constants)
    for _ in "12":
        (found,) = plan.run(rest)
        assert np.max(np.abs(found - evaluate(graph, inputs)[0])) < 1e-4
