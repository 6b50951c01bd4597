"""The study's price of a rule: rows, figures over them, and the page."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from autofuse.baselines.switches import SWITCHABLE, only, without
from autofuse.peers.types import BenchError
from autofuse.study.prices import beside, names, price_row
from autofuse.tuning.together import Interleaving
from autofuse.zoo import zoo_graph
from benchmarks.kept import Row
from benchmarks.study import bench
from benchmarks.study.bench import study_prices
from benchmarks.study.cheapest import (
    TOLD,
    cheapest_text,
    crossing,
    lost,
    share_of,
    shares,
    times_of,
)
from benchmarks.study.distance import distances, distances_text
from benchmarks.study.journeys import losses_text
from benchmarks.study.one import answer
from benchmarks.study.page import page
from benchmarks.study.pictures import (
    SHOWN,
    TOGETHER,
    costs_picture,
    distance_picture,
    price_picture,
    runs_picture,
    split_picture,
    travel_picture,
)
from benchmarks.study.programs import study_programs
from benchmarks.study.shares import shares_text
from benchmarks.study.sources import LICENCES, sources_text
from benchmarks.study.summary import Price, all_rules, alone, prices

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/study.md"
SHORT = Interleaving(blocks=3, rounds=1, limit_s=60.0, single_limit_s=30.0)
RULE = "not-loop-fusible"


@pytest.fixture(scope="module")
def row() -> Row:
    return price_row("attention", zoo_graph("attention", "small"), ["xla-2022"], SHORT)


def test_a_row_has_a_plan_and_a_time_for_every_variant(row: Row) -> None:
    assert list(row["planners"]) == ["xla-2022"]
    assert row["variants"].keys() <= set(names(["xla-2022"]))
    assert {row["planners"]["xla-2022"]["plan"], *row["variants"].values()} == row["plans"].keys()
    assert all(plan["us"] > 0 and plan["groups"] > 0 for plan in row["plans"].values())


def test_a_row_holds_times_over_those_of_variants(row: Row) -> None:
    own, less = row["planners"]["xla-2022"]["plan"], row["variants"][without("xla-2022", RULE)]
    ratio, low, high = row["over"]["xla-2022"]["whole"][less]
    assert low <= ratio <= high
    assert ratio == pytest.approx(row["plans"][own]["us"] / row["plans"][less]["us"], rel=1e-3)
    assert row["kernels"]["all"] > row["kernels"]["own"] > 0


def made_row(program: str, **over: list[float]) -> dict[str, Any]:
    """A row in which xla-2022 without each rule named is a plan of its own, of which its own plan
    takes so much; without any rule, twice as fast. No rule alone changes that but `RULE`."""
    names_ = dict.fromkeys(names(["xla-2022"]), "own")
    names_ |= {only("xla-2022", rule): "bare" for rule in ("", *SWITCHABLE["xla-2022"].rules)}
    names_ |= {without("xla-2022", rule.replace("_", "-")): rule for rule in over}
    names_[only("xla-2022", RULE)] = "alone"
    plans = {name: {"us": 1.0} for name in set(names_.values())}
    return {
        "program": program,
        "planners": {"xla-2022": {"plan": "own", "plan_s": 0.002}},
        "variants": {name: plan for name, plan in names_.items() if plan != names_[beside(name)]},
        "plans": plans,
        "over": {"xla-2022": {"whole": {**over, "bare": [2.0, 1.9, 2.1]},
                              "bare": {"alone": [0.8, 0.7, 0.9]}}},
        "kernels": {"own": 3, "all": 5},
    }  # fmt: skip


ROWS = [
    made_row("one", budget=[4.0, 3.0, 5.0], shapes=[0.5, 0.4, 0.6]),
    made_row("two", budget=[1.0, 0.9, 1.1]),
]


def test_prices_are_means_over_all_programs_the_dearest_first() -> None:
    found = {price.rule: price for price in prices(ROWS, "xla-2022")}
    assert next(iter(found)) == "budget" and list(found)[-1] == "shapes"
    assert found["budget"].ratio == pytest.approx(2.0)
    assert found["shapes"].ratio == pytest.approx(0.5**0.5)
    assert all_rules(ROWS, "xla-2022").ratio == pytest.approx(2.0)


def test_a_price_tells_how_many_programs_change_and_which_most() -> None:
    found = {price.rule: price for price in prices(ROWS, "xla-2022")}
    budget, shapes, same = found["budget"], found["shapes"], found["kinds"]
    assert (budget.low, budget.high) == pytest.approx((1, 4))
    assert (budget.changed, budget.dearer, budget.cheaper) == (2, 1, 0)
    assert (budget.most, budget.least) == ((4.0, "one"), (1.0, "two"))
    assert shapes.cheaper == 1
    assert same == Price("kinds", 2, 0, 0, 0, 1.0, 1.0, 1.0, (1.0, ""), (1.0, ""), 0)


def test_a_rule_alone_is_held_to_none() -> None:
    found = {price.rule: price for price in alone(ROWS, "xla-2022")}
    assert found[RULE].ratio == pytest.approx(1 / 0.8) and found[RULE].dearer == 2
    assert found["budget"].changed == 0


def test_a_plan_that_did_not_run_counts_as_failed() -> None:
    row = made_row("three", budget=[2.0, 2.0, 2.0])
    del row["over"]["xla-2022"]["whole"]["budget"]
    found = {price.rule: price for price in prices([row], "xla-2022")}
    assert (found["budget"].failed, found["budget"].programs) == (1, 0)


def test_the_page_names_rules_that_change_nothing_and_programs_left_out() -> None:
    rows = {row["program"]: row for row in ROWS} | {"bad": {"program": "bad", "error": "no plan"}}
    data = {"rows": rows, "planners": ["xla-2022"], "size": "small", "cpu": "a processor",
            "threads": 2, "note": "quiet"}  # fmt: skip
    found = page(data)
    assert "| `budget` | 2 | 1 | 0 | 2.000 (1.000 to 4.000) | one 4.00 | two 1.00 |" in found
    assert "Left out: `bad`, no plan." in found
    assert "No plan of any program is changed by" in found and "`kinds`" in found
    assert "6 different kernels" in found and "hold 4 more" in found


def test_rows_are_kept_as_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, made = tmp_path / "prices.json", list[str]()

    def here(command: object, asked: dict[str, Any], limit_s: float) -> dict[str, Any]:
        made.append(asked["program"])
        if asked["program"] == "mlp" and len(made) < 3:
            return {"error": "it crashed"}
        return made_row(asked["program"])

    monkeypatch.setattr(bench, "answer_apart", here)
    said = list[str]()
    first = study_prices(["softmax", "mlp"], ["xla-2022"], "small", "", output, said.append)
    assert "error" in first["rows"]["mlp"] and "it crashed" in said[-1]
    again = study_prices(["softmax", "mlp"], ["xla-2022"], "small", "", output)
    assert made == ["softmax", "mlp", "mlp"]
    assert json.loads(output.read_text(encoding="utf-8")) == again
    with pytest.raises(BenchError, match="another size"):
        study_prices(["softmax"], ["xla-2022"], "default", "", output)
    with pytest.raises(BenchError, match="unknown program 'sotfmax'"):
        study_prices(["sotfmax"])


def test_a_row_that_cannot_be_made_is_one_sentence() -> None:
    asked = {"part": "prices", "program": "none such", "size": "small", "planners": ["inductor"]}
    assert answer(asked)["error"]


def test_programs_are_the_zoo_and_those_of_others() -> None:
    found = study_programs()
    assert found["softmax"].package == "autofuse" and not found["softmax"].absent
    assert found["optax:adamw"].package == "optax"


def test_distances_are_from_the_fastest_timed_beside() -> None:
    rows = [
        {"program": "one", "rules_us": {"tvm": 20.0, "unfused": 40.0, "best": 10.0}},
        {"program": "two", "rules_us": {"tvm": 10.0, "unfused": 11.0, "best": 10.2}},
        {"program": "three", "error": "no plan"},
    ]
    best, tvm, unfused = distances(rows)
    assert (best.planner, best.near, best.far, best.programs) == ("best", 2, 0, 2)
    assert (tvm.mean, tvm.near, tvm.far) == (pytest.approx(2**0.5), 1, 1)
    assert unfused.farthest == (4.0, "one")
    data = {"rows": {row["program"]: row for row in rows}, "cpu": "a processor", "threads": 2}
    assert "| tvm | 2 | 1 | 1 | 1.41 (1.00 to 2.00) | one 2.0 |" in distances_text(data)


SECTIONS = {
    "dials": (ROOT / "docs/results/study/dials.json", cheapest_text),
    "prices": (ROOT / "docs/results/study/prices.json", page),
    "split": (ROOT / "docs/results/study/shares.json", shares_text),
    "travels": (ROOT / "docs/results/study/travels.json", losses_text),
    "distances": (ROOT / "docs/results/unseen-cpu.json", distances_text),
}


@pytest.mark.parametrize("section", SECTIONS)
def test_the_page_has_the_figures_of_the_record(
    section: str, request: pytest.FixtureRequest
) -> None:
    record, text = SECTIONS[section]
    found = json.loads(record.read_text(encoding="utf-8"))
    holds(PAGE, section, text(found), request.config.getoption("--update-golden"))


def holds(page: Path, section: str, text: str, update: bool) -> None:
    """That a section of a page is this text, or will be."""
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    before, begun, rest = page.read_text(encoding="utf-8").partition(begin)
    _, ended, after = rest.partition(end)
    assert begun and ended
    wanted = f"{before}{begin}\n{text}\n{end}{after}"
    if update:
        page.write_text(wanted, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == wanted, "run with --update-golden"


def test_every_program_is_listed_with_its_licence(request: pytest.FixtureRequest) -> None:
    update = request.config.getoption("--update-golden")
    holds(ROOT / "docs/study/programs.md", "programs", sources_text(), update)
    used = {program.package for program in study_programs().values()}
    assert used == LICENCES.keys() and len(study_programs()) >= 100


def pictures() -> dict[str, Callable[[], str]]:
    """What docs/study/ has, by file name."""

    def rows(section: str) -> list[Row]:
        found = json.loads(SECTIONS[section][0].read_text(encoding="utf-8"))["rows"]
        return [row for row in found.values() if "error" not in row]

    def priced(planner: str) -> str:
        return price_picture(rows("prices"), planner)

    each = {f"prices-{planner}": partial(priced, planner) for planner in SWITCHABLE}
    return {
        "distances": lambda: distance_picture(rows("distances")),
        "runs": lambda: runs_picture(rows("dials")),
        "costs": lambda: costs_picture(rows("dials")),
        "travels": lambda: travel_picture(rows("travels")),
        "split": lambda: split_picture(rows("split"), "cold"),
        **each,
    }


@pytest.mark.parametrize("name", pictures())
def test_the_pictures_are_drawn_from_the_record(name: str, request: pytest.FixtureRequest) -> None:
    file, drawn = PAGE.parent / "study" / f"{name}.svg", pictures()[name]()
    if request.config.getoption("--update-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(drawn, encoding="utf-8")
    ElementTree.fromstring(drawn)
    assert file.read_text(encoding="utf-8") == drawn, "run with --update-golden"
    assert f"(study/{name}.svg)" in PAGE.read_text(encoding="utf-8")


def test_pictures_show_shares_and_intervals() -> None:
    times = dict.fromkeys(SHOWN, 10.0) | {"unfused": 40.0}
    shares = ElementTree.fromstring(distance_picture([{"program": "one", "rules_us": times}]))
    assert len([each for each in shares.iter() if each.get("class") == "af-line af-l5"]) == 2
    drawn = price_picture(ROWS, "xla-2022")
    assert drawn.count("<circle") == 2 and "budget" in drawn and "kinds" not in drawn


def test_what_the_page_says_of_dials_is_so() -> None:
    found = json.loads(SECTIONS["dials"][0].read_text(encoding="utf-8"))["rows"]
    times = times_of(list(found.values()))
    assert shares(times, 1)["jax.jit"][0] > 0.5
    crossed = [crossing(dials, "jax.jit") for name, dials in times.items() if "jax.jit" in {
        dial.dial for dial in dials}]  # fmt: skip
    assert 100 <= statistics.median(math.inf if each is None else each for each in crossed) < 1000
    searched = [share_of(times, runs, TOGETHER["autofuse, tuned"])[0] for runs in TOLD]
    assert searched[TOLD.index(10**6)] > 0.5
    longest = [share_of(times, runs, "autofuse 30 s".__eq__)[0] for runs in TOLD]
    assert longest == sorted(longest)
    assert set(lost(times)) == {"npbench:heat_3d"} == set(lost(times, TOLD[-1]))


def test_what_the_page_says_in_words_is_so() -> None:
    record = json.loads(SECTIONS["prices"][0].read_text(encoding="utf-8"))["rows"]
    rows = [row for row in record.values() if "error" not in row]
    assert len(rows) >= 100
    for planner in SWITCHABLE:
        every = all_rules(rows, planner)
        assert every.low < 1 < every.high
    left_out = {(p, price.rule): price for p in SWITCHABLE for price in prices(rows, p)}
    assert {place for place, price in left_out.items() if price.high < 1} == {
        ("xla-2022", "shapes"), ("xla-2022", "duplication"), ("xla-2026", "shapes"),
        ("xla-2026", "two-reductions"), ("inductor", "loop-sizes"),
    }  # fmt: skip
    assert max(price.low for price in left_out.values()) < 1.01
    assert max(alone(rows, "xla-2022"), key=lambda price: price.ratio).rule == "code-duplication"
    for place in (("xla-2022", "expensive"), ("xla-2026", "cost-model")):
        most, least = left_out[place].most, left_out[place].least
        assert most[1] == "gravity" and most[0] > 5
        assert least[1] == "dm_pix:colours" and least[0] < 0.2
    for planner in ("xla-2022", "xla-2026"):
        assert not left_out[planner, "budget"].changed
        assert {price.rule: price for price in alone(rows, planner)}["budget"].changed
