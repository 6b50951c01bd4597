"""States of host loops take turns in buffers: what an iteration hands on is not copied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from autofuse.graph.loops import LoopWriter
from autofuse.graph.types import Graph
from autofuse.graph.writer import GraphWriter
from autofuse.limits import usable_cores
from autofuse.plan.program.rotation import MOST_TURNS, Ring, rings_of
from autofuse.plan.program.schedule import (
    Copy,
    Repeat,
    Schedule,
    Step,
    While,
    kernel_runs,
    schedule,
)
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.search.launches import LaunchProblem, proposals
from search_spaces import CpuLaunchSpace
from tests.support.batching import Case, failures
from tests.support.rotations import DRAWN, F32, LEAPFROG, New, case_of, looping


def loop_of(found: Schedule) -> Repeat | While:
    (loop,) = (step for step in found.steps if isinstance(step, Repeat | While))
    return loop


def copies(steps: tuple[Step, ...]) -> int:
    return sum(isinstance(step, Copy) for step in steps)


@pytest.mark.parametrize("ends", [False, True])
def test_every_way_of_handing_on_gives_the_reference_result(ends: bool) -> None:
    wrong = failures([case_of(news, trip, ends) for news in DRAWN for trip in (2, 5)])
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize(
    ("news", "turns", "copied"),
    [
        (LEAPFROG, 3, 0),
        ([1, "new"], 3, 0),
        ([1, 0], 2, 0),
        (["new", 0, "new"], 6, 0),
        (["new", 0, 0], 6, 1),
        (["row"], 1, 0),
        (["row", "new"], 2, 0),
    ],
)
def test_turns_and_copies(news: list[New], turns: int, copied: int, ends: bool) -> None:
    case = case_of(news, 12, ends)
    # The flag of a loop that ends by one takes turns in two buffers.
    expected = np.lcm(turns, 2) if ends else turns
    loop = loop_of(schedule(case.graph, case.candidate))
    assert len(loop.turns) == expected
    assert {copies(turn) for turn in loop.turns} == {copied}


def test_a_leapfrog_writes_straight_to_its_results() -> None:
    """With three buffers for two states, two of them are those of the results."""
    case = case_of(LEAPFROG, 7, False)
    found = schedule(case.graph, case.candidate)
    written = [run.writes[0] for turn in loop_of(found).turns for run in kernel_runs(turn)]
    assert len(set(written)) == 3 and {ref.space for ref in written} == {"work", "out"}
    assert copies(found.steps) == 1, "the caller's array stays; the other one is ours"


@settings(max_examples=60, phases=(Phase.explicit, Phase.generate))
@given(st.lists(st.integers(-1, 5), min_size=1, max_size=6))
def test_rings_hold_every_state_once_and_find_it_where_it_was_left(drawn: list[int]) -> None:
    news: list[New] = [k if 0 <= k < len(drawn) else "new" for k in drawn]
    graph = looping(news, 2, False)
    body: Graph = graph.call(graph.outputs[0].node)["body"]
    rings = rings_of(body, len(news), {})
    assert sorted(k for ring in rings for k in ring.states) == list(range(len(news)))
    for ring in rings:
        for t in range(ring.buffers):
            slots = [ring.slot(i, t) for i in range(len(ring.states))]
            assert len(set(slots)) == len(slots)
            handed = [ring.slot(i + 1, t + 1) for i in range(len(ring.states) - 1)]
            assert handed == slots[:-1]


def test_too_many_turns_are_copies_instead() -> None:
    w = GraphWriter()
    loop = LoopWriter(w, 3)
    states = [loop.state(w.input(f"x{k}", (4,), F32)) for k in range(7)]
    b = loop.body
    new = [b.op("sin", states[0]), *states[:2], b.op("cos", states[3]), *states[3:6]]
    body: Graph = (g := w.build(loop.finish(new))).call(g.outputs[0].node)["body"]
    assert MOST_TURNS < 20 and rings_of(body, 7, {}) == tuple(Ring((k,), 2) for k in range(7))


def in_one_job(case: Case) -> Case:
    """The loop as one job of two threads."""
    shared = LaunchConfig.of(threads=2, tile=8)
    launches = tuple(
        LaunchConfig((("resident", True),), (shared,) * len(group.body.groups))
        if group.body
        else shared
        for group in case.candidate.plan.groups
    )
    made = replace(case.candidate, launches=launches)
    return Case(case.graph, made, f"{case.label} in one job")


def test_a_loop_may_be_one_job() -> None:
    cases = [in_one_job(case_of(news, trip, False)) for news in DRAWN[:8] for trip in (1, 7)]
    steps = [loop_of(schedule(case.graph, case.candidate)) for case in cases]
    assert sum(isinstance(step, Repeat) and step.resident for step in steps) >= 10
    wrong = failures(cases)
    assert not wrong, "\n".join(wrong)


def test_the_space_offers_it() -> None:
    case = case_of(LEAPFROG, 7, False)
    (group,) = (g for g in case.candidate.plan.groups if g.body)
    found = LaunchProblem(case.graph, group, CpuLaunchSpace())
    asked = {key for proposal in proposals(found) for key, _ in proposal.choices}
    own = {key for key in asked if key.startswith("k.")}
    assert own == ({"k.body.resident.False/True"} if usable_cores() > 1 else set())
    assert any(key.startswith("k0.") for key in asked)
