"""The table of products by narrow weights, on a small product."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from autofuse.peers.types import BenchError
from benchmarks.lowbit import bench
from benchmarks.lowbit.bench import LowbitOptions, bench_lowbit, summary
from benchmarks.lowbit.cases import FORMATS, Case, Format, cases
from benchmarks.lowbit.systems import ORT, TORCH, UNTUNED, NotHereError, system_of


def small(number: int = 2) -> Case:
    return Case("small", 2, 64, 128, FORMATS[number])


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
@pytest.mark.parametrize("system", [UNTUNED, TORCH])
def test_each_system_computes_the_product(form: Format, system: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")  # an extra of its own, and one of the systems
    case = Case("small", 2, 64, 128, form)
    try:
        call = system_of(system, case, str(tmp_path / "t.db"), 0.0)
    except NotHereError as error:
        assert system == TORCH and "no operator" in str(error)
        return
    wanted = case.wanted()
    near = 1e-5 if system == UNTUNED else bench.COARSE
    assert np.abs(call() - wanted).max() <= near * np.abs(wanted).max()


def test_what_is_not_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(NotHereError, match="onnxruntime is not installed"):
        system_of(ORT, small(), str(tmp_path / "t.db"), 0.0)


def test_weights_take_the_bytes_that_are_told() -> None:
    by_name = {form.name: Case("m", 1, 64, 128, form).nbytes for form in FORMATS}
    assert by_name["i8"] == 64 * 128 + 64 * 4
    assert by_name["i4 g32"] == 64 * 64 + 64 * 4 * 4
    assert by_name["i4 g32 asymmetric"] == 64 * 64 + 64 * 4 * 4 + 64 * 4 // 2


def test_all_sizes_formats_and_rows_are_cases() -> None:
    found = list(cases(("1B", "8B"), (1, 8), ("i8", "i4 g128")))
    assert len(found) == 2 * 2 * 2 * 3
    assert len({case.name for case in found}) == len(found)


def test_rows_are_kept_as_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "read_gbytes_per_s", lambda db: 20.0)
    monkeypatch.setattr(bench, "COLD_BYTES", 1 << 16)
    output, said = tmp_path / "found.json", list[str]()
    options = LowbitOptions(0.0, 0.01, (UNTUNED,), str(tmp_path / "t.db"))
    first = bench_lowbit([small()], options, output, said.append)
    assert json.loads(output.read_text()) == json.loads(json.dumps(first))
    second = bench_lowbit([small(), small(0)], options, output, said.append)
    assert list(second["rows"]) == [small().name, small(0).name] and len(said) == 3
    assert second["rows"][small().name] == json.loads(json.dumps(first["rows"][small().name]))
    with pytest.raises(BenchError, match="another budget_s"):
        bench_lowbit([small()], LowbitOptions(9.0, 0.01, (UNTUNED,), ""), output, said.append)


def test_the_summary_has_peers_and_the_share_of_memory() -> None:
    times = {UNTUNED: (0.4, 0, 0), TORCH: (0.8, 0, 0), ORT: (2, 0, 0)}
    row = {"rows": 1, "nbytes": 4000, "us": times}
    alone = {"rows": 8, "nbytes": 1000, "us": {UNTUNED: (1.0, 0, 0)}}
    told = summary({"read_gbytes_per_s": 20.0, "rows": {"a": row, "b": alone}})
    assert told[1].startswith("1 rows, untuned: best peer over ours 2.00 (2.00 to 2.00, 1 cases)")
    assert told[1].endswith("weights at 0.50 of reading memory") and len(told) == 2
