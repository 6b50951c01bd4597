"""Which launches must stay in order: against every pair compared, and on random plans."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.backends.cuda.build import CudaArtifact
from autofuse.backends.cuda.devices import DEFAULT_TARGET
from autofuse.backends.cuda.emulated import EmulatedArtifact, EmulatedPlan
from autofuse.backends.cuda.launch import CudaPlan
from autofuse.backends.cuda.ordering import every, places, singles
from autofuse.backends.cuda.program import CudaProgram, KernelLaunch, cuda_program
from autofuse.backends.emulator.emulator import ORDERS, Emulated
from autofuse.baselines import BASELINES
from autofuse.plan.program.dependencies import WINDOW, Access, ByteRange, dependencies
from autofuse.plan.types import Candidate
from autofuse.zoo import zoo_graph
from search_spaces.cuda import CudaLaunchSpace
from tests.support.drawn_plans import made
from tests.support.emulated_plans import on_cuda
from tests.support.fake_cuda import FakeDriver
from tests.support.seeds import seeds

MEMORIES = (("work", 0), ("out", 0), ("out", 1))
SPANS = st.builds(
    lambda memory, start, size: ByteRange(memory, start, start + size),
    st.sampled_from(MEMORIES), st.integers(0, 12), st.integers(0, 5),
)  # fmt: skip
ACCESSES = st.builds(
    Access, st.lists(SPANS, max_size=3).map(tuple), st.lists(SPANS, max_size=2).map(tuple)
)


def clash(a: Access, b: Access) -> bool:
    """Whether the two touch a byte that one of them writes."""
    pairs = [(x, y) for x in a.writes for y in (*b.reads, *b.writes)]
    pairs += [(x, y) for x in a.reads for y in b.writes]
    return any(x.memory == y.memory and max(x.start, y.start) < min(x.end, y.end) for x, y in pairs)


def before(order: Sequence[Sequence[int]]) -> list[set[int]]:
    """All that come before each step."""
    found: list[set[int]] = []
    for after in order:
        found.append({m for own in after for m in (own, *found[own])})
    return found


@given(st.lists(ACCESSES, max_size=12))
def test_steps_are_in_order_if_and_only_if_they_must_be(steps: list[Access]) -> None:
    found = dependencies(steps)
    every_pair = [[m for m in range(n) if clash(steps[m], step)] for n, step in enumerate(steps)]
    assert before(found) == before(every_pair)
    for after, known in zip(found, (before(found)[m] for m in range(len(steps))), strict=True):
        assert list(after) == sorted(after, reverse=True) and set(after) <= known
        indirect = {m for own in after for m in before(found)[own]}
        assert not indirect & set(after), "what follows from the rest is not said"


def test_far_steps_are_still_in_order() -> None:
    """Beyond the window an edge may be one too many, but none is missing."""
    first = Access((), (ByteRange(("out", 0), 0, 8),))
    middle = Access((ByteRange(("work", 0), 0, 4),), (ByteRange(("work", 0), 0, 4),))
    last = Access((ByteRange(("out", 0), 4, 8), ByteRange(("work", 0), 0, 4)), ())
    found = dependencies([first, *[middle] * (WINDOW + 5), last])
    assert found[-1] == (WINDOW + 5, 0)
    assert all(after == (n,) for n, after in enumerate(found[2:-1], 1))


def test_many_steps_take_no_time_to_compare_each_with_each() -> None:
    rows = [
        Access((ByteRange(("in", 0), 0, 4),), (ByteRange(("out", 0), 4 * n, 4 * n + 4),))
        for n in range(20_000)
    ]
    assert not any(dependencies(rows))


def loaded(program: CudaProgram, driver: FakeDriver) -> CudaPlan:
    symbols = {one.symbol for one in every(program.actions) if isinstance(one, KernelLaunch)}
    cubins = tuple((symbol, Path(os.devnull)) for symbol in sorted(symbols))
    artifact = CudaArtifact(
        program.target, cubins, program.actions, program.owners, program.groups, program.inputs,
        program.outputs, program.constants, program.workspace, program.scratch, program.trips, (),
    )  # fmt: skip
    plan = CudaPlan(artifact, driver)
    for launch in every(program.actions):
        if isinstance(launch, KernelLaunch):
            plan._functions[launch.symbol] = launch.symbol
            driver.bytes[launch.symbol] = tuple(
                (a.size * a.dtype.itemsize, a.written) for a in launch.arguments
            )
    return plan


def random_program(seed: int) -> CudaProgram:
    """A plan of mostly small kernels; every other one with products, half types and loops."""
    case = on_cuda(made(seed, 8 + seed % 16, seed % 12, rich=seed % 2 == 1), seed)
    return cuda_program(case.graph, case.candidate)


@pytest.mark.wide(14)
@pytest.mark.parametrize("seed", seeds(40))
def test_no_two_launches_of_a_random_plan_race(seed: int) -> None:
    program, driver = random_program(seed), FakeDriver()
    plan = loaded(program, driver)
    arrays = [[driver.empty(t) for t in types] for types in (program.inputs, program.outputs)]
    plan.graph(*([driver.pointer(array) for array in own] for own in arrays))


def test_random_plans_have_launches_that_may_overlap_and_some_that_may_not() -> None:
    free = tied = early = 0
    for seed in range(20):
        found = places(tuple(singles(random_program(seed).actions)))
        order = [place.after for place in found]
        free += sum(1 for n, known in enumerate(before(order)) if len(known) < n)
        tied += sum(map(len, order))
        early += sum(place.early for place in found)
    assert min(free, tied) > 50 and early > 5, (free, tied, early)


def last_first(program: CudaProgram) -> CudaProgram:
    """The same with its launches in the order of their edges, and else the last one first."""
    launches = tuple(singles(program.actions))
    left = {n: place.after for n, place in enumerate(places(launches))}
    order: list[int] = []
    while left:
        order.append(max(n for n, after in left.items() if not any(m in left for m in after)))
        del left[order[-1]]
    return replace(program, actions=tuple(launches[n] for n in order))


def test_plans_give_the_same_in_any_order_that_their_edges_allow() -> None:
    programs = [random_program(seed) for seed in seeds(30)]
    kernels = Emulated(*dict.fromkeys(s.text for p in programs for s in p.sources))
    moved = 0
    for program in programs:
        rng = np.random.default_rng(0)
        inputs = [(rng.random(t.shape) * 4).astype(t.dtype.numpy) for t in program.inputs]
        other = last_first(program)
        moved += other.actions != tuple(singles(program.actions))
        found = (
            EmulatedPlan(EmulatedArtifact(own), orders=ORDERS[:1], kernels=kernels).run(inputs)
            for own in (program, other)
        )
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert moved > 15


def test_updates_of_unrelated_parameters_may_all_overlap() -> None:
    graph = zoo_graph("adam_16")
    plan = BASELINES["xla-2026"](graph).plan
    space = CudaLaunchSpace(DEFAULT_TARGET)
    launches = tuple(space.default(graph, group) for group in plan.groups)
    program = cuda_program(graph, Candidate(plan, launches))
    assert [place.after for place in places(tuple(singles(program.actions)))] == [()] * 16
