"""A share of the cases that ship inside torch, against the record of many of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from autofuse.frontends.torch_rules import RULES
from benchmarks.torch_conformance import (
    BROKEN,
    FOREIGN,
    PASSED,
    REFUSED,
    WRONG,
    TorchOutcome,
    operators,
    record_of,
    run_cases,
    summary,
)

RECORD = Path(__file__).parent.parent / "docs" / "results" / "torch-conformance.json"
# One operator in so many here, and in nights.
EVERY, AT_NIGHT = 20, 5
pytest.importorskip("torch")  # an extra of its own
pytest.importorskip("expecttest")  # what the cases of torch import


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("every", [EVERY, pytest.param(AT_NIGHT, marks=pytest.mark.slow)])
def test_torchs_cases_pass_but_for_the_gaps_on_record(every: int) -> None:
    """A gap that closes must leave the record: run scripts/torch_conformance --output again, with
    as many cases as the record says."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    gaps = {name for names in record["gaps"].values() for name in names}
    assert not [reason for reason in record["gaps"] if not reason.startswith(REFUSED)]
    chosen = [each for each in operators() if each.name in record["operators"]][::every]
    found = [each for each in run_cases(chosen, most=record["most"]) if each.status != FOREIGN]
    assert len(found) > 100
    assert not [each for each in found if each.status in (WRONG, BROKEN)]
    missed = {each.name for each in found if each.status != PASSED}
    assert missed == {each.name for each in found if each.name in gaps}


def test_the_record_only_grows() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    assert len(record["overloads"]) >= 140
    assert set(record["overloads"]) <= set(RULES)


def test_the_torch_record_counts_what_it_was_given() -> None:
    found = [
        TorchOutcome("add", "add:float32:0", PASSED, "", ("aten.add.Tensor",)),
        TorchOutcome("add", "add:bool:1", FOREIGN, "no rule: aten.qr"),
        TorchOutcome("pow", "pow:int64:3", REFUSED, "no"),
    ]
    assert summary(found) == "1 of 2 pass (50.0 %), 1 refused, 0 wrong, 0 broken; 1 not counted"
    made = record_of(found, most=3)
    assert made["operators"] == {"add": {"foreign": 1, "passed": 1}, "pow": {"refused": 1}}
    assert made["gaps"] == {"refused: no": ["pow:int64:3"]} and made["most"] == 3
    assert made["overloads"] == ["aten.add.Tensor"]
    assert made["not counted"] == {"no rule: aten.qr": 1}
