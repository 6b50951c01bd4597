"""Host loops as one CUDA kernel, whose blocks meet after each kernel of an iteration."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from autofuse.backends.base import LaunchError
from autofuse.backends.cuda.devices import TARGETS
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.facts import parse_log
from autofuse.backends.cuda.nvrtc import compile_cubin
from autofuse.backends.cuda.program import CudaProgram, KernelLaunch, LoopAction, cuda_program
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.array import TracedArray as Array
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.plan.parameters import RESIDENT, Setting
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.plans import baseline_candidate
from search_spaces import CudaLaunchSpace
from tests.support.batching import Case
from tests.support.rotations import DRAWN, LEAPFROG, New, case_of

SMALL = LaunchConfig.of(threads=64, items=1)
MEETING = "af_wait_for_all(work_"


def with_launches(case: Case, resident: bool, body: LaunchConfig = SMALL) -> Case:
    launches = tuple(
        LaunchConfig((("resident", resident),), (body,) * len(group.body.groups))
        if group.body
        else SMALL
        for group in case.candidate.plan.groups
    )
    return replace(case, candidate=replace(case.candidate, launches=launches))


def program_of(case: Case) -> CudaProgram:
    return cuda_program(case.graph, case.candidate)


def loops_of(made: CudaProgram) -> list[KernelLaunch]:
    """The launches whose blocks meet."""
    found = [a for a in made.actions if isinstance(a, KernelLaunch)]
    return [a for a in found if a.geometry.cooperative]


def run(made: CudaProgram, inputs: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return EmulatedPlan(EmulatedArtifact(made)).run(inputs)


@pytest.mark.parametrize("news", [DRAWN[0], DRAWN[1], DRAWN[11]], ids=str)
@pytest.mark.parametrize("trip", [1, 4])
def test_one_kernel_does_what_its_launches_do(news: list[New], trip: int) -> None:
    case = case_of(news, trip, False)
    made = program_of(with_launches(case, True))
    inputs = random_inputs(case.graph, 5)
    assert len(loops_of(made)) == 1 and not any(isinstance(a, LoopAction) for a in made.actions)
    found = run(made, inputs)
    other = run(program_of(with_launches(case, False)), inputs)
    for one, same, wanted in zip(found, other, evaluate(case.graph, inputs), strict=True):
        np.testing.assert_array_equal(one, same)
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-6)


def without_a_meeting(made: CudaProgram) -> CudaProgram:
    """Blocks go on as soon as their own work is done."""
    sources = []
    for source in made.sources:
        lines = [line for line in source.text.split("\n") if MEETING not in line]
        sources.append(replace(source, text="\n".join(lines)))
    assert [s.text for s in sources] != [s.text for s in made.sources]
    return replace(made, sources=tuple(sources))


def test_a_missing_meeting_is_caught() -> None:
    case = with_launches(case_of(LEAPFROG, 4, False), True)
    made = program_of(case)
    (loop,) = loops_of(made)
    assert loop.geometry.grid > 1
    with pytest.raises(LaunchError, match=r"race on all_|depends on the order"):
        run(without_a_meeting(made), random_inputs(case.graph, 5))


def rows_in_a_loop(x: Array) -> Array:
    def step(_: Array, v: Array) -> Array:
        return xp.sin(v) - xp.mean(v, axis=1, keepdims=True)

    return xp.fori_loop(3, step, x)


def products_in_a_loop(x: Array) -> Array:
    return xp.fori_loop(3, lambda _, v: xp.sin(v @ x), x)


def planned(shape: tuple[int, int], body: LaunchConfig = SMALL) -> Case:
    graph = canonical(trace(rows_in_a_loop, spec(shape)))
    candidate, _ = baseline_candidate(graph, "unfused", CudaLaunchSpace())
    return with_launches(Case(graph, candidate, "rows"), True, body)


def test_kernels_of_several_blocks_fold_in_it() -> None:
    case = planned((40, 24))
    made = program_of(case)
    inputs = random_inputs(case.graph, 6)
    (loop,) = loops_of(made)
    assert loop.geometry.grid > 1
    (found,) = run(made, inputs)
    np.testing.assert_allclose(found, evaluate(case.graph, inputs)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_nvrtc_compiles_it_so_that_all_blocks_are_there(arch: str) -> None:
    target = next(t for t in TARGETS.values() if t.arch == arch)
    case = planned((4096, 256), LaunchConfig.of(threads=256, items=4))
    made = cuda_program(case.graph, case.candidate, target)
    (loop,) = loops_of(made)
    (source,) = (s for s in made.sources if s.name == loop.symbol)
    cubin, log = compile_cubin(source.text, arch, (*source.flags, "--ptxas-options=-v"))
    facts = parse_log(log)[loop.symbol]
    each = loop.geometry.grid // target.sms
    assert cubin and facts.spilled == 0
    assert each >= 1 and facts.registers * loop.geometry.block * each <= target.registers_per_sm


def test_what_cannot_be_one_kernel_is_launched_as_before() -> None:
    """Data end a loop, or a library has a part in it."""
    ended = with_launches(case_of(LEAPFROG, 4, True), True)
    assert not loops_of(program_of(ended))
    graph = canonical(trace(products_in_a_loop, spec((8, 8))))
    candidate, _ = baseline_candidate(graph, "unfused", CudaLaunchSpace())
    case = with_launches(Case(graph, candidate, "product"), True, LaunchConfig())
    made = program_of(case)
    assert sum(isinstance(a, LoopAction) for a in made.actions) == 1
    inputs = random_inputs(graph, 7)
    (found,) = run(made, inputs)
    np.testing.assert_allclose(found, evaluate(graph, inputs)[0], rtol=1e-5, atol=1e-6)


def test_it_is_offered_where_iterations_are_counted() -> None:
    for ends in (False, True):
        case = case_of(LEAPFROG, 4, ends)
        (group,) = (g for g in case.candidate.plan.groups if g.body)
        asked: dict[str, tuple[Setting, ...]] = {}

        def ask(
            name: str, options: tuple[Setting, ...], asked: dict[str, tuple[Setting, ...]] = asked
        ) -> Setting:
            asked[name] = options
            return options[0]

        CudaLaunchSpace().choose(case.graph, group, ask, "k")
        wanted = {} if ends else {f"k.body.{RESIDENT.name}.False/True": (False, True)}
        assert {k: v for k, v in asked.items() if k.startswith("k.")} == wanted
