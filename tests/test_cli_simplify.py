"""`show --simplify`, and `--no-simplify` of the commands that work on a graph."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.frontends.json.file import save
from autofuse.graph.canonical import digest
from autofuse.simplify import normal_form
from tests.support.cli_tools import call
from tests.support.simplify_cases import graph_of

WITH_OPTION = ("tune", "query", "compare", "run", "show")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """exp(x * 1) + 0, in parts."""
    graph = graph_of(
        "f32[8,40]",
        lambda w, x: w.add(
            w.concat(*(w.cut(w.exp(w.mul(1.0, x)), 0, *ends) for ends in ((0, 3), (3, 8))), axis=0),
            0.0,
        ),
    )
    path = tmp_path / "model.json"
    save(graph, path)
    return path


def test_show_tells_what_each_rule_did(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--device", "cpu", "--db", tmp_path / "t.db")
    told = call(capsys, "show", model, "--simplify", *where)
    assert told.code == 0
    for words in (
        "become 2 nodes",
        "neutral-operand",
        "XLA AlgebraicSimplifier",
        "concat-of-slices",
    ):
        assert words in told.out
    assert "-> %" in told.out and "groups" not in told.out
    data = call(capsys, "show", model, "--simplify", "--format", "json", *where).json
    found = data["simplify"]
    assert found["after"]["digest"] == data["graph"]["digest"]
    assert found["before"]["nodes"] > found["after"]["nodes"] == data["graph"]["nodes"] == 2
    assert {r["rule"] for r in found["rules"]} == {s["rule"] for s in found["steps"]}
    assert sum(r["times"] for r in found["rules"]) == len(found["steps"])


def test_show_says_when_nothing_is_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.json"
    save(graph_of("f32[8]", lambda w, x: w.exp(x)), path)
    told = call(capsys, "show", path, "--simplify", "--device", "cpu", "--db", tmp_path / "t.db")
    assert "no simplification applies" in told.out


def test_a_program_is_kept_as_it_is_written(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--device", "cpu", "--db", tmp_path / "t.db", "--format", "json")
    simple = call(capsys, "show", model, *where).json["graph"]
    written = call(capsys, "show", model, "--no-simplify", *where).json["graph"]
    assert written["nodes"] > simple["nodes"] == 2 and written["digest"] != simple["digest"]
    plans = ("--plans", "fused")
    compared = call(capsys, "compare", model, *plans, "--no-simplify", *where).json
    assert compared["graph"] == written
    assert call(capsys, "compare", model, *plans, *where).json["graph"] == simple


def test_a_plan_is_found_as_it_was_tuned(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--device", "cpu", "--db", tmp_path / "t.db", "--format", "json")
    tuned = call(capsys, "tune", model, "--budget", 2, "--no-simplify", *where)
    assert tuned.code == 0
    assert call(capsys, "query", model, *where).code == 4
    assert call(capsys, "query", model, "--no-simplify", *where).code == 0
    ran = call(capsys, "run", model, "--no-simplify", *where)
    assert ran.json["plan"]["origin"].startswith("best")
    assert not call(capsys, "run", model, *where).json["plan"]["origin"].startswith("best")


@pytest.mark.parametrize("command", WITH_OPTION)
def test_every_command_on_a_graph_has_the_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--no-simplify" in call(capsys, command, "--help").out


def test_the_digest_is_that_of_the_normal_form(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = graph_of("f32[8,40]", lambda w, x: w.add(w.exp(x), 0.0))
    shown = call(
        capsys, "show", model, "--device", "cpu", "--db", tmp_path / "t.db", "--format", "json"
    )
    assert shown.json["graph"]["digest"] == digest(normal_form(graph))
