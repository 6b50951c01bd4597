"""Many small products are not calls of a library, one for each."""

from __future__ import annotations

import pytest

import autofuse
from autofuse import spec, xp
from autofuse.cost.bounds import NOMINAL, usual_peaks
from autofuse.cost.expected import CALL_US, expected_us
from autofuse.graph.types import Graph, Value
from autofuse.kernel.library.gemm import library_of
from autofuse.kernel.text.dialects import C
from autofuse.plan.parameters import BLAS, C_IMPL
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.simplify import normal_form
from search_spaces.cpu import CpuLaunchSpace


def product(batch: int, m: int, k: int, n: int) -> tuple[Graph, FusionGroup]:
    """A batch of matrix products and the group that is it."""
    graph = normal_form(
        autofuse.trace(lambda a, b: xp.matmul(a, b), spec((batch, m, k)), spec((batch, k, n)))
    )
    (node,) = (i for i, n in enumerate(graph.nodes) if n.op == "dot_general")
    return graph, FusionGroup((node,), (Value(node),))


@pytest.mark.parametrize(
    ("sizes", "library"),
    [
        ((128, 1, 3, 1), ""),
        ((128, 3, 3, 3), ""),
        ((8, 256, 256, 256), BLAS),
        ((1, 24, 8, 8), BLAS),
    ],
)
def test_who_computes_products_by_default(sizes: tuple[int, int, int, int], library: str) -> None:
    graph, group = product(*sizes)
    launch = CpuLaunchSpace().default(graph, group)
    assert library_of(graph, group, launch, C) == library


def test_each_call_of_a_library_costs_time() -> None:
    graph, group = product(1000, 2, 2, 2)
    by_library = LaunchConfig(((C_IMPL.name, BLAS), ("threads", 1)))
    assert expected_us(graph, group, by_library, usual_peaks(2)) >= 1000 * CALL_US
    # Peaks without those of one thread are a GPU's, where one call does them all.
    assert expected_us(graph, group, by_library, NOMINAL) < 1000 * CALL_US
