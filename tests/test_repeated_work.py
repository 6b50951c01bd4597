"""What fused stencils are expected to take: values computed again, and halos of tiles."""

from __future__ import annotations

import pytest
from stencils import STEPS, chain
from unrolled_plans import fused

from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.cost.expected import expected_us
from autofuse.cost.repeated import kept_us, repeated_work
from autofuse.cost.work import group_work
from autofuse.graph.types import Graph, Value
from autofuse.plan.types import FusionGroup, LaunchConfig

SHAPES = [(256, 64), (1 << 14,)]


def whole(graph: Graph) -> FusionGroup:
    (group,) = fused(graph).groups
    return group


def by(rows: int) -> LaunchConfig:
    return LaunchConfig.of(halo=rows)


def tanh_again(graph: Graph, rows: int) -> float:
    """Times that the tanh of a step is computed again, over all steps."""
    (at, *_) = (n for n, node in enumerate(graph.nodes) if node.op == "tanh")
    once = group_work(graph, (at,), (Value(at),)).special
    return repeated_work(graph, whole(graph), by(rows)).special / once


@pytest.mark.parametrize("shape", SHAPES)
def test_halos_cost_less_the_larger_the_tile(shape: tuple[int, ...]) -> None:
    graph = chain(STEPS["rolled"], shape, 3)
    unit = 1 if len(shape) > 1 else 128
    # Of three steps the first is computed two rows to either side, the second one.
    for rows in (8, 64):
        assert tanh_again(graph, rows) == pytest.approx(6 / (rows * unit))
    least = [expected_us(graph, whole(graph), by(rows), NOMINAL) for rows in (8, 64)]
    assert least[0] > least[1] > group_bound_us(graph, whole(graph), NOMINAL)


def test_items_compute_a_stencil_of_stencils_at_every_place() -> None:
    """In two dimensions 5 points have 13 around them in all."""
    graph = chain(STEPS["shrinking"], (256, 66), 3)
    assert 14 < tanh_again(graph, 0) < 4 + 12, "less of what an item has no part of"
    assert not kept_us(graph, whole(graph), by(0), NOMINAL)


def test_what_does_nothing_twice_is_expected_to_take_its_bound() -> None:
    graph = chain(STEPS["rolled"], (256, 64), 1)
    assert repeated_work(graph, whole(graph), by(0)).special == 0
    assert kept_us(graph, whole(graph), by(0), NOMINAL) == 0
