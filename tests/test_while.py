"""Loops that end by what they compute: in a kernel and run by the host, on both backends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import autofuse
from autofuse import xp
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.program import cuda_program
from autofuse.backends.emulator.emulator import ORDERS, Emulated
from autofuse.baselines import BASELINES
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import check, reference_of
from autofuse.plan.fusion.legality import check_plan
from autofuse.plan.types import FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.problem import default_candidate
from search_spaces import CpuLaunchSpace, CudaLaunchSpace, FusionSpace
from tests.support.batching import Case, failures
from tests.support.seeds import examples
from tests.support.while_programs import branched, counted, halved, nested, random_batch, vmapped

PROGRAMS = {
    "halved": halved(),
    "limited": halved(most=3),
    "alone": halved(alone=True),
    "alone, limited": halved(alone=True, most=5),
    "vmapped": vmapped(),
    "counted": counted(),
    "branched": branched(),
    "nested": nested(),
}
IN_KERNELS = ("alone", "alone, limited", "counted")


def plans(graph: Graph) -> dict[str, FusionPlan]:
    """One with everything fused, and those of rules; each once."""
    found = {"fused": FusionSpace(graph).choose(lambda _, options: options[0])}
    found |= {name: baseline_plan(graph, name)[0] for name in BASELINES}
    return {name: plan for plan, name in {plan: name for name, plan in found.items()}.items()}


def cases(space: CpuLaunchSpace | CudaLaunchSpace) -> Iterator[Case]:
    for program, graph in PROGRAMS.items():
        for name, plan in plans(graph).items():
            check_plan(graph, plan)
            yield Case(graph, default_candidate(graph, plan, space, name), f"{program}: {name}")


def unrolled(case: Case, factor: int) -> Case:
    """A kernel that computes several iterations a turn."""
    launches = tuple(
        launch
        if group.body
        else LaunchConfig.of(**{**dict(launch.settings), "loop_unroll": factor})
        for group, launch in zip(case.candidate.plan.groups, case.candidate.launches, strict=True)
    )
    return replace(case, candidate=replace(case.candidate, launches=launches))


def test_plans_run_on_the_cpu() -> None:
    found = list(cases(CpuLaunchSpace()))
    fused = [c for c in found if c.label in {f"{name}: fused" for name in IN_KERNELS}]
    assert all(g.body is None for c in fused for g in c.candidate.plan.groups)
    assert any(g.body is not None for c in found for g in c.candidate.plan.groups)
    assert not failures([*found, *(unrolled(c, 2) for c in fused)])


def test_plans_run_in_the_emulator() -> None:
    found = list(cases(CudaLaunchSpace()))
    found += [unrolled(c, 2) for c in found if c.label == "alone, limited: fused"]
    programs = [cuda_program(c.graph, c.candidate) for c in found]
    kernels = Emulated(*dict.fromkeys(s.text for p in programs for s in p.sources))
    for case, program in zip(found, programs, strict=True):
        inputs = random_inputs(case.graph, 0)
        plan = EmulatedPlan(EmulatedArtifact(program), orders=ORDERS[:1], kernels=kernels)
        result = check(plan.run(inputs), reference_of(case.graph, inputs, runs=4))
        assert result.ok, f"{case.label}: {result.message}"


@settings(max_examples=examples(25), deadline=None)
@given(st.integers(0, 10**6))
def test_places_that_end_alone_compute_the_same(seed: int) -> None:
    graph = random_batch(seed)
    simple = normal_form(graph)
    loops = [n for n in simple.nodes if n.op == "while"]
    assert all(n.types[0].shape for n in loops)
    inputs = random_inputs(graph, seed)
    for found, wanted in zip(evaluate(simple, inputs), evaluate(graph, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_random_loops_on_the_cpu() -> None:
    graphs = [normal_form(random_batch(seed)) for seed in range(8)]
    found = [
        Case(g, default_candidate(g, plan, CpuLaunchSpace(), name), f"{seed}: {name}")
        for seed, g in enumerate(graphs)
        for name, plan in plans(g).items()
        if name in ("fused", "unfused", "xla-2026")
    ]
    assert not failures(found)


def halve(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`halved` for places that end alone, by hand."""
    count = np.zeros(x.shape, np.int32)
    while (x > 1).any():
        count = np.where(x > 1, count + 1, count)
        x = np.where(x > 1, x * 0.5 + y * 0.01, x)
    return x, count


def test_the_reference_ends_each_place_by_itself() -> None:
    inputs = [a.astype(np.float64) for a in random_inputs(PROGRAMS["alone"], 3)]
    for program in ("alone", "vmapped"):
        for found, wanted in zip(evaluate(PROGRAMS[program], inputs), halve(*inputs), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_reference_may_run_no_iteration_at_all() -> None:
    x, y = np.zeros(100), np.ones(100)
    for program in ("halved", "alone"):
        last, count = evaluate(PROGRAMS[program], [x, y])
        assert not last.any() and not count.any()


def test_traced_loops_and_branches() -> None:
    def program(x: Any, limit: Any) -> Any:
        found = xp.while_loop(lambda s: xp.any(s > limit), lambda s: s * 0.5, x)
        alone = xp.while_loop(lambda s: s > limit, lambda s: s * 0.5, x, max_trips=3)
        return found, alone, xp.cond(limit > 2.0, lambda v: v @ v, lambda v: v - limit, x)

    graph = autofuse.trace(program, autofuse.spec((3, 3)), autofuse.spec(()))
    x = np.arange(1.0, 10.0).reshape(3, 3)
    for limit in (2.5, 0.5):
        together, alone, chosen = evaluate(graph, [x, np.asarray(limit)])
        np.testing.assert_allclose(together, x * 0.5 ** np.ceil(np.log2(9 / limit)))
        halvings = np.clip(np.ceil(np.log2(x / limit)), 0, 3)
        np.testing.assert_allclose(alone, x * 0.5**halvings)
        np.testing.assert_allclose(chosen, x @ x if limit > 2 else x - limit)


def test_a_branch_that_is_not_taken_is_not_computed() -> None:
    inputs = random_inputs(PROGRAMS["branched"], 0)
    p, x, a, b = inputs
    for taken in (True, False):
        (found,) = evaluate(PROGRAMS["branched"], [np.asarray(taken), x, a, b])
        np.testing.assert_allclose(found, x @ (a if taken else b) + x, rtol=1e-4, atol=1e-4)
    assert p.shape == ()
