"""A share of the cases that ship inside torch, against the record of all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from autofuse.frontends.torch.rules import RULES
from autofuse.peers.types import BenchError
from benchmarks.torch_conformance import (
    BROKEN,
    FOREIGN,
    PASSED,
    REFUSED,
    WRONG,
    TorchOutcome,
    group_of,
    operators,
    run_operator,
)
from benchmarks.torch_record import continued, merged, record_of

RECORD = Path(__file__).parent.parent / "docs" / "results" / "torch-conformance.json"
# One operator in so many here, and in nights; of those that the record has whole, so many cases of
# each dtype.
EVERY, AT_NIGHT, MOST = 100, 5, 2
pytest.importorskip("torch")  # an extra of its own
pytest.importorskip("expecttest")  # what the cases of torch import


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [EVERY, pytest.param(AT_NIGHT, marks=pytest.mark.slow)])
def test_torchs_cases_pass_but_for_the_gaps_on_record(every: int) -> None:
    """A gap that closes must leave the record: run scripts/torch_conformance --output again."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    gaps = {name for names in record["gaps"].values() for name in names}
    counts = record["operators"]
    chosen = [each for each in operators() if group_of(each) in counts][::every]
    outcomes = [
        outcome
        for each in chosen
        for outcome in run_operator(each, counts[group_of(each)].get("most", MOST))
    ]
    found = [each for each in outcomes if each.status != FOREIGN]
    assert len(found) > 1500 // every
    assert not [each for each in found if each.status in (WRONG, BROKEN)]
    missed = {each.name for each in found if each.status != PASSED}
    assert missed == {each.name for each in found if each.name in gaps}


def test_the_record_has_no_fault() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert not [reason for reason in record["gaps"] if not reason.startswith(REFUSED)]
    assert len(record["overloads"]) >= 140
    assert set(record["overloads"]) <= set(RULES)


@pytest.mark.parametrize("script", ["bench_torch", "torch_conformance"])
def test_a_device_that_torch_does_not_have_is_one_sentence(script: str) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("torch has a CUDA device")
    path = Path(__file__).parent.parent / "scripts" / script
    found = subprocess.run(
        [sys.executable, path, "--device", "cuda"], capture_output=True, text=True, timeout=300
    )
    assert found.returncode == 2 and not found.stdout
    assert found.stderr == f"{script}: torch {torch.__version__} has no CUDA device here\n"


def test_records_of_devices_are_apart(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    record.write_text(json.dumps(record_of((), device="cuda")))
    with pytest.raises(BenchError, match="is a record of device cuda: give another file"):
        continued(record, (), None, 0.0, print)
    assert "device" not in record_of(())


def test_the_torch_record_counts_what_it_was_given() -> None:
    found = [
        TorchOutcome("add", "add:float32:0", PASSED, "", ("aten.add.Tensor",)),
        TorchOutcome("add", "add:bool:1", FOREIGN, "no rule: aten.qr"),
        TorchOutcome("pow", "pow:int64:3", REFUSED, "no"),
    ]
    made = record_of(found)
    counts = "1 of 2 pass (50.0 %), 1 refused, 0 wrong, 0 broken; 1 not counted"
    assert made["summary"] == counts
    foreign = {"no rule: aten.qr": 1}
    assert made["operators"]["add"] == {"foreign": 1, "passed": 1, "not counted": foreign}
    assert made["gaps"] == {"refused: no": ["pow:int64:3"]}
    assert made["overloads"] == ["aten.add.Tensor"]


def test_a_torch_record_goes_on() -> None:
    one = record_of([TorchOutcome("pow", "pow:int64:3", REFUSED, "no")], most=3)
    other = record_of([TorchOutcome("add", "add:int64:3", REFUSED, "no")])
    both = merged(one, other)
    assert both["gaps"] == {"refused: no": ["add:int64:3", "pow:int64:3"]}
    assert both["complete"] == 1 and both["operators"]["pow"]["most"] == 3
    mended = merged(both, record_of([TorchOutcome("pow", "pow:int64:3", PASSED)]))
    assert mended["gaps"] == {"refused: no": ["add:int64:3"]}
    assert mended["summary"].startswith("1 of 2 pass")
