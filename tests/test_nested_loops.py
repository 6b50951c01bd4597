"""Loops that the host runs inside each other: every kernel has a configuration of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from autofuse import spec, trace, xp
from autofuse.devices import DEVICES
from autofuse.graph.types import Graph
from autofuse.plan.program.schedule import Repeat, Run, Step, While, schedule
from autofuse.plan.types import (
    Candidate,
    FusionPlan,
    LaunchConfig,
    PlanError,
    candidate_from_json,
    launch_count,
    launches_by_group,
)
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named
from autofuse.tuning.problem import body_launches


def nested() -> Graph:
    """Three rounds of two steps each, with a product of a matrix and a vector in every step."""

    def program(matrix: xp.TracedArray, state: xp.TracedArray) -> xp.TracedArray:
        def step(_: xp.TracedArray, x: xp.TracedArray) -> xp.TracedArray:
            return xp.tanh(xp.matmul(matrix, x))

        def turn(_: xp.TracedArray, x: xp.TracedArray) -> xp.TracedArray:
            return xp.sum(xp.fori_loop(2, step, x)) * 0.01 + x

        return xp.fori_loop(3, turn, state)

    return normal_form(trace(program, spec((300, 300)), spec((300,))))


def runs(steps: Iterable[Step]) -> Iterator[Run]:
    for step in steps:
        if isinstance(step, Run):
            yield step
        elif isinstance(step, Repeat | While):
            yield from runs(step.turns[0])


def candidate(graph: Graph) -> Candidate:
    """One kernel for each op, all loops run by the host."""
    return plan_named(graph, "unfused", device="cpu")


def marked(graph: Graph, plan: FusionPlan) -> tuple[Candidate, int]:
    """Each configuration with a number of its own, and how many there are."""
    numbers = iter(range(1, 1 << 10))

    def number(*_: object) -> LaunchConfig:
        return LaunchConfig.of(tile=next(numbers))

    launches, bodies = [], []
    for group in plan.groups:
        launches.append(number())
        bodies.append(body_launches(graph, group, number))
    return Candidate(plan, tuple(launches), tuple(bodies)), next(numbers) - 1


def test_every_kernel_of_nested_loops_has_a_configuration_of_its_own() -> None:
    graph = nested()
    made, count = marked(graph, candidate(graph).plan)
    seen = [run.launch for run in runs(schedule(graph, made).steps)]
    assert len(seen) == len(set(seen)) > 2
    assert count == launch_count(made.plan)


def test_defaults_of_inner_kernels_are_those_of_the_launch_space() -> None:
    graph = nested()
    space, found = DEVICES["cpu"].space, candidate(graph)
    products = [
        run
        for run in runs(schedule(graph, found).steps)
        if any(run.graph[n].op == "dot_general" for n in run.group.nodes)
    ]
    assert products
    for run in products:
        assert run.launch == space.default(run.graph, run.group) != LaunchConfig()


def test_a_candidate_stored_before_gives_inner_kernels_the_configuration_of_their_loop() -> None:
    graph = nested()
    (loop,) = (g for g in candidate(graph).plan.groups if g.body is not None)
    assert loop.body is not None
    row = [LaunchConfig.of(tile=k) for k in range(len(loop.body.groups))]
    pairs = launches_by_group(loop.body, row)
    assert [own for own, _ in pairs] == row
    assert any(inner for _, inner in pairs)
    assert all(set(inner) <= {own} for own, inner in pairs)


def test_a_candidate_reads_back_equal() -> None:
    graph = nested()
    made, _ = marked(graph, candidate(graph).plan)
    assert candidate_from_json(made.to_json()) == made


def test_a_row_of_another_length_is_refused() -> None:
    graph = nested()
    (loop,) = (g for g in candidate(graph).plan.groups if g.body is not None)
    assert loop.body is not None
    with pytest.raises(PlanError, match="launch configurations for"):
        launches_by_group(loop.body, [LaunchConfig()] * (launch_count(loop.body) + 1))
