"""How long to search for a number of runs, and what is said of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import autofuse
from autofuse import faults
from autofuse.devices import device_named
from autofuse.errors import AutofuseError
from autofuse.simplify import normal_form
from autofuse.tuning import advice, tune
from autofuse.tuning.advice import DIALS, Advice, advice_for, advised
from autofuse.zoo import zoo_graph
from benchmarks.study.cheapest import times_of

DATA = Path(__file__).parent.parent / "docs/results/study/dials.json"


def test_the_dials_are_those_of_the_record() -> None:
    """A mean over programs of each dial's time over the fastest dial's."""
    rows = list(json.loads(DATA.read_text(encoding="utf-8"))["rows"].values())
    names = {"autofuse untuned": 0.0} | {f"autofuse {s:g} s": s for s, _ in DIALS[1:]}
    logs: dict[float, list[float]] = {seconds: [] for seconds in names.values()}
    for dials in times_of(rows).values():
        least = min(each.us for each in dials)
        for each in dials:
            if each.dial in names:
                logs[names[each.dial]].append(float(np.log(each.us / least)))
    found = tuple((seconds, round(float(np.exp(np.mean(of))), 2)) for seconds, of in logs.items())
    assert found == DIALS


def test_more_runs_and_longer_ones_are_worth_more_seconds() -> None:
    assert advised(1, 50.0).seconds == 0.0
    seconds = [advised(10.0**n, 50.0).seconds for n in range(12)]
    assert seconds == sorted(seconds) and set(seconds) == {s for s, _ in DIALS}
    assert advised(1e6, 50.0).seconds == advised(1e3, 50_000.0).seconds
    # 10^6 runs of 50 us: each tenth of a run's time is five seconds.
    found = advised(1e6, 50.0)
    assert found.seconds == 3.0 and found.gain == pytest.approx(1.43 / 1.12)
    with pytest.raises(AutofuseError, match="must be positive"):
        advised(0, 50.0)


def test_it_is_said_what_was_expected_and_what_came() -> None:
    found = Advice(1e6, 50.0, 3.0, 1.28)
    assert str(found) == (
        "for 1,000,000 runs of about 50 µs a search of 3 s is advised: it made others 1.28 times "
        "as fast"
    )
    assert "1.28 times as fast as the untuned plan; it became 2.00" in found.came(2.0)
    assert "10 runs of about 50 µs do not repay a search" in str(advised(10, 50.0))


def test_the_untuned_plan_says_how_long_a_run_takes(tmp_path: Path) -> None:
    graph, kind = normal_form(zoo_graph("softmax", "small")), device_named("cpu")
    db = str(tmp_path / "t.db")
    few, many = (advice_for(graph, kind, runs, db) for runs in (1, 1e12))
    assert few.untuned_us == many.untuned_us > 0
    assert (few.seconds, many.seconds) == (0.0, DIALS[-1][0])


def test_tuning_notes_what_came_of_it(tmp_path: Path) -> None:
    given = Advice(1e6, 50.0, 2.0, 1.28)
    with faults.strict():
        found = tune(zoo_graph("softmax", "small"), device="cpu", db=str(tmp_path / "t.db"),
                     budget_s=2.0, advice=given)  # fmt: skip
    (note,) = (note for note in found.notes if note.startswith("expected of 2 s"))
    assert "it became" in note


def test_compiling_for_many_runs_tunes_and_for_few_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advice, "DIALS", ((0.0, 1.43), (2.0, 1.04)))
    graph, db = zoo_graph("softmax", "small"), str(tmp_path / "t.db")
    few = autofuse.compile(graph, device="cpu", db=db, runs=1)
    assert few.origin.startswith("untuned")
    assert any("1 runs of about" in note for note in few.notes)
    many = autofuse.compile(graph, device="cpu", db=db, runs=1e12)
    assert many.origin.startswith("best")
