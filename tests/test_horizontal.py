"""Horizontal fusion of given plans: what an optimiser step gets where launches are dear."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.program import KernelLaunch, cuda_program
from autofuse.devices import device_named
from autofuse.enumerate.enumeration import enumerate_groups
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph, Value
from autofuse.plan.fusion.horizontal import side_by_side
from autofuse.plan.fusion.legality import check_group, check_plan
from autofuse.plan.types import FusionGroup, FusionPlan
from autofuse.simplify import normal_form
from autofuse.tuning.plans import UNTUNED, baseline_plan, plan_named
from autofuse.tuning.search.candidates import candidate_kernels
from autofuse.tuning.search.regions import starts
from autofuse.zoo import zoo_graph


@pytest.fixture(scope="module")
def adam() -> Graph:
    return normal_form(zoo_graph("adam_16"))


def test_an_optimiser_step_that_was_never_tuned_is_one_launch_on_cuda(adam: Graph) -> None:
    assert len(baseline_plan(adam, "xla-2022")[0].groups) == 16
    program = cuda_program(adam, plan_named(adam, UNTUNED, device_named("cuda-emulated")))
    (launch,) = program.actions
    assert isinstance(launch, KernelLaunch) and launch.geometry.grid > TARGETS["H100"].sms
    compiled = autofuse.compile(
        zoo_graph("adam_16", "small"), device="cuda-emulated", db=":memory:"
    )
    assert compiled.origin == UNTUNED and len(compiled.candidate.plan.groups) == 1
    inputs = random_inputs(compiled.graph, 0)
    wanted = evaluate(compiled.graph, inputs)
    for found, right in zip(compiled(*inputs), wanted, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)


def test_the_search_has_it_among_its_candidates(adam: Graph) -> None:
    plan = baseline_plan(adam, "xla-2022")[0]
    calibration = device_named("cuda-emulated").calibrate()
    found = candidate_kernels(adam, [plan], calibration)
    assert set(side_by_side(adam, plan).groups) <= set(found.groups)
    assert set(plan.groups) <= set(found.groups)


def test_planning_by_windows_starts_from_the_least_bounds(adam: Graph) -> None:
    plan = baseline_plan(adam, "xla-2022")[0]
    found = candidate_kernels(adam, [plan], device_named("cuda-emulated").calibrate())
    bounds = dict(zip(found.groups, found.bounds_us, strict=True))
    assert starts(adam, [plan], [], bounds) == [side_by_side(adam, plan), plan]
    assert starts(adam, [plan], [], dict.fromkeys(plan.groups, 1.0)) == [plan]


def updates(count: int) -> Graph:
    """So many small arrays, each updated from one of its own."""

    def fn(p: list[Array], g: list[Array]) -> list[Array]:
        return [a - 0.1 * b for a, b in zip(p, g, strict=True)]

    shapes = [spec((8 + k,)) for k in range(count)]
    return canonical(trace(fn, shapes, shapes))


@pytest.mark.parametrize("count", [3, 7, 13])
def test_what_is_left_over_is_packed_too(count: int) -> None:
    """With no plan to start from: any number of kernels, not powers of two only."""
    found = enumerate_groups(updates(count))
    assert max(len(group.outputs) for group in found.groups) == count


def test_only_kernels_that_nobody_or_the_same_wait_for_are_joined() -> None:
    def fn(x: Array, y: Array, z: Array) -> tuple[Array, Array, Array]:
        a, b = xp.exp(x), xp.exp(y)
        return xp.matmul(a, b), xp.sin(z), xp.cos(a)

    graph = canonical(trace(fn, *[spec((64, 64))] * 3))
    ops = [node.op for node in graph.nodes]
    x, y = (n for n, op in enumerate(ops) if op == "exp")
    alone = {n: FusionGroup((n,), (Value(n),)) for n, op in enumerate(ops) if op != "input"}
    plan = FusionPlan(tuple(alone.values()))
    found = side_by_side(graph, plan)
    check_plan(graph, found)
    named = {tuple(ops[n] for n in group.nodes) for group in found.groups}
    assert named == {("exp",), ("dot_general",), ("sin", "cos")} or named == {
        ("exp",), ("dot_general",), ("cos", "sin"),
    }  # fmt: skip
    assert {(x,), (y,)} <= {g.nodes for g in found.groups}, "cos waits for one of them only"


def test_parts_that_read_nothing_in_common_keep_their_own_items() -> None:
    """A matrix and a vector as long as its rows: one domain would have 64 items of 64 columns."""

    def fn(w: Array, b: Array) -> tuple[Array, Array]:
        return xp.exp(w), xp.exp(b)

    graph = canonical(trace(fn, spec((512, 64)), spec((64,))))
    nodes = tuple(n for n, node in enumerate(graph.nodes) if node.op == "exp")
    verdict = check_group(graph, nodes, tuple(map(Value, nodes)))
    assert isinstance(verdict, tuple)
    assert sorted(form.items for form in verdict) == [64, 512 * 64]


def test_parts_that_read_one_array_still_share_it() -> None:
    def fn(x: Array) -> tuple[Array, Array]:
        return xp.exp(x), xp.sum(x, axis=1)

    graph = canonical(trace(fn, spec((512, 640))))
    nodes = tuple(n for n, node in enumerate(graph.nodes) if node.op != "input")
    verdict = check_group(graph, nodes, graph.outputs)
    assert isinstance(verdict, tuple) and len(verdict) == 1


def test_bodies_of_host_loops_are_packed_too() -> None:
    graph = canonical(zoo_graph("cartpole_naive", "small"))
    plan, _ = baseline_plan(graph, "unfused")
    found = side_by_side(graph, plan)
    check_plan(graph, found)

    def kernels(plan: FusionPlan) -> int:
        return sum(1 if g.body is None else kernels(g.body) for g in plan.groups)

    assert kernels(found) < kernels(plan)
