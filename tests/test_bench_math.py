"""scripts/bench_math: both plans of a workload, and what is not done again."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofuse.peers.types import BenchError
from benchmarks import math_price
from benchmarks.math_price import Row, bench_math, math_row


@pytest.mark.slow
def test_both_plans_are_timed(tmp_path: Path) -> None:
    row = math_row("softmax", "small", 2.0, 0.2, str(tmp_path / "t.db"))
    assert set(row["us"]) == {"default", "relaxed"} and min(row["us"].values()) > 0
    assert row["default_over_relaxed"] == row["us"]["default"] / row["us"]["relaxed"]


def test_rows_that_are_there_are_not_done_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[str] = []

    def made(name: str, *_: object) -> Row:
        asked.append(name)
        ratio = {"mlp": 1.0, "life": 4.0}[name]
        return {"us": {"default": ratio, "relaxed": 1.0}, "default_over_relaxed": ratio}

    monkeypatch.setattr(math_price, "math_row", made)
    output = tmp_path / "rows.json"
    bench_math(["mlp"], "small", 1.0, 1.0, output, lambda _: None)
    found = bench_math(["mlp", "life"], "small", 1.0, 1.0, output, lambda _: None)
    assert asked == ["mlp", "life"]
    assert found["geometric_mean"] == pytest.approx(2.0)


def test_rows_of_something_else_are_refused(tmp_path: Path) -> None:
    output = tmp_path / "rows.json"
    for text, said in (("{}", "holds no rows"), ('{"rows": {}}', "holds no rows"), ("[", "holds")):
        output.write_text(text)
        with pytest.raises(BenchError, match=said):
            bench_math([], "small", 1.0, 1.0, output, lambda _: None)
    output.unlink()
    bench_math([], "small", 1.0, 1.0, output, lambda _: None)
    assert not output.exists()
