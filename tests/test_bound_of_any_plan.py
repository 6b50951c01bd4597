"""No legal plan of small random graphs is below the bound, whatever its kernels and launches.

`scripts/bench_bounds --brute-force 200` is the long form."""

from benchmarks.brute_force import brute_rows, graph_is_small, summary
from tests.support.brute_graphs import small_graph

FEW = 8


def test_no_legal_plan_of_small_graphs_is_below_the_bound() -> None:
    rows = list(brute_rows(small_graph, FEW))
    assert summary(rows)["graphs"] == FEW and not summary(rows)["below"]
    assert any(row.gap < 0.9 for row in rows)  # and it is not nothing


def test_a_plan_below_the_bound_is_told() -> None:
    row = next(row for row in brute_rows(small_graph, FEW) if row.bounds_us[0] > 0)
    assert row.below is False
    cheaper = type(row)(
        row.seed, row.nodes, row.groups, row.bounds_us, row.least_us, 0.5 * row.bounds_us[0]
    )
    assert cheaper.below and summary([cheaper])["below"] == [row.seed]


def test_a_loop_that_is_no_kernel_and_has_a_large_body_is_left_out() -> None:
    """Its plans are too many to be tried, and without them there is none."""
    assert not graph_is_small(small_graph(442))
