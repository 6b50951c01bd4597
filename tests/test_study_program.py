"""The study of one program: dials, prices, parts and crossings, and what is told of them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from autofuse.backends.cache import cache_directory, empty_cache
from autofuse.devices import timed_device
from autofuse.errors import AutofuseError
from autofuse.graph.builder import GraphBuilder
from autofuse.ops.dtypes import DType
from autofuse.records import Failure, FailureKind
from autofuse.simplify import forms_of, normal_form
from autofuse.study import ProgramStudy, program, study
from autofuse.study.page import heading, markdown, sections, sentences
from autofuse.study.page_html import html
from autofuse.study.program import NEEDED, NO_TIME, SEARCHED, variants
from autofuse.study.types import Crossing, Dial, RulePrice, SpeedupFactor
from autofuse.tuning import in_turns
from autofuse.tuning.in_turns import timed_in_turns
from autofuse.tuning.plans import baseline_candidate
from autofuse.tuning.serve.forms import keep_as_written
from autofuse.tuning.together import Interleaving, Together
from autofuse.zoo import zoo_graph


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> ProgramStudy:
    db = str(tmp_path_factory.mktemp("study") / "tuning.db")
    graph = zoo_graph("attention", "small")
    return study(graph, name="one", device="cpu", db=db, budget_s=20.0)


def test_dials_rise_in_seconds_and_the_front_falls_in_time(found: ProgramStudy) -> None:
    seconds = [dial.seconds for dial in found.dials]
    front = [dial.us for dial in found.dials if dial.on_front]
    assert seconds == sorted(seconds) and front == sorted(front, reverse=True)
    assert len(set(front)) == len(front) > 0
    assert {"untuned", "unfused"} <= {dial.name for dial in found.dials}
    assert found.dials[-1].name.startswith("search, ")
    assert all(dial.low <= dial.ratio <= dial.high for dial in found.dials)


def test_parts_multiply_to_the_whole(found: ProgramStudy) -> None:
    *parts, whole = found.parts
    product = 1.0
    for part in parts:
        product *= part.factor
    assert product == pytest.approx(whole.factor)


def test_a_rule_changes_the_plan_or_is_counted(found: ProgramStudy) -> None:
    changed = {(price.planner, price.rule) for price in found.prices if price.rule}
    untimed = {name for name in found.left_out if ":" in name}
    for planner, count in found.unchanged.items():
        rules = [rule for _, own, rule in variants() if own == planner and rule]
        gone = sum(name.startswith(f"{planner}:without") for name in untimed)
        assert count + sum(own == planner for own, _ in changed) + gone == len(rules)


def test_crossings_follow_from_seconds_and_times(found: ProgramStudy) -> None:
    dials = {dial.name: dial for dial in found.dials}
    last = found.dials[-1]
    for crossing in found.crossings:
        other = dials[crossing.over]
        if crossing.runs is None:
            assert other.us <= last.us
        else:
            saved = 1e-6 * (other.us - last.us)
            assert crossing.runs == pytest.approx((last.seconds - other.seconds) / saved)
            assert crossing.low is not None and crossing.low <= crossing.runs


def test_data_are_plain_and_tables_are_of_them(found: ProgramStudy) -> None:
    data = json.loads(json.dumps(found.to_json()))
    assert data["graph"]["nodes"] == found.nodes
    for section in sections(data):
        assert all(len(row) == len(section.head) for row in section.rows)
    page = markdown(data)
    assert "## What seconds buy" in page and "| launches |" in page
    assert list(sentences(data))


def made() -> ProgramStudy:
    return ProgramStudy(
        "a|b\nc", "0" * 8, 3, "cpu", "warm", 10.0, 9.0,
        (Dial("untuned", 0.5, 20.0, 2.0, 1.9, 2.1, True),
         Dial("search, 2.0 s", 2.0, 15.0, 1.5, 1.5, 1.5, True, True)),
        (RulePrice("inductor", "", 1.5, 1.4, 1.6), RulePrice("inductor", "tiling", 1.0, 0.9, 1.1),
         RulePrice("inductor", "ranges", 0.8, 0.7, 0.9)),
        {"inductor": 3}, (SpeedupFactor("launches", 1.25, 1.2, 1.3),),
        (Crossing("untuned", 1234.5, 1000.0, None), Crossing("tvm", None, None, None)),
        {"xla-2022": "it was\nlong"},
    )  # fmt: skip


def test_the_page_tells_ties_from_costs_and_what_never_pays() -> None:
    page = markdown(made().to_json())
    assert page.startswith("# Study of a\\|b c\n")
    assert "| untuned | 500 ms | 20 µs | 2.00 (1.90 to 2.10) | * |" in page
    assert "| search, 2.0 s | 2 s | 15 µs | 1.50 | * |" in page
    assert "| untuned | 1,235 | 1,000 to never |" in page
    assert "| tvm | never | never to never |" in page
    assert "| inductor | all of them | 1.50 | 1.40 to 1.60 | costs |" in page
    assert "| inductor | tiling | 1.00 | 0.90 to 1.10 |  |" in page
    assert "| inductor | ranges | 0.80 | 0.70 to 0.90 | saves |" in page
    assert "* left out: xla-2022 (it was long)" in page
    assert "rules of inductor without which the plan is the same: 3" in page
    assert heading(made().to_json()).endswith("caches warm, 9 s of 10 s")


def test_the_page_in_html_has_the_tables_and_escapes_names() -> None:
    hostile = replace(made(), name="<script>alert(1)</script>")
    page = html(hostile.to_json())
    assert "<script>alert(1)" not in page and "&lt;script&gt;alert(1)" in page
    assert "What seconds buy" in page and "1.90 to 2.10" in page and "left out: xla-2022" in page
    assert page.count("<svg") == 1 and "untuned: 500 ms, 20 µs" in page
    assert page == html(hostile.to_json())


def test_what_time_does_not_allow_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, kind = normal_form(zoo_graph("softmax", "small")), timed_device("cpu")
    best, _ = baseline_candidate(graph, "xla-2022", kind.space)
    monkeypatch.setattr(program, "known_peaks", lambda environment, db: None)
    plans = program._planned(graph, kind, best, None, deadline=0.0)
    assert set(plans.candidates) == set(NEEDED)
    assert set(plans.missing.values()) == {NO_TIME} and SEARCHED not in plans.missing


def test_no_plan_is_begun_once_the_seconds_of_building_are_over() -> None:
    graph, kind = normal_form(zoo_graph("softmax", "small")), timed_device("cpu")
    plans = {n: baseline_candidate(graph, n, kind.space)[0] for n in ("xla-2022", "unfused")}
    found = timed_in_turns(graph, kind, plans, Interleaving(3, 1, 60.0, 60.0), 0.0)
    assert list(found.built) == list(found.samples) == list(found.timings) == ["xla-2022"]
    assert not found.failures


def test_where_no_plan_is_right_the_first_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Failure(FailureKind.WRONG_RESULT, "output 0 differs")
    lost = Together((), None, {"xla-2022": wrong}, None, 0.0)
    monkeypatch.setattr(in_turns, "time_together", lambda *_: lost)
    graph, kind = normal_form(zoo_graph("softmax", "small")), timed_device("cpu")
    plans = {"xla-2022": baseline_candidate(graph, "xla-2022", kind.space)[0]}
    with pytest.raises(AutofuseError, match="no plan was timed: output 0 differs"):
        timed_in_turns(graph, kind, plans, Interleaving(3, 1, 60.0, 60.0))


def test_building_from_nothing_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    with empty_cache():
        inside = cache_directory()
        assert inside != tmp_path and list(inside.iterdir()) == []
    assert not inside.exists() and cache_directory() == tmp_path
    monkeypatch.delenv("AUTOFUSE_CACHE")
    with empty_cache():
        pass
    assert "AUTOFUSE_CACHE" not in os.environ


def test_a_budget_that_is_none_is_refused() -> None:
    with pytest.raises(AutofuseError, match="budget"):
        study(zoo_graph("softmax", "small"), device="cpu", budget_s=0.0)


def test_a_program_that_is_planned_as_it_was_written(tmp_path: Path) -> None:
    """The plan found is one of the program as it was written, and so are those beside it."""
    b = GraphBuilder()
    x = b.input("x", (64, 32), DType.F32)
    doubled = b.add("neg", b.add("neg", b.add("exp", x)))
    graph = b.build([b.add("reduce_sum", doubled, axes=(1,))])
    forms = forms_of(graph)
    assert len(forms.graph.nodes) < len(graph.nodes)
    keep_as_written(forms, "for a test")
    found = study(graph, device="cpu", db=str(tmp_path / "t.db"), budget_s=5.0)
    assert found.nodes == len(forms.written.nodes) and found.dials
