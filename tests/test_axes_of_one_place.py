"""Axes of one place (a batch of one, heads that no group has) change nothing of what kernels do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from autofuse import compile, spec, trace, xp
from autofuse.frontends.array_api.array import TracedArray
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.kernel.ir.types import Loop, Stmt
from autofuse.kernel.lower import extract, lower
from autofuse.measure.check.compare import check, reference_of
from autofuse.ops.scalar import Lit
from autofuse.plan.fusion.groups import group_of, is_source
from autofuse.plan.types import FusionGroup
from autofuse.simplify import normal_form
from search_spaces import CpuLaunchSpace

Shape = tuple[int, ...]
HEADS, LENGTH, WIDTH = 4, 24, 16
PLACES: tuple[Callable[[int, int], Shape], ...] = (
    lambda rows, columns: (1, HEADS, 1, rows, columns),
    lambda rows, columns: (1, HEADS, rows, columns),
)


def attended(shape: Callable[[int, int], Shape], by_way: bool) -> Graph:
    """Softmax of scores times values; `by_way`: what a row has one of loses its axes of one place
    on its way, as simplified programs have it."""

    def softmax(scores: TracedArray, values: TracedArray) -> TracedArray:
        def of_row(x: TracedArray) -> TracedArray:
            made = xp.reshape(x, (HEADS, LENGTH)) if by_way else x
            return xp.reshape(made, (*scores.shape[:-1], 1))

        weights = xp.exp(scores - of_row(xp.max(scores, axis=-1)))
        return (weights / of_row(xp.sum(weights, axis=-1))) @ values

    scores, values = spec(shape(LENGTH, LENGTH)), spec(shape(LENGTH, WIDTH))
    return normal_form(trace(softmax, scores, values))


def whole(graph: Graph) -> FusionGroup:
    return group_of(graph, [n for n in range(len(graph.nodes)) if not is_source(graph, n)])


def run(body: tuple[Stmt, ...]) -> int:
    """Statements that are run, lanes one by one."""
    count = 0
    for stmt in body:
        if not isinstance(stmt, Loop):
            count += 1
            continue
        trips = stmt.extent.value if isinstance(stmt.extent, Lit) else stmt.var.extent
        assert trips is not None
        count += int(trips) * run(stmt.body)
    return count


def kernel_work(graph: Graph) -> int:
    group, space = whole(graph), CpuLaunchSpace()
    return run(lower(extract(graph, group)[0], space.default(graph, group)).body)


@pytest.mark.parametrize("by_way", [False, True])
@pytest.mark.parametrize("shape", PLACES)
def test_what_a_row_has_one_of_is_computed_once_a_row(
    shape: Callable[[int, int], Shape], by_way: bool
) -> None:
    graph = attended(shape, by_way)
    plain = attended(lambda rows, columns: (HEADS, rows, columns), by_way)
    assert kernel_work(graph) == pytest.approx(kernel_work(plain), rel=0.05)
    inputs = random_inputs(graph, 3)
    found = compile(graph, device="cpu", plan="fused")(*inputs)
    result = check(tuple(np.asarray(f) for f in found), reference_of(graph, inputs))
    assert result.ok, result.message
