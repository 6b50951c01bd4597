"""Experiment E: plans moved to other sizes."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from autofuse.cost.bounds import NOMINAL
from autofuse.errors import AutofuseError
from autofuse.zoo import ZOO
from benchmarks.kept import Row
from benchmarks.study import travel
from benchmarks.study.journeys import losses, losses_text
from benchmarks.study.pictures import travel_picture
from benchmarks.study.travel import PARTITION, WHOLE, sized, travel_row

DATA = Path(__file__).parent.parent / "docs/results/study/travels.json"


def made(program: str, us: dict[str, dict[str, Any]]) -> Row:
    return {"program": program, "sizes": [int(size) for size in us], "us": us}


ROWS = [
    made("one", {
        "4": {"own": 10.0, "untuned": 20.0, WHOLE: {"16": None}, PARTITION: {"16": 10.0}},
        "16": {"own": 40.0, "untuned": 60.0, WHOLE: {"4": 80.0}, PARTITION: {"4": 40.0}},
    }),
]  # fmt: skip


def test_losses_are_over_the_plan_tuned_at_the_size() -> None:
    found = {(one.what, one.factor): one for one in losses(ROWS)}
    assert found.keys() == {(WHOLE, 4.0), (PARTITION, 4.0), ("untuned", 1.0)}
    whole = found[WHOLE, 4.0]
    assert (whole.pairs, whole.none, whole.worst) == (2, 1, (2.0, "one"))
    assert whole.mean[0] == pytest.approx(2.0)
    assert found[PARTITION, 4.0].mean[0] == pytest.approx(1.0)
    assert found["untuned", 1.0].mean[0] == pytest.approx(math.sqrt(2.0 * 1.5))
    data = {"rows": {"one": ROWS[0], "bad": {"error": "no sizes"}}, "cpu": "a processor",
            "threads": 2, "note": "", "seconds": 5.0}  # fmt: skip
    text = losses_text(data)
    assert "| the plan with its launches | 4 | 2 | 1 | 2.00 (2.00 to 2.00) | one 2.00 |" in text
    assert "Left out: `bad`, no sizes." in text


def test_the_picture_has_a_curve_for_each() -> None:
    rows = [made("one", {
        str(size): {"own": 10.0, "untuned": 20.0,
                    **{what: {str(o): 11.0 for o in (4, 16, 64) if o != size}
                       for what in (WHOLE, PARTITION)}}
        for size in (4, 16, 64)
    })]  # fmt: skip
    drawn = travel_picture(rows)
    assert all(f"af-line af-l{series}" in drawn for series in range(3))
    assert "the plan with its launches" in drawn and "nothing" in drawn


def test_sizes_are_of_one_family() -> None:
    graphs = sized("softmax")
    assert list(graphs) == [256, 1024, 4096, 16384]  # 65536 rows are too many elements
    assert {graph.input_types[0].shape for graph in graphs.values()} == {(n, 4096) for n in graphs}
    with pytest.raises(AutofuseError, match="no extent to scale"):
        sized("adam_16")


def test_a_row_has_times_of_all_that_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(travel, "FACTORS", (1.0, 4.0))
    monkeypatch.setattr(travel, "HOW", travel.Interleaving(3, 1, 60.0, 30.0))
    monkeypatch.setitem(ZOO["softmax"].parameters, "default", (32, 64))
    monkeypatch.setenv("AUTOFUSE_CACHE", "")  # the row has one of its own; undone afterwards
    row = travel_row("softmax", 1.5, NOMINAL.to_mapping())
    assert row["sizes"] == [32, 128]
    for size, other in (("32", "128"), ("128", "32")):
        us = row["us"][size]
        assert us["own"] > 0 and us["untuned"] > 0 and us[PARTITION][other] > 0
        assert us[WHOLE].keys() == {other}


def test_what_the_page_says_is_so() -> None:
    found = json.loads(DATA.read_text(encoding="utf-8"))["rows"].values()
    rows = [row for row in found if "error" not in row]
    assert len(rows) == 5
    told = losses(rows)
    moved = {what: [one for one in told if one.what == what] for what in (WHOLE, PARTITION)}
    assert all(0.95 < one.mean[0] < 1.02 for one in moved[PARTITION])
    means = [one.mean[0] for one in moved[WHOLE]]
    assert min(means) > 1.01 and means[0] < 1.1
    assert max(means) == means[-1] and 1.5 < means[-1] < 2
    assert not any(one.none for one in told)
