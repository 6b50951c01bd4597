"""A share of the cases that ship inside jax, against the record of all of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.jax_conformance import (
    BROKEN,
    FOREIGN,
    PASSED,
    REFUSED,
    WRONG,
    Outcome,
    line,
    run,
    suite,
)
from benchmarks.jax_conformance import record as recorded

RECORD = Path(__file__).parent.parent / "docs" / "results" / "jax-conformance.json"
EVERY = 60


@pytest.mark.filterwarnings("ignore")
def test_cases_pass_but_for_the_gaps_on_record() -> None:
    """A gap that closes must leave the record: run scripts/jax_conformance --output again."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    gaps = {name for names in record["gaps"].values() for name in names}
    assert not [reason for reason in record["gaps"] if not reason.startswith(REFUSED)]
    found = [each for each in run(suite()[::EVERY]) if each.status != FOREIGN]
    assert len(found) > 40
    assert {each.name for each in found if each.status != PASSED} == {
        each.name for each in found if each.name in gaps
    }
    assert not [each for each in found if each.status in (WRONG, BROKEN)]


def test_the_record_counts_what_it_was_given() -> None:
    found = [Outcome("add", "add_1", PASSED), Outcome("add", "add_2", FOREIGN, "dtype complex64"),
             Outcome("qr", "qr_1", REFUSED, "no")]  # fmt: skip
    assert line(found) == "1 of 2 pass (50.0 %), 1 refused, 0 wrong, 0 broken; 1 not counted"
    made = recorded(found)
    assert made["primitives"] == {"add": {"foreign": 1, "passed": 1}, "qr": {"refused": 1}}
    assert made["gaps"] == {"refused: no": ["qr_1"]}
