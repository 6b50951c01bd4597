"""Tiles whose rows or columns are several axes, written by the same kernel in any order of them."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from autofuse import trace
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec
from autofuse.graph.canonical import canonical
from autofuse.plan.types import Candidate, FusionPlan
from search_spaces import CpuLaunchSpace
from tests.support.batching import Case, failures
from tests.support.tile_launches import launch_of
from tests.support.tile_programs import Program, whole


def convolved(x: Any, w: Any) -> Any:
    return xp.conv(x, w, padding=1)


def multiplied(x: Any, w: Any) -> Any:
    return xp.tensordot(x, w, 1)


def gated(x: Any, w: Any, v: Any) -> Any:
    """The columns of one product lie in another order than those of the other."""
    return xp.tensordot(x, w, 1) * xp.permute_dims(xp.tensordot(x, v, 1), (0, 2, 1))


PROGRAMS: dict[str, Program] = {
    "convolution": (convolved, ((5, 4, 7), (6, 4, 3))),
    "convolution of equal extents": (convolved, ((3, 4, 3), (3, 4, 3))),
    "product": (multiplied, ((2, 3, 7), (7, 4, 5))),
    "product of equal extents": (multiplied, ((3, 3, 7), (7, 3, 3))),
    "two products": (gated, ((2, 7), (7, 3, 5), (7, 5, 3))),
    "two products of equal extents": (gated, ((2, 7), (7, 3, 3), (7, 3, 3))),
}


@pytest.mark.wide(6)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("settings", [{}, {"walk": True, "pack": False}, {"prepack": True}])
def test_results_are_written_in_any_order_of_axes(name: str, settings: dict[str, Any]) -> None:
    function, shapes = PROGRAMS[name]
    cases = []
    for perm in permutations(range(function_rank(name))):
        graph = canonical(
            trace(
                lambda *arrays, p=perm: xp.permute_dims(function(*arrays), p) + 1.0,
                *map(spec, shapes),
            )
        )
        assert CpuLaunchSpace().kind(graph, whole(graph)) == "product", perm
        plan = Candidate(FusionPlan((whole(graph),)), (launch_of(**settings),))
        cases.append(Case(graph, plan, f"{name} as {perm}"))
    assert failures(cases) == []


def function_rank(name: str) -> int:
    function, shapes = PROGRAMS[name]
    return len(trace(function, *map(spec, shapes)).output_types[0].shape)
