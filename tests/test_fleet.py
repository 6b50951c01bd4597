"""Many graphs on several units: what engines promise, and who gets the next slice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import autofuse
from autofuse.commands import fleet as commands
from autofuse.errors import AutofuseError
from autofuse.fleet.engine import Engine, EngineError, SliceResult
from autofuse.fleet.jobs import JobLease
from autofuse.fleet.local import LocalEngine
from autofuse.fleet.run import LATEST_S, fleet_tune
from autofuse.fleet.shares import (
    FIRST_GAIN,
    FIRST_S,
    LEAST_S,
    MOST_FAILURES,
    GraphShare,
    next_share,
)
from autofuse.tuning import TuneOptions
from tests.support.cli_tools import call, refused, toy
from tests.support.fleet_work import CURVES, SimulatedEngine, falling, graph, ray_engine, task, work
from tuning_db import Store


def local() -> Engine:
    return LocalEngine({"a": {}, "b": {}}, work)


def on_ray() -> Engine:
    return ray_engine(2, work)


@pytest.fixture(scope="module", params=[local, pytest.param(on_ray, marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    """Two units that do what slices are called."""
    made: Callable[[], Engine] = request.param
    own = made()
    yield own
    own.close()


def one_by_one(engine: Engine, count: int) -> dict[str, SliceResult]:
    found: dict[str, SliceResult] = {}
    while len(found) < count:
        found |= engine.wait(30.0)
    return found


def test_units_work_at_the_same_time_each_in_its_process(engine: Engine) -> None:
    first, second = engine.units
    for unit in engine.units:
        engine.start(unit, task(f"of {unit}"))
    with pytest.raises(EngineError, match="is busy"):
        engine.start(first, task("too much"))
    with pytest.raises(EngineError, match="is unknown"):
        engine.start("c", task("nowhere"))
    found = one_by_one(engine, 2)
    assert {unit: r.name for unit, r in found.items()} == {u: f"of {u}" for u in (first, second)}
    assert len({r.measured for r in found.values()}) == 2, "process ids"
    assert not engine.wait(0.0)


def test_a_failure_of_a_graph_is_a_result(engine: Engine) -> None:
    engine.start(engine.units[0], task("fails"))
    (found,) = one_by_one(engine, 1).values()
    assert (found.best_us, found.error, found.lost) == (None, "no plan works", False)


def test_a_unit_that_is_lost_is_told_and_is_there_again(engine: Engine, tmp_path: Path) -> None:
    """The slice is not done again by itself: its flag would let it end well the second time."""
    unit = engine.units[0]
    engine.start(unit, task("dies once", str(tmp_path / "flag")))
    (found,) = one_by_one(engine, 1).values()
    assert found.lost and found.best_us is None and unit in found.error
    engine.start(unit, task("again"))
    assert one_by_one(engine, 1)[unit].best_us == 1.0


def test_a_fleet_of_processes_ends_where_every_unit_dies() -> None:
    with closing(LocalEngine({"a": {}}, work)) as engine:
        found = fleet_tune({"dies": graph()}, engine, TuneOptions(budget_s=60.0))
    (share,) = found.shares
    assert share.failures == MOST_FAILURES and share.error.endswith("killed by SIGKILL")


def test_a_unit_is_chosen_by_its_environment() -> None:
    units = {name: {"AUTOFUSE_TEST_UNIT": name} for name in ("GPU-a", "GPU-b")}
    with pytest.raises(EngineError, match="needs units"):
        LocalEngine({}, work)
    with closing(LocalEngine(units, work)) as engine:
        for unit in engine.units:
            engine.start(unit, task("says its unit"))
        found = one_by_one(engine, 2)
    assert {unit: one.error for unit, one in found.items()} == {u: u for u in units}


# --- who is next ----------------------------------------------------------------------------------


def shares(**best_us: float) -> list[GraphShare]:
    return [
        GraphShare(name, graph()).after(SliceResult(name, FIRST_S, us))
        for name, us in best_us.items()
    ]


def test_every_graph_gets_a_first_slice_and_then_the_one_that_saves_most() -> None:
    small, large = shares(small=10.0, large=1000.0)
    new = GraphShare("new", graph())
    assert next_share([large, new, small], ()) == new
    assert next_share([large, small], ()) == large
    assert next_share([large, small], {"large"}) == small
    often = GraphShare("often", graph(), weight=1e4).after(SliceResult("often", 1.0, 1.0))
    assert next_share([large, often], ()) == often
    assert next_share([large], {"large"}) is None


def test_a_slice_that_was_lost_is_tried_again_at_half_its_length() -> None:
    (one,) = shares(one=10.0)
    lost = one.after(SliceResult("one", 9.0, error="lost", lost=True))
    assert (one.next_s, lost.next_s) == (2 * FIRST_S, FIRST_S)
    assert lost.after(SliceResult("one", 9.0, 10.0)).next_s == 4 * FIRST_S
    never = GraphShare("never", graph())
    for _ in range(9):
        never = never.after(SliceResult("never", 9.0, error="lost", lost=True))
    assert never.next_s == LEAST_S


def test_what_is_expected_follows_from_what_was_gained() -> None:
    (one,) = shares(one=100.0)
    assert one.expected == FIRST_GAIN
    gained = one.after(SliceResult("one", 1.0, 50.0))
    assert gained.expected == pytest.approx((FIRST_GAIN + 0.5) / 2)
    vain = gained.after(SliceResult("one", 1.0, 70.0))
    assert (vain.best_us, vain.expected) == (50.0, pytest.approx(gained.expected / 2))
    proved = vain.after(SliceResult("one", 1.0, 50.0, search_gap=0.0))
    assert proved.is_done and next_share([proved], ()) is None


def test_a_graph_that_fails_is_given_up_and_the_others_go_on() -> None:
    bad = GraphShare("bad", graph())
    for _ in range(MOST_FAILURES):
        assert not bad.is_done
        bad = bad.after(SliceResult("bad", 1.0, error="no plan"))
    assert bad.is_done and bad.error == "no plan"


def tuned(engine: SimulatedEngine, budget_s: float = 3600.0) -> dict[str, GraphShare]:
    graphs = {name: graph() for name in engine.curves}
    found = fleet_tune(graphs, engine, TuneOptions(budget_s=budget_s), clock=engine.clock)
    assert found.busy_s >= 0.95 * found.units * found.seconds
    assert found.seconds <= budget_s
    return {share.name: share for share in found.shares}


def test_time_goes_where_it_is_gained() -> None:
    found = tuned(SimulatedEngine(1, CURVES))
    assert min(one.slices for one in found.values()) >= 1
    flat, steep = (
        sum(one.spent_s for name, one in found.items() if name.startswith(kind))
        for kind in ("flat", "steep")
    )
    assert steep > 2 * flat


def test_four_units_do_the_work_of_four_and_never_tune_one_graph_twice_at_once() -> None:
    """That they do not is asserted by the engine."""
    one, four = SimulatedEngine(1, CURVES), SimulatedEngine(4, CURVES)
    alone, together = tuned(one, 2000.0), tuned(four, 2000.0)
    assert sum(four.spent.values()) >= 3.2 * sum(one.spent.values())
    assert sum(s.best_us or 0 for s in together.values()) < sum(
        s.best_us or 0 for s in alone.values()
    )


def test_a_job_ends_though_a_unit_loses_every_other_slice() -> None:
    found = tuned(SimulatedEngine(2, CURVES, frozenset({"u1"})))
    assert all(one.best_us is not None and not one.is_done for one in found.values())


def test_nothing_is_begun_that_would_not_end_in_time() -> None:
    engine = SimulatedEngine(1, CURVES)
    tuned(engine, 30.0)
    assert len(engine.given) == 2 and engine.now == 30.0
    with pytest.raises(AutofuseError, match="no graph"):
        fleet_tune({}, engine, TuneOptions(budget_s=1.0))


class SilentEngine(SimulatedEngine):
    """Whose units never answer."""

    def wait(self, timeout_s: float) -> dict[str, SliceResult]:
        self.now += 10.0
        return {}


def test_a_unit_that_never_answers_ends_no_job_late() -> None:
    engine = SilentEngine(1, {"a": falling(1, 1, 1)})
    found = fleet_tune({"a": graph()}, engine, TuneOptions(budget_s=60.0), clock=engine.clock)
    assert found.seconds <= 60.0 + LATEST_S + 10.0
    assert found.shares[0].error == "its unit gave no answer"


# --- the command line -----------------------------------------------------------------------------


def test_the_command_line_tunes_a_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    autofuse.save(toy(), tmp_path / "toy.json")
    (tmp_path / "list.txt").write_text(
        f"zoo:softmax:small 5  # often\n\n# nothing\n{tmp_path / 'toy.json'}\n"
    )
    curves = {"zoo:softmax:small": falling(90, 30, 9), "toy": falling(9, 8, 9)}
    engine = SimulatedEngine(1, curves)
    monkeypatch.setattr(commands, "_engine", lambda *_: engine)
    told = call(
        capsys, "fleet", "tune", tmp_path / "list.txt", "--device", "cpu", "--format", "json",
        "--budget", "0.001",
    )  # fmt: skip
    rows = {row["name"]: row for row in told.json["graphs"]}
    assert rows["zoo:softmax:small"]["weight"] == 5 and rows["toy"]["weight"] == 1
    listed, _ = commands.graphs_of(tmp_path)
    assert list(listed) == ["toy"], "a folder is its graph files"


def test_the_command_line_ends_jobs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    db = str(tmp_path / "tuning.db")
    with Store.open(db) as store, JobLease(store, "graphs.txt") as job:
        told = call(capsys, "fleet", "status", "--db", db)
        assert f"job {job.id} tunes graphs.txt" in told.out
        refused(call(capsys, "fleet", "cancel", "x", "--db", db), "no fleet job x is running")
        told = call(capsys, "fleet", "cancel", "--db", db, "--format", "json")
        assert [row["id"] for row in told.json["jobs"]] == [job.id]
        assert call(capsys, "fleet", "status", "--db", db, "--format", "json").json["jobs"] == []
        assert "no fleet job" in call(capsys, "fleet", "cancel", "--db", db).out


def test_the_command_line_refuses_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "list"
    refused(call(capsys, "fleet", "tune", file), "no such file")
    file.write_bytes(b"\xff\xfe")
    refused(call(capsys, "fleet", "tune", file), "neither a folder nor a list")
    file.write_text("zoo:softmax:small often\n")
    refused(call(capsys, "fleet", "tune", file, "--device", "cpu"), "does not say how often")
    file.write_text("zoo:softmax:small\n")
    refused(call(capsys, "fleet", "tune", file, "--engine", "dask"), "unknown engine 'dask'")
    wrong = ("fleet", "tune", file, "--address", "auto", "--device", "cpu")
    refused(call(capsys, *wrong), "engine 'local' has no address")
    anywhere = ("fleet", "tune", file, "--compile-anywhere", "--device", "cpu")
    refused(call(capsys, *anywhere), "only engine 'ray' compiles anywhere")
    file.write_text("zoo:softmax:small\nzoo:softmax:small\n")
    refused(call(capsys, "fleet", "tune", file), "are called zoo:softmax:small")
    file.write_text("# none\n")
    refused(call(capsys, "fleet", "tune", file), "names no graph")
