"""scripts/bench_jax_cpu: what a row holds, what is wrong or absent, and figures over rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.cost.bounds import NOMINAL
from autofuse.peers.types import BenchError
from benchmarks.jax_cpu.bench import LoopOptions, bench_jax_cpu
from benchmarks.jax_cpu.by_hand import FILES, by_hand
from benchmarks.jax_cpu.pages import line, summary, summary_text, table_text
from benchmarks.jax_cpu.peers import old_jax
from benchmarks.jax_cpu.programs import PROGRAMS
from benchmarks.jax_cpu.row import BY_HAND, CURRENT, OLDER, UNTUNED, Column, LoopAsked, loop_row
from benchmarks.jax_cpu.table import Wanted, wanted
from benchmarks.jax_cpu.truth import allowed, error_of, truth_of
from benchmarks.jax_cpu.types import LoopCase, LoopProgram, asked_for

jax = pytest.importorskip("jax")  # an extra of its own

PEAKS = NOMINAL.to_mapping()
F32 = np.dtype(np.float32)


def _decay(dtype: np.dtype[Any]) -> LoopCase:
    def run(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (0.9 * c, c.sum()), x, None, length=20)

    return LoopCase(run, (np.ones(3, dtype),))


def _outside(dtype: np.dtype[Any]) -> LoopCase:
    def run(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return LoopCase(run, (np.ones(3, dtype),))


ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "docs/results/jax-cpu.json", ROOT / "docs/jax-on-cpus.md"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
DECAY, OUTSIDE = LoopProgram("decay", _decay, "a#1"), LoopProgram("outside", _outside)
GONE = LoopProgram("gone", _decay, needs=("no_such_module",))


def test_a_row_says_what_is_right_how_long_it_takes_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", "")  # a row sets it: put back afterwards
    row = loop_row(DECAY, "gradients", LoopAsked(0.0, 0.05, "", PEAKS))
    ours, jaxs, older = (row["columns"][name] for name in (UNTUNED, CURRENT, OLDER))
    assert ours["right"] and jaxs["right"] and ours["error"] < 1e-5
    assert ours["us"] > 0 and ours["first_s"] > 0 and ours["samples"] >= 6
    assert row["over"][UNTUNED] == {CURRENT: jaxs["us"] / ours["us"]}
    assert "no environment" in older["failed"]


def test_what_is_refused_is_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", "")  # as above
    row = loop_row(OUTSIDE, "values", LoopAsked(0.0, 0.0, "", PEAKS))
    assert "pure_callback" in row["columns"][UNTUNED]["failed"]
    assert row["columns"][CURRENT]["right"] and row["over"] == {}
    assert "pure_callback" in line("outside:values", row)


def test_the_other_process_gives_results_and_samples() -> None:
    name = "adaptive_steps"  # the JAX of this environment stands for the older one
    with old_jax(Path(sys.executable), name, "values") as old:
        assert old.version == jax.__version__ and old.first_s > 0
        assert old.sample_us() > 0
        assert [a.shape for a in old.found] == [(2,)]
    with (
        pytest.raises(BenchError, match="the older JAX"),
        old_jax(Path(sys.executable), "no_such_program", "values"),
    ):
        pass


def test_gradients_are_of_a_number_made_of_all_results() -> None:
    case = _decay(F32)
    value, slope = asked_for(case, "gradients")(*case.arguments)
    last, sums = case.run(*case.arguments)
    np.testing.assert_allclose(value, (last**2).mean() + (sums**2).mean(), rtol=1e-6)
    assert slope.shape == (3,) and (slope > 0).all()


def test_errors_are_relative_to_an_array_and_shapes_count() -> None:
    truth = (np.array([1.0, -4.0]), np.array(3))
    assert error_of((np.array([1.0, -4.4]), np.array(3)), truth) == pytest.approx(0.1)
    assert error_of((np.array([1.0, np.nan]), np.array(3)), truth) == np.inf
    assert error_of((np.array([1.0]), np.array(3)), truth) == np.inf
    assert allowed(F32, 0.0) == 1e-4 and allowed(F32, 1e-3) == pytest.approx(8e-3)
    assert allowed(F32, np.inf) == 1e-4


def _row(ours: float, older: float, right: bool = True) -> dict[str, Any]:
    columns = {UNTUNED: Column(1.0, 0.5, right, ours), CURRENT: Column(1.0, 0.0, True, 8.0),
               OLDER: Column(1.0, 0.0, True, older)}  # fmt: skip
    over = {UNTUNED: {CURRENT: 8.0 / ours, OLDER: older / ours}} if right else {}
    return {"thread": "", "columns": {n: asdict(c) for n, c in columns.items()}, "over": over}


def test_figures_over_rows() -> None:
    rows = {
        "a:values": {**_row(4.0, 2.0), "thread": "a#1"}, "b:values": _row(1.0, 2.0),
        "c:values": _row(1.0, 1.0, right=False), "d:values": {"error": "it did not end"},
    }  # fmt: skip
    found = summary(rows)
    means = {CURRENT: pytest.approx(4.0), OLDER: pytest.approx(1.0), BY_HAND: None}
    assert found["all"][UNTUNED] == means
    assert found["reported"][UNTUNED] == {CURRENT: 2.0, OLDER: 0.5, BY_HAND: None}
    assert found["below"][UNTUNED] == {f"a:values {OLDER}": 0.5}
    assert found["wrong"] == [f"c:values {UNTUNED}"]
    assert found["failed"] == {"d:values": "it did not end"}
    assert "WRONG by 5.0e-01" in line("c:values", rows["c:values"])


def test_rows_are_kept_and_programs_without_their_packages_named(tmp_path: Path) -> None:
    output, asked = tmp_path / "rows.json", list[str]()
    rows: tuple[Wanted, ...] = ((DECAY, "values"), (DECAY, "gradients"), (GONE, "values"))

    def answer(each: Wanted, _: LoopAsked) -> Mapping[str, Any]:
        asked.append(each[1])
        return {"error": "it did not end"} if each[1] == "gradients" else _row(4.0, 2.0)

    run = partial(bench_jax_cpu, rows, LoopOptions(), output, answer=answer)
    run(calibrate=lambda: PEAKS)
    found = run(calibrate=lambda: PEAKS)
    assert asked == ["values", "gradients", "gradients"]  # what failed is tried again
    assert json.loads(output.read_text()) == json.loads(json.dumps(found))
    assert found["absent"] == {"gone": "no_such_module"}
    assert "absent: gone needs no_such_module" in summary_text(found)
    output.write_text("{}")
    with pytest.raises(BenchError, match="holds no rows"):
        run(calibrate=lambda: PEAKS)


def test_rows_are_asked_for_by_name() -> None:
    assert [what for _, what in wanted(["planets"])] == ["values", "gradients"]
    assert [what for _, what in wanted(["planets:gradients"])] == ["gradients"]
    with pytest.raises(BenchError, match="no program is called 'moons'"):
        wanted(["moons"])
    through = [p for p in PROGRAMS.values() if p.needs]
    assert len(PROGRAMS) >= 24 and len(through) >= 6


@pytest.mark.parametrize(("name", "what"), FILES)
def test_what_is_written_by_hand_computes_the_program(name: str, what: str, tmp_path: Path) -> None:
    program = PROGRAMS[name]
    truth = truth_of(program, what)  # in f64, as all of them are written
    assert program.wide
    leaves = jax.tree_util.tree_leaves(program.make(program.dtype).arguments)
    ready = by_hand(name, what, tuple(map(np.asarray, leaves)), truth, tmp_path)
    assert error_of(ready.found, truth) <= allowed(program.dtype, 0.0)
    assert ready.first_s > 0


def test_the_page_has_the_table_of_the_record(request: pytest.FixtureRequest) -> None:
    found = json.loads(RECORD.read_text(encoding="utf-8"))
    before, begun, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, ended, after = rest.partition(END)
    assert begun and ended
    wanted = f"{before}{BEGIN}\n{table_text(found)}\n{END}{after}"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(wanted, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == wanted, "run with --update-golden"
