"""scripts/bench_untuned: rows that are kept, figures over them, and what is not done again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.peers.types import BenchError
from benchmarks import untuned
from benchmarks.untuned import Proof, UntunedRow, bench_untuned, line, summary

PROOF = Proof(60.0, 0.02, 10.0, 9.8, 3.0, "whole", 5, 7, 2, 9, ("said",))
ROW = UntunedRow(
    "mlp", "small", 9, "untuned: expected", 12.0, 15.0, 10.0, ("a", "b", "c"), 0.5, PROOF
)  # fmt: skip


def test_a_row_is_read_back_as_it_was_written() -> None:
    for row in (ROW, replace(ROW, proof=None)):
        assert UntunedRow.from_json(json.loads(json.dumps(row.to_json()))) == row
    assert "gap   2.0%" in line(ROW) and "not tuned" in line(replace(ROW, proof=None))


def test_a_workload_of_which_nothing_is_proved_counts_as_open() -> None:
    rows = [ROW, replace(ROW, proof=replace(PROOF, gap=None)), replace(ROW, untuned_us=30.0)]
    found = summary(rows)
    assert found["workloads"] == 3 and found["closed"] == 2 / 3 and found["median_gap"] == 0.02
    assert found["untuned_over_tuned"] == pytest.approx(math.exp(math.log(1.2 * 1.2 * 3) / 3))
    assert summary([])["closed"] is None and summary([])["untuned_over_tuned"] is None


def test_what_an_output_has_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def row(name: str, size: str, budget_s: float, db: str | None) -> UntunedRow:
        asked.append(name)
        if name == "softmax":
            raise BenchError("does not run")
        return replace(ROW, workload=name, size=size)

    monkeypatch.setattr(untuned, "_row", row)
    output = tmp_path / "rows.json"
    first = bench_untuned([("mlp", "small"), ("softmax", "small")], 0.0, None, output, "load")
    assert first["failed"] == {"softmax:small": "does not run"} and first["note"] == "load"
    assert json.loads(output.read_text()) == json.loads(json.dumps(first))
    again = bench_untuned([("mlp", "small"), ("life", "small")], 0.0, None, output)
    assert asked == ["mlp", "softmax", "life"]
    assert [r["workload"] for r in again["rows"]] == ["mlp", "life"]
    with pytest.raises(BenchError, match="another machine or budget"):
        bench_untuned([], 30.0, None, output)
    output.write_text('{"rows": [1]}')
    with pytest.raises(BenchError, match="holds no rows of bench_untuned"):
        bench_untuned([], 0.0, None, output)


@pytest.mark.slow
def test_a_workload_is_tuned_and_compared(tmp_path: Path) -> None:
    db = str(tmp_path / "tuning.db")
    found = bench_untuned([("softmax", "small")], 3.0, db)
    (row,) = found["rows"]
    assert not found["failed"] and row["ratio"] == row["untuned_us"] / row["best_us"] > 0
    assert row["proof"]["budget_s"] == 3.0 and row["proof"]["kernels"] > 0
    known = bench_untuned([("softmax", "small")], 0.0, db)
    assert known["rows"][0]["proof"] is None and known["summary"]["closed"] is None
