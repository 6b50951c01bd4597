"""No legal plan of small random graphs is below the bound, whatever its kernels and launches.

`scripts/bench_bounds --brute-force 200` is the long form."""

from brute_graphs import small_graph

from benchmarks.brute_force import brute_rows, summary

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
