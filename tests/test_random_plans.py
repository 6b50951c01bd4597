"""Every legal plan a random walk reaches gives the reference result."""

from __future__ import annotations

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.batching import failures
from tests.support.drawn_plans import made
from tests.support.seeds import examples

# One build serves a whole batch. Nothing is shrunk: the label of a case makes it again.
EXAMPLES, BATCH = examples(6), 20
PLAN = st.tuples(st.integers(0, 2**31), st.integers(1, 30), st.integers(0, 80))
PLANS = st.lists(PLAN, min_size=BATCH, max_size=BATCH, unique=True)
BATCHES = settings(max_examples=EXAMPLES, phases=(Phase.explicit, Phase.generate))


@BATCHES
@given(PLANS)
def test_random_plans_give_the_reference_result(batch: list[tuple[int, int, int]]) -> None:
    wrong = failures([made(*drawn) for drawn in batch])
    assert not wrong, "\n".join(wrong)


@BATCHES
@given(PLANS)
def test_random_plans_of_rich_graphs(batch: list[tuple[int, int, int]]) -> None:
    wrong = failures([made(*drawn, rich=True) for drawn in batch])
    assert not wrong, "\n".join(wrong)


def test_walks_reach_fused_and_recomputing_plans() -> None:
    """The walk is worth something: it merges, it recomputes, and it leaves plans of all sizes."""
    plans = [made(seed, 20, 8 * seed).candidate.plan for seed in range(10)]
    nodes = [[n for group in plan.groups for n in group.nodes] for plan in plans]
    assert any(len(group.nodes) >= 8 for plan in plans for group in plan.groups)
    assert any(len(ns) > len(set(ns)) for ns in nodes)
    assert len({len(plan.groups) for plan in plans}) >= 4
