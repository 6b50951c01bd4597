"""The command line end to end: one small graph, tuned once, then asked about in every way."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from autofuse.baselines import BASELINES, explain
from autofuse.graph import canonical, digest, evaluate, random_inputs
from autofuse.simplify import normal_form
from autofuse.zoo import ZOO
from tests.support.cli_tools import COLUMNS, ROWS, Call, Ended, call, refused, toy, toy_file
from tuning_db import Store


@pytest.fixture(scope="module", autouse=True)
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test touches the user's database."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Call:
    return lambda *arguments: call(capsys, *arguments)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Ended]:
    """A graph file, the database it was tuned into, and what the tune printed as JSON."""
    folder = tmp_path_factory.mktemp("tuned")
    source, db = toy_file(folder), folder / "tuning.db"
    arguments = ["tune", source, "--db", db, "--budget", 8, "--device", "cpu"]
    arguments += ["--format", "json"]
    done = subprocess.run(
        [sys.executable, "-m", "autofuse", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return source, db, Ended(done.returncode, done.stdout, done.stderr)


# --- tune, query, compare ---------------------------------------------------------------------


def test_tune_prints_one_json_object_and_no_progress_into_a_pipe(
    tuned: tuple[Path, Path, Ended],
) -> None:
    ended = tuned[2]
    assert (ended.code, ended.err) == (0, "")
    data = ended.json
    assert data["graph"] == {"digest": digest(toy()), "nodes": len(canonical(toy()).nodes)}
    assert (data["device"], data["strategy"], data["budget_s"]) == ("cpu", "exact", 8.0)
    assert {"codegen", "compile", "measure", "sampler", "total"} == set(data["spent_s"])
    assert {*data["baselines"], *data["left_out"], *data["predicted"]} == set(BASELINES)
    assert set(data["baselines"]) == set(data["break_even_runs"]) != set()
    for row in (*data["baselines"].values(), data["best"]):
        assert row["time_us"] > 0 and row["kernels"] >= 1 and row["compile_s"] > 0
    assert data["verified"] is True and data["max_rel_error"] < 1e-5
    assert data["interrupted"] is False
    assert data["measured"] >= 1


def test_tune_prints_a_table(cli: Call, tuned: tuple[Path, Path, Ended]) -> None:
    source, db, _ = tuned
    ended = cli("tune", source, "--db", db, "--budget", 1, "--strategy", "random", "--seed", 3)
    assert ended.code == 0
    for word in ("toy on cpu", digest(toy()), "unfused", "xla-2022", "best", "verified", "spent"):
        assert word in ended.out


def test_query_finds_what_tune_found(cli: Call, tuned: tuple[Path, Path, Ended]) -> None:
    source, db, _ = tuned
    ended = cli("query", source, "--db", db, "--format", "json")
    assert ended.code == 0
    assert ended.json["found"] is True and ended.json["time_us"] > 0
    assert ended.json["stale"] == []
    shown = cli("query", source, "--db", db)
    assert shown.code == 0 and ended.json["plan_digest"] in shown.out


def test_query_of_an_unknown_graph_is_exit_4(cli: Call, tmp_path: Path) -> None:
    ended = cli("query", "zoo:swiglu:small", "--db", tmp_path / "new.db", "--format", "json")
    assert (ended.code, ended.json) == (4, {"found": False, "passed_over": []})
    assert cli("query", "zoo:swiglu:small", "--db", tmp_path / "new.db").code == 4


def test_compare_times_the_plans_asked_for(cli: Call, tuned: tuple[Path, Path, Ended]) -> None:
    source, db, _ = tuned
    ended = cli("compare", source, "--db", db, "--plans", "unfused, best", "--format", "json")
    assert ended.code == 0
    assert list(ended.json["plans"]) == ["unfused", "best"]
    for row in ended.json["plans"].values():
        assert row["verified"] and row["q1_us"] <= row["time_us"] <= row["q3_us"]


# --- run --------------------------------------------------------------------------------------


def test_run_computes_what_the_reference_does(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    source, db, _ = tuned
    x, bias = random_inputs(toy(), 5)
    np.savez(tmp_path / "x.npz", x=x, bias=bias)
    wanted = evaluate(toy(), (x, bias))
    for plan in ("best", "fused", *BASELINES):
        out = tmp_path / f"{plan}.npz"
        ended = cli("run", source, "--db", db, "--plan", plan, "--inputs", tmp_path / "x.npz",
                    "--output", out, "--device", "cpu", "--format", "json")  # fmt: skip
        assert (ended.code, ended.err) == (0, "")
        assert ended.json["outputs"]["scaled"]["shape"] == [ROWS, COLUMNS]
        with np.load(out, allow_pickle=False) as found:
            assert sorted(found.files) == ["scaled", "top"]
            np.testing.assert_allclose(found["scaled"], wanted[0], rtol=1e-4)
            np.testing.assert_array_equal(found["top"], wanted[1].astype(np.float32))
    assert not list(tmp_path.glob(".*"))


def test_run_without_inputs_says_that_they_are_random(
    cli: Call, tuned: tuple[Path, Path, Ended]
) -> None:
    source, db, _ = tuned
    ended = cli("run", source, "--db", db, "--seed", 7)
    assert ended.code == 0
    assert "random inputs of seed 7" in ended.err
    assert "best (" in ended.out  # with no --plan, the best known


def test_run_of_an_untuned_graph_says_where_its_plan_comes_from(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    ended = cli("run", tuned[0], "--db", tmp_path / "new.db", "--format", "json")
    assert ended.code == 0 and ended.json["plan"]["origin"] == "untuned: expected"


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"x": np.zeros((ROWS, COLUMNS), np.float32)}, "no array 'bias' (it has: x)"),
        ({"x": np.zeros((3, 4), np.float32), "bias": 0}, "'x' of"),
        ({"x": np.zeros((ROWS, COLUMNS)), "bias": 0}, "dtype float64"),
        ({"x": np.array([{}]), "bias": 0}, "Python objects"),
    ],
)
def test_run_says_what_is_wrong_with_its_inputs(
    cli: Call, tmp_path: Path, arrays: dict[str, np.ndarray], words: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    ended = cli("run", toy_file(tmp_path), "--inputs", tmp_path / "bad.npz")
    refused(ended, words)


def test_run_names_arrays_that_are_no_input(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    source, db, _ = tuned
    x, bias = random_inputs(toy(), 5)
    np.savez(tmp_path / "x.npz", x=x, bias=bias, z=x)
    ended = cli("run", source, "--db", db, "--inputs", tmp_path / "x.npz")
    assert ended.code == 0 and "no input: z" in ended.err


# --- show -------------------------------------------------------------------------------------


def test_show_counts_what_each_kernel_moves(cli: Call) -> None:
    ended = cli("show", "zoo:softmax:small", "--plan", "xla-2022", "--format", "json")
    assert ended.code == 0
    data = ended.json
    block, column = 256 * 512 * 4, 256 * 4
    moved = [(g["traffic"]["read_bytes"], g["traffic"]["written_bytes"]) for g in data["groups"]]
    assert moved == [(block, column), (block + column, column), (block + 2 * column, block)]
    assert data["traffic"]["read_bytes"] == 3 * block + 3 * column
    assert data["plan"]["launches_per_call"] == 3
    assert cli("show", "zoo:softmax:small", "--plan", "xla-2022").out.count("kernel ") == 3


def test_show_goes_into_the_loops_that_a_plan_re_issues(cli: Call) -> None:
    ended = cli("show", "zoo:cartpole_noconcat:small", "--plan", "unfused", "--format", "json")
    loop = next(g["loop"] for g in ended.json["groups"] if "loop" in g)
    assert loop["trips"] == 10 and len(loop["groups"]) > 20
    assert ended.json["plan"]["launches_per_call"] >= 10 * len(loop["groups"])
    text = cli("show", "zoo:cartpole_noconcat:small", "--plan", "unfused").out
    assert "10 iterations, each:" in text


def test_show_why_names_the_rule_of_every_decision(cli: Call) -> None:
    graph = normal_form(ZOO["cartpole_naive"].builder("small"))
    told = explain(BASELINES["xla-2022"](graph), graph)
    ended = cli("show", "zoo:cartpole_naive:small", "--plan", "xla-2022", "--why")
    assert ended.code == 0 and ended.out.splitlines()[: len(told)] == told
    asked = ("show", "zoo:cartpole_naive:small", "--plan", "xla-2022", "--why", "--format", "json")
    decisions = cli(*asked).json["decisions"]
    assert any(not d["fused"] and d["rule"] and d["reason"] for d in decisions)


def test_show_source_prints_c_and_cuda(cli: Call) -> None:
    c = cli("show", "zoo:attention:small", "--plan", "xla-2022", "--source")
    assert "void k_" in c.out and "is a call of BLAS" in c.out
    cuda = cli("show", "zoo:attention:small", "--plan", "fused", "--source", "--dialect", "cuda")
    assert 'extern "C" __global__ void __launch_bounds__(' in cuda.out
    asked = ("show", "zoo:softmax:small", "--plan", "fused", "--source", "--format", "json")
    kernels = cli(*asked).json["kernels"]
    assert len(kernels) == 1 and kernels[0]["text"].startswith(f"void {kernels[0]['name']}(")


def test_show_draws_the_plan(cli: Call, tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    ended = cli("show", "zoo:softmax:small", "--plan", "xla-2022", "--svg", picture)
    assert ended.code == 0 and str(picture) in ended.err
    root = ElementTree.parse(picture).getroot()
    assert root.tag.endswith("svg")
    text = picture.read_text(encoding="utf-8")
    assert "reduce_max" in text and ">K2<" in text


def test_show_without_a_plan_shows_the_best_known(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    source, db, _ = tuned
    assert cli("show", source, "--db", db, "--format", "json").json["plan"]["name"] == "best"
    fresh = cli("show", source, "--db", tmp_path / "new.db", "--format", "json")
    assert fresh.json["plan"]["name"] == "untuned: expected"


def test_names_from_files_cannot_steer_the_terminal(cli: Call, tmp_path: Path) -> None:
    path = toy_file(tmp_path)
    data = json.loads(path.read_text(encoding="utf-8"))
    next(n for n in data["nodes"] if n["op"] == "exp")["label"] = "evil\x1b[2J"
    path.write_text(json.dumps(data), encoding="utf-8")
    ended = cli("show", path, "--plan", "unfused")
    assert ended.code == 0 and "evil" in ended.out and "\x1b" not in ended.out


# --- report, zoo, info, db --------------------------------------------------------------------


def test_report_is_one_page_with_the_plan_in_it(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    ended = cli("report", "--out", page, "--db", tuned[1])
    assert ended.code == 0 and "1 workload reported" in ended.err
    text = page.read_text(encoding="utf-8")
    assert "toy" in text and "reduce_sum" in text and "K0" in text


def test_zoo_lists_every_workload_in_every_size(cli: Call) -> None:
    rows = cli("zoo", "--format", "json").json["workloads"]
    assert len(rows) == sum(len(entry.sizes) for entry in ZOO.values())
    naive = next(r for r in rows if r["source"] == "zoo:cartpole_naive")
    assert naive["loop_nodes"] > 50 and naive["input_bytes"] == 4 * 2048 * 4 + 8
    table = cli("zoo").out
    assert all(f"zoo:{name}" in table for name in ZOO)


def test_info_works_without_a_compiler_and_makes_no_database(
    cli: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = cli("info", "--format", "json").json
    assert found["compiler"]["found"] is True and found["devices"]["cpu"]["usable"] is True
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    lacking = cli("info", "--db", tmp_path / "no.db", "--format", "json").json
    assert lacking["compiler"]["found"] is False
    assert lacking["devices"]["cpu"]["usable"] is False
    assert lacking["database"] == {"name": str(tmp_path / "no.db"), "exists": False, "bytes": None}
    assert "no C compiler found" in cli("info").out
    assert not (tmp_path / "no.db").exists()


def test_without_a_compiler_tuning_is_refused_in_one_sentence(
    cli: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    refused(cli("tune", "zoo:softmax:small", "--db", tmp_path / "t.db"), "no C compiler found")
    assert cli("show", "zoo:softmax:small", "--plan", "unfused").code == 0


def test_an_export_imports_as_the_same_database(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    first, second, db = tmp_path / "1.jsonl", tmp_path / "2.jsonl", tmp_path / "copy.db"
    assert cli("db", "export", first, "--db", tuned[1]).code == 0
    added = cli("db", "import", first, "--db", db, "--format", "json").json["added"]
    assert added["workload"] == 1 and added["measurement"] >= 2
    again = cli("db", "import", first, "--db", db, "--format", "json").json["added"]
    assert set(again.values()) == {0}
    assert cli("db", "export", second, "--db", db).code == 0
    # What came in a file is told so, and is else the same.
    assert b'"imported: ' in second.read_bytes()
    assert first.read_bytes() == second.read_bytes().replace(b'"imported: ', b'"')
    assert cli("db", "export", "--db", db).out == second.read_text(encoding="utf-8")
    info = cli("db", "info", "--db", db, "--format", "json").json
    assert info["rows"]["measurement"] == added["measurement"]
    assert [w["name"] for w in info["workloads"]] == ["toy"]


def test_an_export_of_a_damaged_database_says_what_is_missing(
    cli: Call, tuned: tuple[Path, Path, Ended], tmp_path: Path
) -> None:
    db, out = tmp_path / "damaged.db", tmp_path / "out.jsonl"
    with closing(sqlite3.connect(tuned[1])) as raw, closing(sqlite3.connect(db)) as copy:
        raw.backup(copy)
        copy.execute("UPDATE calibration SET value = 'much'")
        copy.commit()
    ended = cli("db", "export", out, "--db", db)
    assert ended.code == 2 and "table calibration could not be read to its end" in ended.err
    to_stdout = cli("db", "export", "--db", db)
    assert to_stdout.code == 2 and to_stdout.out == out.read_text(encoding="utf-8")
    added = cli("db", "import", out, "--db", tmp_path / "new.db", "--format", "json").json["added"]
    assert added["measurement"] >= 2 and added["calibration"] == 0


# --- processes --------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_found(tmp_path: Path) -> None:
    source, db = toy_file(tmp_path), tmp_path / "tuning.db"
    arguments = ["tune", str(source), "--db", str(db), "--budget", "300", "--format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "autofuse", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for_measurements(process, db)
        process.send_signal(2)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert "stopping" in err and "Traceback" not in err
    data = json.loads(out)
    assert data["interrupted"] is True and data["best"]["time_us"] > 0


def wait_for_measurements(process: subprocess.Popen[str], db: Path) -> None:
    """Until the database has a measurement, or the process has ended."""
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if db.exists():
            with Store.open(db) as store:
                if store.counts()["measurement"] > 0:
                    return
        time.sleep(0.05)
    raise AssertionError(f"nothing was measured: {process.poll()}")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "autofuse", "zoo"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=60) == 141
