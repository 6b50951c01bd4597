"""scripts/bench_unseen: rows in processes of their own, kept as they end, and figures over them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse import spec, trace, xp
from autofuse.cost.bounds import NOMINAL
from autofuse.errors import AutofuseError
from autofuse.graph.types import Graph
from autofuse.peers.types import BenchError
from benchmarks.unseen import bench
from benchmarks.unseen.bench import Options, apart, bench_unseen
from benchmarks.unseen.one import answer
from benchmarks.unseen.pages import listing, summary_text
from benchmarks.unseen.row import Asked
from benchmarks.unseen.summary import line, summary
from benchmarks.unseen.table import PROGRAMS, chosen
from benchmarks.unseen.types import Made, Program

ROOT = Path(__file__).parent.parent
PEAKS = NOMINAL.to_mapping()
# It ends when nothing is left to find, long before; a busy machine takes long to begin.
OPTIONS = Options(budgets=(90.0,), timing_s=0.05, peers=("numpy",))
X, W = np.linspace(-1, 1, 512, dtype=np.float32).reshape(16, 32), np.ones(32, np.float32)


def _norm() -> Made:
    graph = trace(lambda x, w: xp.softmax(x, axis=-1) * w, spec((16, 32)), spec(32, constant=True))

    def numpy() -> list[np.ndarray]:
        e = np.exp(X - X.max(-1, keepdims=True))
        return [e / e.sum(-1, keepdims=True) * W]

    return Made(graph, (X,), {"w": W}, {"numpy": lambda: numpy, "unasked": lambda: numpy})


def _other() -> Made:
    graph: Graph = trace(lambda x: xp.exp(x) + 1, spec((16, 32)))
    return Made(graph, (X,), peers={"numpy": lambda: lambda: [np.exp(X) + 1.5]})


def _program(name: str, make: Any, *needs: str) -> Program:
    return Program(name, "own", "tests", needs, make)


OWN = (_program("own:norm", _norm), _program("own:other", _other))


def _here(program: Program, asked: Asked) -> Mapping[str, Any]:
    return json.loads(json.dumps(answer(program, asked)))


@pytest.mark.slow
def test_two_programs_of_our_own_get_whole_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))  # rows set it: put back afterwards
    output, said = tmp_path / "rows.json", list[str]()
    found = bench_unseen(OWN, OPTIONS, output, said.append, _here, lambda: PEAKS)
    assert json.loads(output.read_text()) == json.loads(json.dumps(found))
    norm, other = found["rows"]["own:norm@90"], found["rows"]["own:other@90"]
    assert "error" not in norm, norm
    assert norm["right"] and other["right"] and norm["verified"]
    assert set(other["wrong"]) == {"numpy"}  # the peer is held to the same reference
    assert set(norm["peer_over"]) == {"numpy"} and norm["peer_over"]["numpy"] > 0
    assert norm["best_us"] > 0 and norm["first_plan_s"] <= norm["took_s"] + 3
    assert norm["kernels_kept"] >= 1 and norm["plans_kept"] >= 1
    assert len(norm["rules_us"]) == 11 and norm["over_rules"] > 0
    assert set(norm["spent_s"]) == {"codegen", "compile", "measure", "sampler"}
    figures = found["summary"]["budgets"]["90"]
    assert figures["programs"] == 2 and not figures["without_a_plan"] and not figures["wrong"]
    assert len(said) == 2 and "right" in said[0] and "own:norm@90" in said[0]
    assert "2" in summary_text(found) and found["absent"] == {}


def test_what_an_output_has_is_not_done_again_but_what_failed_is(tmp_path: Path) -> None:
    asked: list[str] = []

    def refused() -> Made:
        raise AutofuseError("it cannot be")

    def row(program: Program, given: Asked) -> Mapping[str, Any]:
        asked.append(program.name)
        return {"error": "refused", "stage": "making"} if program.make is refused else dict(ROW)

    programs = (_program("own:a", _norm), _program("own:b", refused))
    output = tmp_path / "rows.json"
    for _ in range(2):
        bench_unseen(programs, OPTIONS, output, answer=row, calibrate=lambda: PEAKS)
    assert asked == ["own:a", "own:b", "own:b"]
    assert answer(programs[1], Asked(1.0, 0.0, (), False, PEAKS)) == {
        "stage": "making", "error": "refused: it cannot be",
    }  # fmt: skip
    output.write_text('{"rows": 1}')
    with pytest.raises(BenchError, match="holds no rows of bench_unseen"):
        bench_unseen(programs, OPTIONS, output, answer=row)


ROW: dict[str, Any] = {
    "best_us": 10.0, "first_plan_s": 2.0, "trials": 3, "kernels_kept": 9, "plans_kept": 4,
    "over_rules": 1.2, "search_gap": 0.5, "bound_gap": None, "took_s": 22.0, "right": True,
    "blind": "", "spent_s": {"codegen": 1.0, "compile": 2.0, "measure": 3.0, "sampler": 0.5},
    "phases_s": {"starting": 1.5}, "better": [(2.0, 30.0), (5.0, 10.4), (9.0, 10.0)],
    "loose": {"ops": {"dot": 1}, "us": 9.0, "bound_us": 3.0}, "peer_over": {"jax.jit": 2.0},
}  # fmt: skip


def test_figures_are_medians_geometric_means_and_counts() -> None:
    rows = [
        {"program": "a", "budget_s": 20.0, **ROW},
        {"program": "b", "budget_s": 20.0, **ROW, "over_rules": 0.9, "trials": 0, "right": False},
        {"program": "c", "budget_s": 20.0, "error": "no plan", "stage": "tuning"},
        {"program": "a", "budget_s": 60.0, **ROW, "search_gap": None},
    ]
    figures = summary(rows)
    short = figures["budgets"]["20"]
    assert short["without_a_plan"] == {"c": "no plan"} and short["without_a_trial"] == ["b"]
    assert short["over_rules"] == pytest.approx((1.2 * 0.9) ** 0.5)
    assert short["lost_to_a_rule"] == ["b"] and short["wrong"] == ["b"]
    assert short["trials"] == 1.5 and short["slowest_over_budget"] == 1.1
    assert figures["budgets"]["60"]["search_gap"] == 1.0 and figures["near"] == {"a": 5.0}
    assert "loosest bound: 9.0 us over 3.0 (1 dot)" in line(rows[0])
    assert "no plan" in line(rows[2])
    assert summary([])["budgets"] == {}


def test_packages_that_are_not_here_leave_their_programs_out() -> None:
    said: list[str] = []
    programs = (_program("own:gone", _norm, "no_such.package", "numpy"),)
    found = bench_unseen(programs, OPTIONS, None, said.append, calibrate=lambda: PEAKS)
    assert found["rows"] == {} and found["absent"] == {"own:gone": "no_such.package"}
    assert said == ["absent: own:gone (no_such.package)"]
    assert "absent: no_such.package" in listing(programs)
    assert "requirements.txt" in summary_text(found)


def test_a_row_that_does_not_end_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "CHILD", ("-c", "import time; time.sleep(600)"))
    asked = Asked(1.0, 0.0, (), False, PEAKS)
    assert apart(OWN[0], asked, 0.5)["error"] == "it did not end in 0.5 s"
    monkeypatch.setattr(bench, "CHILD", ("-c", "import os; os.abort()"))
    assert "the process ended with -6" in apart(OWN[0], asked, 60.0)["error"]


def test_programs_are_named_once_and_chosen_by_name_or_package() -> None:
    assert len(PROGRAMS) >= 50 and all(":" in name for name in PROGRAMS)
    assert sum(p.drawn for p in PROGRAMS.values()) == 10
    assert {p.package for p in chosen(["optax", "rlax:vtrace"])} == {"optax", "rlax"}
    with pytest.raises(BenchError, match="no program is called 'nothing'"):
        chosen(["nothing"])


def test_the_script_lists_programs_and_refuses_what_it_does_not_know() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "bench_unseen")]
    listed = subprocess.run(
        [*script, "--list", "--programs", "optax"], capture_output=True, text=True, check=True
    )
    assert "optax:adamw" in listed.stdout
    refused = subprocess.run([*script, "--programs", "nothing"], capture_output=True, text=True)
    assert refused.returncode == 2 and "no program is called 'nothing'" in refused.stderr
