"""The simulated fleet: sessions as recorded, a server that is full when it is, and what it adds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autofuse.peers.types import BenchError
from benchmarks.scale.costs import OperationCost, ScaleCosts, load_costs, save_costs
from benchmarks.scale.limits import limits, loads, totals
from benchmarks.scale.page import scale_data, scale_lines
from benchmarks.scale.scripts import DbStep, SessionScript, script_of
from benchmarks.scale.simulate import FleetSize, simulate
from benchmarks.spaces import load

ROOT = Path(__file__).parent.parent
COSTS = load_costs(ROOT / "docs" / "results" / "scale-costs.json")


def costs_of(server_s: float, flush_s: float = 0.0, client_s: float = 0.0) -> ScaleCosts:
    """A table of one operation, which writes."""
    one = OperationCost(server_s, client_s, 0, True)
    return ScaleCosts("made up", "", 0, flush_s, 1e6, {"do": one}, {}, {}, {})


def script(after_s: float) -> SessionScript:
    return SessionScript("made up", (DbStep(after_s, "do"),) * 10, 1)


def test_a_session_does_what_a_job_does() -> None:
    found = script_of(load(ROOT / "tests/data/spaces/softmax-small.jsonl.gz"), 60.0)
    names = [step.operation for step in found.steps]
    assert names[0] == "open" and names[-1] == "finish_session"
    assert names.count("claim") >= names.count("release") > 3
    # Every kernel of a plan in one transaction, and each is stored once.
    assert found.rows["kernel_measurement"] <= 400
    assert found.rows["measurement"] == names.count("add_measurement") + names.count("add_final")
    assert 0 < found.own_s < 80.0 and set(names) <= set(COSTS.operations)


@given(st.integers(1, 6), st.integers(1, 4), st.sampled_from([0.001, 0.004, 0.02]))
def test_no_more_is_done_than_workers_and_server_can(
    workers: int, cores: int, server_s: float
) -> None:
    """Closed network: at most workers / (own + service), and cores / service (Lazowska, 1984)."""
    size = FleetSize(workers=workers, cores=cores, trip_s=0.0)
    found = simulate(size, [script(0.01)], costs_of(server_s), seconds=2.0)
    most = min(workers / (0.01 + server_s), cores / server_s)
    assert found.operations_s <= 1.02 * most + 1.0
    if workers <= cores:
        assert found.operations_s == pytest.approx(most, rel=0.02)
        assert found.median_ms == pytest.approx(1e3 * server_s)
    assert found.at_once <= workers and 0.0 <= found.waited <= 1.0


def test_a_full_server_makes_workers_wait() -> None:
    size = FleetSize(workers=100, cores=1, trip_s=0.0)
    found = simulate(size, [script(0.01)], costs_of(0.01), seconds=5.0)
    assert found.busy > 0.99 and found.operations_s == pytest.approx(100, rel=0.05)
    # Little's law: 100 workers pass 100 times a second through a second of waiting.
    assert found.median_ms == pytest.approx(990, rel=0.1) and found.waited > 0.95


def test_commits_share_the_flushes_of_the_disk() -> None:
    """Ten milliseconds each, one hundred a second for one worker, far more for fifty."""
    one, fifty = (
        simulate(FleetSize(workers=n, cores=64, trip_s=0.0), [script(1e-6)], costs_of(0.0, 0.01), 2)
        for n in (1, 50)
    )
    assert one.operations_s == pytest.approx(100, rel=0.05)
    assert fifty.operations_s > 40 * one.operations_s


def test_equal_arguments_give_equal_figures_and_the_page_has_them() -> None:
    space = load(ROOT / "tests/data/spaces/softmax-small.jsonl.gz")
    scripts, size = [script_of(space, 5.0)], FleetSize(10, 2, 4, 2)
    whole = totals(size, scripts, COSTS)
    assert whole.sessions == 20 and whole.rows["workload"] == 10
    assert whole.rows["measurement"] == 20 * scripts[0].rows["measurement"]
    found, again = (loads(size, scripts, COSTS, 2.0, workers=(2,)) for _ in range(2))
    assert found == again and list(found) == [2, 4]
    ends = limits(size, whole, COSTS, found)
    assert ends[0].workers is not None and ends[-1].times is not None
    assert scale_data(size, scripts, whole, found, ends)["whole"]["sessions"] == 20
    assert any("connections" in line for line in scale_lines(size, whole, COSTS, found, ends))


def test_what_is_no_table_is_refused(tmp_path: Path) -> None:
    save_costs(replace(COSTS, rows=7), tmp_path / "costs.json")
    assert load_costs(tmp_path / "costs.json") == replace(COSTS, rows=7)
    (tmp_path / "costs.json").write_text('{"operations": {"x": 3}}')
    with pytest.raises(BenchError, match="is no table of costs"):
        load_costs(tmp_path / "costs.json")
    with pytest.raises(BenchError, match="cannot read"):
        load_costs(tmp_path / "none.json")
