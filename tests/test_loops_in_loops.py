"""Loops in the bodies of loops that are one kernel, with the states of all of them in registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.emulator.emulator import ORDERS
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.fusion.legality import check_group
from autofuse.plan.types import Candidate, LaunchConfig, Refusal
from autofuse.simplify import normal_form
from autofuse.tuning.problem import default_candidate
from search_spaces import CpuLaunchSpace, CudaLaunchSpace, FusionSpace
from search_spaces.launch import LaunchSpace
from tests.support.batching import Case, failures


def newton(size: int) -> Graph:
    """Items side by side, each with a root that is refined some times a step, and a row of each."""

    def program(x: Array, steps: Array) -> Any:
        def step(i: Array, y: Array) -> Any:
            def refine(_: Array, r: Array) -> Any:
                return r - (r - 0.5 * xp.sin(r) - y) / (1.0 - 0.5 * xp.cos(r))

            new = 0.9 * xp.fori_loop(4, refine, y) + 0.1 * steps[i]
            return new, xp.tanh(new)

        return xp.scan(step, x, 6)

    return normal_form(trace(program, spec((size,)), spec((6, size))))


def powers() -> Graph:
    """A matrix of registers, multiplied by itself in the inner loop: one item does it all."""

    def program(x: Array) -> Any:
        def step(_: Array, y: Array) -> Any:
            inner = xp.fori_loop(3, lambda k, z: 0.4 * xp.matmul(z, y) + 0.01 * k, y)
            return inner, xp.sum(inner)

        return xp.scan(step, x, 5)

    return normal_form(trace(program, spec((3, 3))))


def halvings(size: int) -> Graph:
    """Each place goes on until it is small, as often as the outer loop says, three loops deep."""

    def program(x: Array) -> Any:
        def once(_: Array, y: Array) -> Any:
            grown = xp.fori_loop(2, lambda k, z: z * 1.5 + 0.25 * k, xp.abs(y) + 1.0)
            return xp.while_loop(lambda z: z > 1.0, lambda z: z * 0.6, grown, max_trips=9)

        return xp.fori_loop(3, once, x)

    return normal_form(trace(program, spec((size,))))


PROGRAMS = {
    "items": newton(40), "one item": newton(1), "matrix": powers(), "while": halvings(33),
}  # fmt: skip


def whole(graph: Graph, space: LaunchSpace) -> Candidate:
    """Everything fused, which runs no loop on the host."""
    plan = FusionSpace(graph).choose(lambda _, options: options[0])
    assert all(group.body is None for group in plan.groups)
    return default_candidate(graph, plan, space, "fused")


def twice_a_turn(candidate: Candidate) -> Candidate:
    """Two iterations of the outer loop at a time."""
    launches = (
        LaunchConfig.of(**{**dict(own.settings), "loop_unroll": 2}) for own in candidate.launches
    )
    return replace(candidate, launches=tuple(launches))


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_compute_the_same_on_the_cpu(name: str) -> None:
    graph = PROGRAMS[name]
    cases = [Case(graph, whole(graph, CpuLaunchSpace()), name)]
    if name in ("items", "one item"):
        cases.append(Case(graph, twice_a_turn(cases[0].candidate), f"{name}, twice a turn"))
    assert not failures(cases)


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_compute_the_same_in_the_emulator(name: str) -> None:
    graph, inputs = PROGRAMS[name], random_inputs(PROGRAMS[name], 0)
    program = cuda_program(graph, whole(graph, CudaLaunchSpace()))
    found = EmulatedPlan(EmulatedArtifact(program), orders=ORDERS[:1]).run(inputs)
    assert check(found, reference_of(graph, inputs)).ok


def judged(program: Callable[..., Any], shape: tuple[int, ...]) -> object:
    graph = normal_form(trace(program, spec(shape)))
    (n,) = (n for n, node in enumerate(graph.nodes) if node.op == "loop")
    return check_group(graph, (n,), tuple(Value(n, k) for k in range(len(graph[n].types))))


def test_rows_of_inner_loops_stay_in_memory() -> None:
    def program(x: Array) -> Any:
        def step(_: Array, y: Array) -> Any:
            _, rows = xp.scan(lambda k, z: (z * 0.5, z), y, 4)
            return xp.sum(rows, axis=0)

        return xp.fori_loop(3, step, x)

    found = judged(program, (8,))
    assert isinstance(found, Refusal) and "rows are read" in found.reason


def test_states_of_all_loops_share_the_registers() -> None:
    def program(x: Array) -> Any:
        def step(_: Array, y: Array) -> Any:
            return xp.fori_loop(3, lambda k, z: 0.1 * xp.matmul(z, y), y)

        return xp.fori_loop(3, step, x)

    assert not isinstance(judged(program, (5, 5)), Refusal)
    found = judged(program, (6, 6))  # 36 twice
    assert isinstance(found, Refusal) and "state elements" in found.reason


def test_values_are_those_of_the_loops_by_hand() -> None:
    graph = PROGRAMS["while"]
    x = np.linspace(-2.0, 2.0, 33).astype(np.float32)
    y = x.copy()
    for _ in range(3):
        z = np.abs(y) + np.float32(1.0)
        for k in range(2):
            z = z * np.float32(1.5) + np.float32(0.25 * k)
        for _ in range(9):
            z = np.where(z > 1.0, z * np.float32(0.6), z)
        y = z
    held = reference_of(graph, (x,))
    assert check((y,), held).ok
