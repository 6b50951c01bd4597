"""Loops that the host runs inside each other: every kernel has a configuration of its own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from autofuse import spec, trace, xp
from autofuse.devices import DEVICES, device_named
from autofuse.graph.types import Graph
from autofuse.plan.program.schedule import Repeat, Run, Step, While, schedule
from autofuse.plan.types import (
    Candidate,
    LaunchConfig,
    PlanError,
    Setting,
    candidate_from_json,
)
from autofuse.simplify import normal_form
from autofuse.tuning.plans import plan_named
from autofuse.tuning.search.launches import launch_of, launch_text


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
    return plan_named(graph, "unfused", device_named("cpu"))


def marked(candidate: Candidate) -> Candidate:
    """Each configuration with a number of its own."""
    numbers = iter(range(1, 1 << 10))

    def number(_: LaunchConfig) -> LaunchConfig:
        return LaunchConfig.of(tile=next(numbers))

    return replace(candidate, launches=tuple(one.changed(number) for one in candidate.launches))


def test_every_kernel_of_nested_loops_has_a_configuration_of_its_own() -> None:
    graph = nested()
    made = marked(candidate(graph))
    seen = [run.launch for run in runs(schedule(graph, made).steps)]
    assert len(seen) == len(set(seen)) > 2


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
    made = marked(candidate(nested()))
    data = json.loads(made.to_json())
    (k,) = (k for k, group in enumerate(made.plan.groups) if group.body is not None)
    data["bodies"][k] = [dict(one.settings) for one in made.launches[k].inner]
    found = candidate_from_json(json.dumps(data)).launches[k]
    assert [one.settings for one in found.inner] == [o.settings for o in made.launches[k].inner]
    assert not any(one.inner for one in found.inner) and any(
        o.inner for o in made.launches[k].inner
    )


def test_a_candidate_reads_back_equal() -> None:
    made = marked(candidate(nested()))
    assert candidate_from_json(made.to_json()) == made


def test_a_kernel_configuration_reads_back_equal() -> None:
    made = marked(candidate(nested()))
    assert all(launch_of(launch_text(one)) == one for one in made.launches)


def test_a_row_of_another_length_is_refused() -> None:
    data = json.loads(candidate(nested()).to_json())
    row = next(row for row in data["bodies"] if row)
    row.append({})
    with pytest.raises(PlanError, match="launch configurations for"):
        candidate_from_json(json.dumps(data))


def test_what_is_offered_to_a_loop_is_what_is_offered_to_its_kernels() -> None:
    graph, asked = nested(), set()
    (loop,) = (g for g in candidate(graph).plan.groups if g.body is not None)

    def last(name: str, options: tuple[Setting, ...]) -> Setting:
        asked.add(name)
        return options[-1]

    made = DEVICES["cpu"].space.choose(graph, loop, last, "k")
    assert any(
        one != other
        for one, other in zip(
            made.everywhere(), DEVICES["cpu"].space.default(graph, loop).everywhere(), strict=True
        )
    )
    assert {name.split(".")[0] for name in asked} > {"k"}
