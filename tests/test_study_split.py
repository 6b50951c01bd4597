"""Experiment B: a speed-up divided between partition, launches and generator."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from autofuse.baselines import BASELINES
from autofuse.cost.bounds import NOMINAL
from benchmarks.kept import Row
from benchmarks.study import split
from benchmarks.study.pictures import split_picture
from benchmarks.study.programs import study_programs
from benchmarks.study.shares import (
    BEST_RULES,
    divided,
    peer_splits,
    shares,
    shares_text,
    splits,
)
from benchmarks.study.split import SEARCHED, split_row

DATA = Path(__file__).parent.parent / "docs/results/study/shares.json"


def test_what_parts_give_makes_the_whole() -> None:
    partition, launches = divided(neither=12.0, launches=6.0, partition=4.0, both=1.0)
    assert math.exp(partition + launches) == pytest.approx(12.0)
    # First 12 to 4 and last 6 to 1: the root of 3 x 6.
    assert math.exp(partition) == pytest.approx(math.sqrt(18))
    alone, nothing = divided(neither=2.0, launches=2.0, partition=1.0, both=1.0)
    assert (math.exp(alone), nothing) == (pytest.approx(2.0), 0.0)


def made(program: str, us: dict[str, tuple[float, float]], **more: Any) -> Row:
    """A row with the times of partitions under default and under tuned launches."""
    plans = {
        name: {"groups": 1, "known": 1, "default": f"{name}0", "tuned": f"{name}1"} for name in us
    }
    times = {f"{name}{k}": each for name, pair in us.items() for k, each in enumerate(pair)}
    return {"program": program, "plans": plans, "us": {"cold": times, "warm": times},
            "calls": {}, **more}  # fmt: skip


ROWS = [
    made("one", {"tvm": (12.0, 6.0), "nnc": (8.0, 8.0), SEARCHED: (4.0, 1.0)},
         calls={"jax.jit": {"peer": 40.0, "rules": 20.0, SEARCHED: 10.0}}),
    made("two", {"tvm": (3.0, 3.0), SEARCHED: (3.0, 3.0)}, calls={"jax.jit": {"error": "no"}}),
]  # fmt: skip


def test_rows_are_divided_by_planner_and_by_the_best_of_them() -> None:
    tvm, best, nnc = (
        next(one for one in splits(ROWS, "cold") if one.planner == name)
        for name in ("tvm", BEST_RULES, "nnc")
    )
    assert (tvm.programs, best.programs, nnc.programs) == (2, 2, 1)
    assert tvm.whole[0] == pytest.approx(math.sqrt(12.0))
    assert tvm.partition[0] * tvm.launches[0] == pytest.approx(tvm.whole[0])
    # The best under default launches is nnc's plan, under tuned ones tvm's.
    assert shares(ROWS[0], BEST_RULES, "cold") == divided(8.0, 6.0, 4.0, 1.0)
    assert shares(ROWS[1], "nnc", "cold") is None
    (peer,) = peer_splits(ROWS)
    assert (peer.peer, peer.programs) == ("jax.jit", 1)
    assert (peer.whole[0], peer.generator[0]) == (pytest.approx(4.0), pytest.approx(2.0))


def test_the_tables_and_the_picture_name_them() -> None:
    rows = {row["program"]: row for row in ROWS} | {"bad": {"program": "bad", "error": "no plan"}}
    data = {"rows": rows, "size": "small", "cpu": "a processor", "threads": 2, "note": "quiet",
            "seconds": 15.0}  # fmt: skip
    text = shares_text(data)
    assert "Left out: `bad`, no plan." in text and "two sessions of 15 s each" in text
    assert "| tvm | 2 | 3.46 (1.00 to 12.00) |" in text
    assert "4.00 (4.00 to 4.00) times as fast as jax.jit on 1 programs" in text
    drawn = split_picture(ROWS, "cold")
    assert drawn.count("<circle") == 2 * 3 and "the launches" in drawn


def test_a_row_has_every_partition_under_both_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split, "HOW", split.Interleaving(3, 1, 60.0, 30.0))
    monkeypatch.setenv("AUTOFUSE_CACHE", "")  # the row has one of its own; undone afterwards
    program = study_programs()["softmax"].make("small")
    row = split_row(program, 2.0, NOMINAL.to_mapping())
    assert row["plans"].keys() == {*BASELINES, SEARCHED} and not row["failed"]
    for state in split.STATES:
        asked = {each[kind] for each in row["plans"].values() for kind in ("default", "tuned")}
        assert row["us"][state].keys() == asked
        assert all(us > 0 for us in row["us"][state].values())
    assert shares({**row, "program": "softmax"}, BEST_RULES, row["state"]) is not None
    counts = [(each["known"], each["groups"]) for each in row["plans"].values()]
    assert all(0 <= known <= groups for known, groups in counts) and any(k for k, _ in counts)
    assert row["sessions"].keys() == {"launches", "exact"}


def test_what_the_page_says_is_so() -> None:
    found = json.loads(DATA.read_text(encoding="utf-8"))["rows"].values()
    rows = [row for row in found if "error" not in row]
    assert len(rows) >= 10
    for state in split.STATES:
        told = {each.planner: each for each in splits(rows, state)}
        for rules in ("xla-2022", "xla-2026", "inductor", "tvm"):
            assert told[rules].partition[1] > 1
            assert told[rules].partition[0] > told[rules].launches[0]
        best = told[BEST_RULES]
        assert best.partition[1] > 1 and best.partition[0] < 1.1
        assert best.launches[0] > best.partition[0] - 0.02
    for peer in peer_splits(rows):
        share = math.log(peer.generator[0]) / math.log(peer.whole[0])
        assert 0.75 < share < 0.9
