"""The tradeoff report: the envelope, peers, gains, failures, and its other formats."""

from __future__ import annotations

import builtins
import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from autofuse.commands.report_data import workload_reports
from autofuse.records import Account, Environment, Failure, FailureKind, Trip
from autofuse.report import data, figures, html, markdown, overview, tables
from autofuse.report.charts_cost import envelope_chart
from autofuse.report.collect import collect
from autofuse.report.envelope import MOST_RUNS, SearchedOption, advice, envelope, options, together
from autofuse.report.errors import ReportError
from autofuse.report.gains import gains
from autofuse.report.model import WorkloadReport
from autofuse.report.peers import Peer, peers_of, read_peers
from autofuse.report.topics import topics
from benchmarks.reports import MadeUp, fill
from tests.support.report_records import (
    EVENTS,
    HOSTILE,
    MEASUREMENTS,
    SESSION,
    WORKLOAD,
    hostile_report,
)
from tuning_db import Store

CPU = Environment("cpu", (("cores", "2"), ("model", "Model 1")))
PEERS = {
    "workloads": {
        "softmax": {
            "autofuse": {"compile_s": 0.5, "time_us": 1000.0},
            "autofuse_unfused": {"compile_s": 0.5, "time_us": 5000.0},
            "jax": {"compile_s": 0.25, "tune_s": 0.5, "time_us": 1500.0, "q1_us": 1400.0,
                    "q3_us": 1600.0},
            "torch": {"compile_s": None, "time_us": None, "error": "it cannot"},
        }
    },
    "threads": 2, "cpu": "Model 1", "size": "default",
}  # fmt: skip


def option(name: str, seconds: float, us: float, role: str = "rules") -> SearchedOption:
    return SearchedOption(name, name, role, seconds, us)


def trip(place: str, written: int, read: int, readers: int, source: bool = False) -> Trip:
    return Trip(place, "mul", "f32[4]", source, written, read, readers)


def account(*trips: Trip, peak: int = 0) -> Account:
    read, written = (
        sum(c.read_bytes for c in trips),
        sum(c.written_bytes for c in trips),
    )
    return Account(2, 2, read, written, 8.0, 1, 4.0, peak, trips)


def with_accounts(**more: Any) -> WorkloadReport:
    known = {
        "xla": account(trip("%1", 400, 800, 2), trip("%0", 0, 100, 1, True), peak=400),
        "good": account(trip("%0", 0, 200, 2, True), peak=64),
    }
    return collect(WORKLOAD, [SESSION], {3: EVENTS}, MEASUREMENTS, accounts=known, **more)


@pytest.fixture(scope="module")
def made_up(tmp_path_factory: pytest.TempPathFactory) -> list[WorkloadReport]:
    path = tmp_path_factory.mktemp("made-up") / "made-up.db"
    fill(path, MadeUp(workloads=2, strategies=2, candidates=6))
    with Store.open(path) as store:
        return [one for row in store.workloads() for one in workload_reports(store, row)]


# --- the envelope -----------------------------------------------------------------------------


def test_envelope_changes_where_totals_meet() -> None:
    rules, short, long = option("rules", 1, 300), option("short", 10, 200), option("long", 100, 100)
    segments = envelope([long, option("worse", 11, 400), short, rules])
    assert [s.option.name for s in segments] == ["rules", "short", "long"]
    assert [s.last for s in segments] == pytest.approx([90_000.0, 900_000.0, MOST_RUNS])
    assert [s.first for s in segments] == pytest.approx([1.0, 90_000.0, 900_000.0])
    assert advice(segments) == (
        "Use rules (rules) below 90,000 runs, short (rules) up to 900,000 runs, "
        "long (rules) beyond."
    )


def test_envelope_is_the_least_of_all_totals() -> None:
    found = [option(f"o{i}", 0.37 * i * i, 1000.0 / (1 + i)) for i in range(12)]
    for runs in (1.0, 17.0, 3e3, 1e5, 7e6, 1e9):
        segment = next(s for s in envelope(found) if s.first <= runs <= s.last)
        least = min(o.total_s(runs) for o in found)
        assert segment.option.total_s(runs) == pytest.approx(least)


def test_envelope_of_nothing_of_one_and_of_equals() -> None:
    assert envelope([]) == () and advice(()) == ""
    (only,) = envelope([option("a", 5, 5)])
    assert (only.first, only.last) == (1.0, MOST_RUNS)
    assert advice([only]) == "Use a (rules) for any number of runs."
    (one,) = envelope([option("b", 5, 5), option("a", 5, 5)])
    assert one.option.name == "a"
    (dearer_never,) = envelope([option("a", 0, 5), option("b", 1e9, 4.999)])
    assert dearer_never.option.name == "a"


def test_options_are_rules_peers_and_every_stop_of_a_search() -> None:
    peers = peers_of(read_peers(json.dumps(PEERS), "f"), "zoo:softmax", CPU)
    one = collect(WORKLOAD, [SESSION], {3: EVENTS}, MEASUREMENTS, peers=peers)
    found = {(o.role, o.label) for o in options(one)}
    assert {("rules", "unfused"), ("rules", "xla-2022"), ("peer", "jax")} <= found
    assert {("search", "8 s of random"), ("search", "12.2 s of random")} <= found
    assert not any(name.startswith("torch") for _, name in found)
    assert "8 s of random beyond" in advice(envelope(options(one)))


def test_workloads_together_share_what_all_know() -> None:
    one = with_accounts()
    assert together([one]) == ()
    (unfused, xla, found) = together([one, one])
    assert (unfused.name, xla.name, found.name) == ("unfused", "xla-2022", "random")
    assert (found.seconds, found.run_us) == (24.5, 2000.0)
    fewer = collect(WORKLOAD, [], {}, [])
    assert together([one, fewer]) == ()


def test_envelope_chart_names_every_winner() -> None:
    found = [option("rules", 0, 300), option("search", 10, 100)]
    drawn = "".join(ElementTree.fromstring(envelope_chart("w", envelope(found), found)).itertext())
    assert "rules (rules)" in drawn and "1 to 50,000 runs: rules costs the least" in drawn
    assert envelope_chart("w", (), found) == ""


def test_what_costs_nothing_has_no_place_on_a_logarithmic_scale() -> None:
    found = (option("free", 0.0, 0.0), option("dear", 2.0, 5.0))
    drawn = "".join(ElementTree.fromstring(envelope_chart("w", envelope(found), found)).itertext())
    assert "free" in drawn


# --- peers ------------------------------------------------------------------------------------


def test_peers_are_joined_by_workload_device_and_machine() -> None:
    file = read_peers(json.dumps(PEERS), "peers.json")
    jax, torch = peers_of(file, "zoo:softmax", CPU)
    assert (jax.name, jax.total_s, jax.time_us, jax.ours_us) == ("jax", 0.75, 1500.0, 1000.0)
    assert jax.comparable and (torch.time_us, torch.error) == (None, "it cannot")
    assert peers_of(file, "softmax", CPU)
    assert not peers_of(file, "zoo:softmax:small", CPU)
    assert not peers_of(file, "zoo:other", CPU)
    assert not peers_of(file, "zoo:softmax", replace(CPU, device="cuda"))
    for must in ((("cores", "2"), ("model", "Model 2")), (("cores", "8"), ("model", "Model 1"))):
        assert not any(p.comparable for p in peers_of(file, "softmax", replace(CPU, must=must)))


def test_peers_of_another_machine_are_shown_but_not_mixed() -> None:
    peers = peers_of(read_peers(json.dumps(PEERS | {"cpu": "B"}), "f"), "zoo:softmax", CPU)
    one = collect(WORKLOAD, [SESSION], {3: EVENTS}, MEASUREMENTS, peers=peers)
    assert not any(p.role == "peer" for p in one.offers)
    page = html.render_html([one], "")
    assert "peer, elsewhere" in page and "It was another machine" in page


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "{}", '{"workloads": []}', '{"workloads": {"a": 1}}', "[" * 10_000]
)
def test_files_that_are_no_peers_are_refused(text: str) -> None:
    with pytest.raises(ReportError, match=r"peers\.json"):
        read_peers(text, "peers.json")


def test_the_recorded_peers_can_be_read() -> None:
    path = Path(__file__).parent.parent / "docs/results/peers-cpu.json"
    file = read_peers(path.read_text(), "peers-cpu.json")
    must = (("cores", str(file.threads)), ("model", file.cpu))
    found = peers_of(file, "zoo:softmax", Environment("cpu", must))
    assert {p.name for p in found} == {"numpy", "jax", "torch", "tvm"}
    assert all(p.comparable and p.time_us for p in found)


# --- where the gain comes from, failures ------------------------------------------------------


def test_gains_add_up_to_the_difference() -> None:
    one = dict(with_accounts().accounts)
    found = gains(one["good"], one["xla"])
    assert [(g.place, g.saved_bytes) for g in found] == [("%1", 1200), ("%0", -100)]
    assert sum(g.saved_bytes for g in found) == one["xla"].bytes - one["good"].bytes
    assert (found[0].rival, found[0].best) == ("stored, read by 2 kernels", "kept inside a kernel")
    assert (found[1].rival, found[1].best) == ("read by 1 kernel", "read by 2 kernels")


def test_plans_are_told_apart_by_bytes_launches_and_memory() -> None:
    one = with_accounts()
    moved, memory, cut = tables.moved(one), tables.memory(one), tables.boundaries(one)
    assert moved is not None and memory is not None and cut is not None
    assert [c.text for c in moved.rows[0]][:6] == [
        "xla-2022",
        "2",
        "2",
        "900 B",
        "400 B",
        "1.27 KiB",
    ]
    assert [c.sort for row in memory.rows for c in row[1:]] == [400.0, 64.0]
    assert cut.rows[-1][0].text == "all together" and cut.rows[-1][-1].sort == 1100.0
    assert tables.boundaries(collect(WORKLOAD, [SESSION], {3: EVENTS}, MEASUREMENTS)) is None


def test_failures_are_counted_by_kind() -> None:
    broken = replace(
        MEASUREMENTS[3], failure=Failure(FailureKind.COMPILE, "\n no register\nmore"),
        candidate_digest="other",
    )  # fmt: skip
    one = collect(WORKLOAD, [SESSION], {3: EVENTS}, [*MEASUREMENTS, broken])
    found = {f.kind: (f.attempts, f.candidates, f.example) for f in one.failures}
    assert found == {"timeout": (1, 1, "too slow"), "compile": (0, 1, "no register")}
    table = overview.all_failures([one])
    assert table is not None and table.heads[2:] == ("compile", "timeout")
    assert [c.sort for c in table.rows[0][2:]] == [1.0, 1.0]


def test_every_topic_of_a_real_database(made_up: list[WorkloadReport]) -> None:
    for one in made_up:
        keys = [t.key for t in topics(one)]
        assert keys[:8] == ["run-time", "tradeoff", "envelope", "progress", "break-even", "gain",
                            "memory", "failures"]  # fmt: skip
        for table in (t for topic in topics(one) for t in topic.tables):
            assert all(len(row) == len(table.heads) for row in table.rows)
        progress = tables.progress(one)
        assert progress is not None and all(
            row[4].text.endswith("%") and row[6].text.endswith("%") for row in progress.rows
        )


# --- other formats ----------------------------------------------------------------------------


def test_formats_are_the_same_for_equal_data(made_up: list[WorkloadReport]) -> None:
    when = overview.as_of(made_up)
    for render in (html.render_html, data.render_json, markdown.render_markdown):
        assert render(made_up, when) == render(list(made_up), when)
    assert data.render_csv(made_up) == data.render_csv(made_up)
    assert when == max(s.started for r in made_up for s in r.sessions)


def test_json_has_all_items_and_no_infinities(made_up: list[WorkloadReport]) -> None:
    found = json.loads(data.render_json([*made_up, hostile_report()], "now"))
    assert found["as_of"] == "now" and len(found["workloads"]) == len(made_up) + 1
    one = found["workloads"][0]
    assert {"tradeoff", "envelope", "gains", "failures", "peers", "baselines"} <= set(one)
    assert one["envelope"][-1]["last_runs"] == MOST_RUNS
    event = one["sessions"][0]["events"][0]
    assert event["sample"] and event["bound_gap"] == pytest.approx(
        1 - event["bound_us"] / event["best_us"]
    )
    assert one["baselines"][0]["facts"]["peak_bytes"] >= 0
    assert found["workloads"][-1]["sessions"][0]["verdicts"][0]["high"] is None


def test_csv_has_a_row_per_strategy_and_no_formulas() -> None:
    evil = replace(with_accounts(), name="=cmd()|'x'!A1")
    rows = list(csv.DictReader(io.StringIO(data.render_csv([evil]))))
    assert {row["workload"] for row in rows} == {"'=cmd()|'x'!A1"}
    assert [row["kind"] for row in rows] == ["rules", "rules", "search", "search", "search", "best"]
    best = rows[-1]
    assert (best["time_us"], best["peak_bytes"]) == ("1000.0", "64")
    assert float(best["pays_after_runs_against_best_rules"]) == pytest.approx(12_000.0)
    assert list(csv.DictReader(io.StringIO(data.render_csv([])))) == []


def test_markdown_escapes_names_and_keeps_tables_whole() -> None:
    text = markdown.render_markdown([hostile_report(), with_accounts()], "now")
    assert not re.search(r"(?<!\\)<", text) and "\x00" not in text
    assert r"\<script\>alert" in text
    blocks = [b for b in text.split("\n\n") if b.startswith("|")]
    assert len(blocks) > 10
    for block in blocks:
        lines = [line.replace(r"\|", "") for line in block.splitlines()]
        assert len({line.count("|") for line in lines}) == 1
    assert "knows no workload" in markdown.render_markdown([], "")


def test_figures_are_files_with_plain_names(made_up: list[WorkloadReport]) -> None:
    found = dict(figures.figures([*made_up, hostile_report()]))
    assert "01-made-up-layer-norm-gelu-made-up-a-envelope" in found
    assert "00-all-made-up-a-envelope" in found
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-") for name in found)
    for picture in found.values():
        assert ElementTree.fromstring(picture).attrib["role"] == "img"
    assert figures.png(found["00-all-made-up-a-envelope"]).startswith(b"\x89PNG")


def test_png_without_its_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "resvg_py":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ReportError, match=r"pip install 'autofuse\[figures\]'"):
        figures.png("<svg/>")


def test_hostile_peers_are_shown_as_text() -> None:
    peer = Peer(HOSTILE, 5.0, None, None, 0.0, 0.0, None, 5.0, False, HOSTILE, HOSTILE, HOSTILE)
    page = html.render_html([with_accounts(peers=[peer])], "")
    assert page.count("<script") == 1 and "&lt;script&gt;alert" in page
