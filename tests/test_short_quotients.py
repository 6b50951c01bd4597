"""Lanes that call functions divide positions as numbers of 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse
from autofuse import spec, xp
from autofuse.graph.reference import evaluate, random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.lower import extract, lower
from autofuse.kernel.passes import C_PASSES, run_passes, short_quotients
from autofuse.kernel.passes.short_quotients import VECTOR_FUNCTIONS
from autofuse.kernel.render import render_c
from autofuse.kernel.text.dialects import C
from autofuse.plan.types import Candidate, FusionGroup, FusionPlan, LaunchConfig
from autofuse.simplify import normal_form
from tests.support.batching import quick_library


def turned(function: str) -> Graph:
    """A function of an array of many rows of seven by three, less a row."""

    def program(x: object, y: object) -> object:
        return getattr(xp, function)(x) - y

    return normal_form(autofuse.trace(program, spec((50, 7, 3)), spec((7, 3))))


def whole(graph: Graph) -> Candidate:
    """Everything in one kernel."""
    nodes = tuple(i for i, n in enumerate(graph.nodes) if n.op not in ("input", "constant"))
    return Candidate(FusionPlan((FusionGroup(nodes, graph.outputs),)), (LaunchConfig(),), "test")


def text(graph: Graph) -> str:
    (group,) = whole(graph).plan.groups
    return render_c(lower(extract(graph, group)[0], LaunchConfig(), "KERNEL"))


def test_a_lane_that_calls_a_function_divides_short_numbers() -> None:
    assert "% 21" in text(turned("sin")) and "(uint32_t)" in text(turned("sin"))


def test_other_lanes_stay_as_they_are() -> None:
    assert "% 21" in text(turned("abs")) and "(uint32_t)" not in text(turned("abs"))


def test_what_does_not_fit_stays_wide() -> None:
    graph = normal_form(autofuse.trace(lambda x, y: xp.sin(x) - y, spec((2**31, 7)), spec((7,))))
    assert "(uint32_t)" not in text(graph)


@pytest.mark.parametrize("function", ["sin", "exp", "abs"])
def test_the_results_are_the_same(function: str) -> None:
    graph = turned(function)
    inputs = random_inputs(graph, 3)
    with quick_library(graph, whole(graph)) as library:
        (found,) = (np.empty(t.shape, np.float32) for t in graph.output_types)
        library.run(inputs, [found])
    assert np.allclose(found, evaluate(graph, inputs)[0], rtol=1e-5, atol=1e-6)


def test_the_pass_changes_nothing_where_it_was_applied() -> None:
    (group,) = whole(turned("sin")).plan.groups
    kernel = run_passes(lower(extract(turned("sin"), group)[0], LaunchConfig(), "K"), C_PASSES)
    assert short_quotients(kernel) == kernel


def test_the_prelude_has_every_function_that_is_named() -> None:
    for name in VECTOR_FUNCTIONS:
        assert f"({name})" in C.prelude or f"af_{name}_f32" in C.prelude
