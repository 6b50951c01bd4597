"""What fused stencils are expected to take: values computed again, and halos of tiles."""

from __future__ import annotations

import pytest

from autofuse.cost.bounds import NOMINAL, group_bound_us
from autofuse.cost.expected import expected_us
from autofuse.cost.repeated import LANE_BY_LANE, kept_bytes, repeated_work
from autofuse.cost.work import group_work
from autofuse.graph.types import Graph, Value
from autofuse.plan.types import FusionGroup, LaunchConfig
from autofuse.simplify import normal_form
from autofuse.tuning.plans import baseline_plan
from autofuse.zoo import zoo_graph
from search_spaces import FusionSpace
from search_spaces.launch import first_option
from tests.support.stencils import STEPS, chain
from tests.support.unrolled_plans import fused

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
    assert not list(kept_bytes(graph, whole(graph), by(0)))


def test_what_does_nothing_twice_is_expected_to_take_its_bound() -> None:
    graph = chain(STEPS["rolled"], (256, 64), 1)
    assert repeated_work(graph, whole(graph), by(0)).special == 0
    assert not list(kept_bytes(graph, whole(graph), by(0)))


def test_what_lanes_along_a_row_compute_again_costs_one_by_one() -> None:
    """A sum is read at 25 places of a step of a lattice: in one kernel every lane sums again."""
    lattice = normal_form(zoo_graph("lattice_boltzmann", "small"))
    (loop,) = (n for n, node in enumerate(lattice.nodes) if node.op == "loop")
    body = lattice.call(loop)["body"]
    (step,) = FusionSpace(body).choose(first_option).groups
    assert repeated_work(body, step, LaunchConfig()).cheap > LANE_BY_LANE * least(body, step)
    apart = baseline_plan(body, "unfused")[0]
    assert all(repeated_work(body, one, LaunchConfig()).cheap == 0 for one in apart.groups)


def least(graph: Graph, group: FusionGroup) -> float:
    return group_work(graph, group.nodes, group.outputs).cheap
