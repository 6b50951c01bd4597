"""The comparison with onnxruntime, on a small model and with something in onnxruntime's place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.frontends.onnx.read import OnnxFile, import_for
from autofuse.peers.types import BenchError
from benchmarks import onnx_bench
from benchmarks.onnx_bench import OnnxBench, Runs, bench_onnx, relative_error, summary
from benchmarks.onnx_conformance import by_reference
from benchmarks.onnx_zoo import BENCH_MODELS, BenchModel
from tests.support.onnx_models import perceptron

QUICK = OnnxBench(seconds=0, timing_s=0.01, threads=1)


def by_us(file: OnnxFile, arrays: Mapping[str, np.ndarray], threads: int) -> Runs:
    """Our reference as if it were another system."""
    imported = import_for(file, arrays)
    found = by_reference(imported, [arrays[name] for name in imported.inputs])
    return lambda: found


def fails(*_: Any) -> Runs:
    raise AssertionError("it is not asked for again")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """One small model beside those there are; the threads of the tests are left alone."""
    made = BenchModel("small", lambda: OnnxFile(perceptron()), {"batch": 2})
    monkeypatch.setitem(BENCH_MODELS, "small", made)
    monkeypatch.setattr(onnx_bench, "limit_threads", lambda threads: None)


@pytest.mark.usefixtures("small")
def test_a_row_is_measured_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    options = replace(QUICK, db=str(tmp_path / "t.db"))
    (row,) = bench_onnx(["small"], options, path, by_us)["rows"].values()
    assert row["nodes"] == 4 and row["apart"] < 1e-5
    assert row["us"]["ours"][1] > 0 and row["interval"][0] <= row["ratio"] <= row["interval"][1]
    again = bench_onnx(["small"], options, path, fails)
    assert again["rows"]["small"] == row == json.loads(path.read_text())["rows"]["small"]
    other = bench_onnx(["small"], replace(options, timing_s=0.02), path, fails)
    assert other["left_out"] == {"small": "AssertionError: it is not asked for again"}


@pytest.mark.usefixtures("small")
def test_what_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.onnx_zoo.find_spec", lambda name: None)
    found = bench_onnx(["magika"], QUICK, None, by_us)
    assert found["left_out"] == {"magika": "package magika is not installed"}
    assert found["geomean"] is None
    with pytest.raises(BenchError, match="no model 'nothing'"):
        bench_onnx(["nothing"], QUICK)


@pytest.mark.parametrize("name", [name for name, m in BENCH_MODELS.items() if m.elementwise])
def test_written_models_are_graphs(name: str) -> None:
    model = BENCH_MODELS[name]
    file = model.read()
    imported = import_for(file, model.arrays(file))
    assert imported.graph.outputs and not imported.weights


def test_figures_over_rows() -> None:
    rows = {
        "a": {"ratio": 4.0, "elementwise": True, "apart": 1e-7},
        "b": {"ratio": 1.0, "elementwise": False, "apart": 1e-5},
        "c": {"error": "no", "elementwise": False},
    }
    found = summary(rows)
    assert found["geomean"] == pytest.approx(2) and found["geomean_elementwise"] == 4
    assert (found["worst"], found["left_out"]) == ("b", {"c": "no"})
    assert relative_error([np.array([1.0, 2.2])], [np.array([1.0, 2.0])]) == pytest.approx(0.1)
