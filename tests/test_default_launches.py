"""Launches by default that equal kernels of a graph share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from autofuse import xp
from autofuse.frontends import spec, trace
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.tuning.plans import baseline_plan
from autofuse.tuning.search.default_launches import RecalledLaunches
from autofuse.zoo import zoo_graph
from search_spaces import CpuLaunchSpace
from search_spaces.cuda import CudaLaunchSpace

FEW, SQUARE, LARGE = spec((8, 64)), spec((64, 64)), spec((4096, 4096))
FIXED = spec((64, 64), constant=True)


class Counting(CpuLaunchSpace):
    """Counts the groups that it is asked about."""

    asked = 0

    def default(self, graph: Graph, group: FusionGroup) -> LaunchConfig:
        self.asked += 1
        return super().default(graph, group)


def around(x: Any, fixed: Any, free: Any) -> Any:
    return xp.matmul(xp.tanh(xp.matmul(x, fixed)), free)


def places(x: Any, fixed: Any, free: Any, other: Any) -> Any:
    return xp.matmul(x, fixed) + xp.matmul(other, free)


AROUND: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "constants": (around, (FEW, FIXED, SQUARE)),
    "constants at other places": (places, (FEW, FIXED, SQUARE, spec((8, 64), constant=True))),
    "results": (lambda x: xp.exp(xp.exp(x)), (LARGE,)),
}


@pytest.mark.parametrize("name", AROUND)
def test_what_is_around_equal_kernels_tells_them_apart(name: str) -> None:
    function, types = AROUND[name]
    graph, space = canonical(trace(function, *types)), CpuLaunchSpace()
    groups, recalled = baseline_plan(graph, "unfused")[0].groups, RecalledLaunches(graph, space)
    launches = [recalled.default(graph, group) for group in groups]
    assert launches == [space.default(graph, group) for group in groups]
    alike = [launch for launch, g in zip(launches, groups, strict=True) if is_large(graph, g)]
    assert len(set(alike)) == 2, "these kernels are equal, and launched each in its way"


def is_large(graph: Graph, group: FusionGroup) -> bool:
    return graph[group.nodes[-1]].op in ("dot_general", "exp")


def test_equal_kernels_are_asked_about_once() -> None:
    def blocks(x: Any, *weights: Any) -> Any:
        for weight in weights:
            x = xp.tanh(xp.matmul(x, weight))
        return x

    graph, space = canonical(trace(blocks, FEW, *[SQUARE] * 5)), Counting()
    recalled = RecalledLaunches(graph, space)
    groups = baseline_plan(graph, "unfused")[0].groups
    launches = [recalled.default(graph, group) for group in groups]
    assert (space.asked, len(groups)) == (3, 10)
    assert launches == [CpuLaunchSpace().default(graph, group) for group in groups]


@pytest.mark.parametrize("space", [CpuLaunchSpace(), CudaLaunchSpace()], ids=["cpu", "cuda"])
@pytest.mark.parametrize("name", ["convnet_block", "decode_step", "expert_routing", "gray_scott"])
def test_launches_are_those_of_the_space_itself(
    name: str, space: CpuLaunchSpace | CudaLaunchSpace
) -> None:
    graph = canonical(zoo_graph(name, "small"))
    recalled = RecalledLaunches(graph, space)
    for rules in ("unfused", "xla-2022"):
        for group in baseline_plan(graph, rules)[0].groups:
            assert recalled.default(graph, group) == space.default(graph, group)
            asked = (256, 4, True)
            assert recalled.ruled(graph, group, *asked) == space.ruled(graph, group, *asked)
