"""The report: what it derives from records, its pictures, and the page."""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from xml.etree import ElementTree

import pytest

from autofuse.records import (
    Cost,
    Environment,
    Event,
    Verdict,
)
from autofuse.report import charts, html, plan_picture, svg
from autofuse.report.collect import by_device, collect
from autofuse.report.model import (
    Point,
    ReportError,
    WorkloadReport,
    break_even_runs,
    pareto,
)
from autofuse.report.plan_picture import Box, Edge, plan_svg
from tests.support.report_records import (
    EVENTS,
    HOSTILE,
    MEASUREMENTS,
    RESULT,
    SESSION,
    WORKLOAD,
    hostile_report,
    measurement,
    timing,
)


def report() -> WorkloadReport:
    return collect(WORKLOAD, [SESSION], {3: EVENTS}, MEASUREMENTS, plan_svg=small_plan())


def small_plan() -> str:
    boxes = [Box(0, "x", -1, "f32[4]"), Box(1, "exp", 0), Box(2, "reduce_sum", 0), Box(3, "div", 1)]
    return plan_svg(boxes, [Edge(0, 1), Edge(1, 2), Edge(1, 3), Edge(2, 3)])


def pictures(one: WorkloadReport) -> list[str]:
    drawn = [draw(one) for draw in (charts.bars, charts.progress)]
    return [*drawn, charts.compile_scatter(one), charts.tradeoff(one), one.plan_svg]


def texts(markup: str) -> Iterator[str]:
    return ElementTree.fromstring(markup).itertext()


def test_break_even_is_extra_seconds_over_seconds_saved() -> None:
    assert break_even_runs(10.0, 1000.0) == pytest.approx(10_000.0)
    assert break_even_runs(10.0, 0.0) is None
    assert break_even_runs(10.0, -5.0) is None
    assert break_even_runs(10.0, math.nan) is None
    assert break_even_runs(-1.0, 5.0) == 0.0


def test_session_derives_break_even_from_verdict_or_medians() -> None:
    (session,) = report().sessions
    plain, xla = session.break_even
    assert xla.extra_s == pytest.approx(12.0)
    assert xla.runs == pytest.approx(12_000.0)
    assert xla.interval == (pytest.approx(8_000.0), pytest.approx(24_000.0))
    assert (plain.saved_us, plain.interval) == (3000.0, None)
    assert plain.runs == pytest.approx(11.75 / 3e-3)


def test_interval_that_reaches_equality_never_pays_for_sure() -> None:
    verdicts = (Verdict("xla-2022", 1010.0, 1000.0, 1.01, 0.99, 1.03, "tie"),)
    row = replace(SESSION, result=replace(RESULT, verdicts=verdicts))
    one = collect(WORKLOAD, [row], {}, MEASUREMENTS)
    interval = one.sessions[0].break_even[1].interval
    assert interval == (pytest.approx(12.0 / 30e-6), None)
    assert "tie with xla-2022" in html.headline(one)


def test_session_that_began_from_earlier_measurements_carries_their_seconds() -> None:
    later = replace(SESSION, id=4)
    known = Event(0, Cost(), 900.0, "good", "random")
    one = collect(WORKLOAD, [SESSION, later], {3: EVENTS, 4: [known]}, MEASUREMENTS)
    assert [s.carried_s for s in one.sessions] == [0.0, 12.25]
    assert one.sessions[1].break_even[1].extra_s == pytest.approx(24.25)
    assert {p.seconds for p in one.offers if p.role == "best"} == {12.25, 24.5}
    assert all(p.seconds > 0 for p in one.offers)


def test_best_is_measured_at_the_end_but_compiled_at_the_first() -> None:
    best = report().sessions[0].best
    assert best is not None
    assert (best.name, best.timing.median_us, best.compile_s, best.kernels) == (
        "random",
        1000.0,
        2.0,
        4,
    )


def test_candidate_that_failed_last_has_no_time() -> None:
    rows = (*MEASUREMENTS, measurement("good", None, 0.0))
    one = collect(WORKLOAD, [SESSION], {3: EVENTS}, rows)
    assert one.sessions[0].best is None
    assert html.headline(one) == "No plan that works is known."
    assert "nothing works" in html.render_html([one], "now")


def test_best_that_is_a_baseline_saves_nothing() -> None:
    row = replace(SESSION, result=replace(RESULT, best_digest="xla", verdicts=()))
    one = collect(WORKLOAD, [row], {}, MEASUREMENTS)
    assert one.sessions[0].break_even[1].runs is None
    assert "nothing better" in html.headline(one)
    assert "never" in html.render_html([one], "now")


def test_killed_session_is_told_from_its_events() -> None:
    row = replace(SESSION, ended=None, result=None)
    (session,) = collect(WORKLOAD, [row], {3: EVENTS}, MEASUREMENTS).sessions
    assert session.state == "open"
    assert session.best is not None and session.best.digest == "good"
    assert session.spent == EVENTS[-1].spent
    assert [b.name for b in session.baselines] == ["unfused", "xla-2022"]


def test_current_and_leading_take_the_latest_of_each_strategy_and_the_fastest() -> None:
    again = replace(SESSION, id=4)
    other = replace(SESSION, id=5, strategy="tpe", result=replace(RESULT, best_digest="xla"))
    one = collect(WORKLOAD, [SESSION, again, other], {}, MEASUREMENTS)
    assert [s.id for s in one.current] == [4, 5]
    assert one.leading is not None and one.leading.id == 4


def test_pareto_keeps_what_nothing_beats() -> None:
    points = [(3.0, 1.0), (1.0, 5.0), (2.0, 5.0), (1.0, 5.0), (2.0, 2.0), (math.inf, 0.0)]
    assert pareto(points) == (1, 4, 0)
    assert pareto([]) == ()


def test_points_and_offers_mark_their_front() -> None:
    one = report()
    assert {p.label: p.front for p in one.points if p.role == "baseline"} == {
        "unfused": False,
        "xla-2022": True,
    }
    front = sorted((p.seconds, p.run_us, p.role) for p in one.points if p.front)
    assert front == [
        (0.125, 9000.0, "search"),
        (0.25, 2000.0, "baseline"),
        (2.0, 1000.0, "best"),
    ]
    label = "random (seed 7, session 3)"
    assert Point(label, "best", 12.25, 1000.0, 4, False) in one.offers
    # The plan's last time counts, not the flattering one that made it the incumbent.
    assert Point(label, "search", 8.0, 1000.0, None, True) in one.offers


def test_rows_that_do_not_belong_together_are_refused() -> None:
    elsewhere = replace(SESSION, id=4, environment=Environment("cpu", (("isa", "neon"),)))
    with pytest.raises(ReportError, match="different devices"):
        collect(WORKLOAD, [SESSION, elsewhere], {}, [])
    with pytest.raises(ReportError, match="session 3"):
        collect(WORKLOAD, [replace(SESSION, workload="other")], {}, [])
    with pytest.raises(ReportError, match="candidate plain"):
        collect(WORKLOAD, [], {}, [replace(MEASUREMENTS[0], workload="other")])
    found = by_device([SESSION, elsewhere, replace(SESSION, id=9)])
    assert [[s.id for s in rows] for _, rows in found] == [[3, 9], [4]]


@pytest.mark.parametrize("make", [report, hostile_report])
def test_pictures_are_xml_with_title_and_description(make: object) -> None:
    assert callable(make)
    for picture in pictures(make()):
        root = ElementTree.fromstring(picture)
        space = f"{{{svg.NAMESPACE}}}"
        assert root.tag == f"{space}svg"
        assert root.findtext(f"{space}title") and root.findtext(f"{space}desc")
        assert "nan" not in re.sub("<(title|desc)>.*?</", "", picture)
        width, height = map(float, root.attrib["viewBox"].split()[2:])
        for one in root.iter(f"{space}text"):
            assert 0 <= float(one.attrib["x"]) <= width
            assert 0 <= float(one.attrib["y"]) <= height


def test_numbers_appear() -> None:
    one = report()
    assert "1 ms" in texts(charts.bars(one)) and "4 ms" in texts(charts.bars(one))
    assert {"unfused", "xla-2022", "A"} <= set(texts(charts.progress(one)))
    page = html.render_html([one], "2024-05-06")
    for text in ("2024-05-06", "zoo:softmax", "12,000 runs", "8,000 to 24,000", "1.5× to 2.5×"):
        assert text in page
    for text in ("too slow", "2× as fast as xla-2022", "12.2 s", "random (seed 7, session 3)"):
        assert text in page
    charts_of = re.findall('<figure data-chart="([^"]*)"', page)
    assert charts_of == [
        "run-time", "tradeoff", "envelope", "progress", "break-even", "candidates", "plan",
    ]  # fmt: skip
    assert page.count("<svg ") == len(charts_of) and page.count(svg.STYLE) == 1


def test_page_needs_no_network_and_runs_its_own_script_only() -> None:
    for one in (report(), hostile_report()):
        page = html.render_html([one], "now", HOSTILE)
        bare = page.replace(svg.NAMESPACE, "")
        assert "http://" not in bare and "https://" not in bare and "\x00" not in page
        page.encode("utf-8")
        assert not re.search(r"<(link|img|iframe|object)\b|\bsrc=|@import|url\(|\bon\w+=", page)
        (script,) = re.findall("<script>(.*?)</script>", page, re.S)
        found = b64encode(sha256(script.encode()).digest()).decode()
        assert f"script-src 'sha256-{found}'" in page and "default-src 'none'" in page


def test_hostile_names_are_shown_as_text() -> None:
    page = html.render_html([hostile_report()], "now")
    assert "&lt;script&gt;alert" in page
    assert page.startswith("<!DOCTYPE html>")


def test_markup_is_balanced_and_ids_are_unique() -> None:
    page = html.render_html([report(), hostile_report()], "now")
    ids = re.findall(r'\bid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]*)"', page)) <= set(ids)
    bare = re.sub("<script>.*</script>", "", page.removeprefix("<!DOCTYPE html>"), flags=re.S)
    closed = re.sub(r"<(meta|input)\b([^>]*)>", r"<\1\2/>", bare)
    ElementTree.fromstring(closed)


def test_empty_database_is_said_so() -> None:
    page = html.render_html([], "now")
    assert "The tuning database is empty" in page and "<svg" not in page
    bare = collect(WORKLOAD, [], {}, [])
    assert not any(pictures(bare))
    assert "No tuning session is known" in html.render_html([bare], "now")


def test_equal_input_gives_equal_text() -> None:
    assert html.render_html([report()], "now") == html.render_html([report()], "now")
    assert small_plan() == small_plan()


def test_odd_numbers_do_not_break_charts() -> None:
    rows = [
        replace(MEASUREMENTS[0], timing=replace(timing(5.0), q1_us=math.nan, q3_us=math.inf)),
        measurement("xla", 5.0, 0.0, "xla-2022", "baseline"),
        replace(measurement("good", 5.0, 0.0), timing=timing(0.0)),
    ]
    events = [Event(0, Cost(), math.inf, "x", "x"), Event(1, Cost(), 5.0, "good", "random")]
    one = collect(WORKLOAD, [SESSION], {3: events}, rows, plan_svg=small_plan())
    for picture in pictures(one):
        ElementTree.fromstring(picture)
    html.render_html([one], "now")


def test_many_candidates_are_thinned_but_the_front_stays() -> None:
    rows = [
        measurement(f"c{i}", 1.0 + i * 31 % 4999, 0.1 + i * 7919 % 5003) for i in range(1, 5000)
    ]
    picture = charts.compile_scatter(collect(WORKLOAD, [], {}, rows))
    front = collect(WORKLOAD, [], {}, rows).points
    assert picture.count('class="af-f2"') == sum(p.front for p in front) > 1
    assert picture.count('class="af-dot"') < 1600


def test_scales_and_words() -> None:
    assert svg.scale([1.0, 1000.0], 0.0, 100.0).ticks() == [1.0, 10.0, 100.0, 1000.0]
    assert svg.scale([10.0, 11.0], 0.0, 100.0).log is False
    assert svg.scale([], 0.0, 1.0).ticks()
    assert svg.spread([5.0, 5.0, 40.0], 10.0, 41.0) == [5.0, 15.0, 40.0]


def test_layers_are_longest_paths() -> None:
    assert plan_picture.layers([1, 2, 3, 4], [(1, 2), (2, 3), (1, 3)]) == {1: 0, 2: 1, 3: 2, 4: 0}


def test_plan_picture_numbers_kernels_and_draws_every_edge() -> None:
    picture = small_plan()
    found = list(texts(picture))
    assert found.count("K0") == 2 and found.count("K1") == 1
    assert picture.count('class="af-edge"') == 4
    assert "x: not in a kernel; f32[4]" in found
    assert any("Kernel 0: exp, reduce_sum. Kernel 1: div." in text for text in found)


def test_large_plan_is_drawn_by_kernel() -> None:
    boxes = [Box(0, "x", -1)] + [Box(i, "add", (i - 1) // 50) for i in range(1, 201)]
    edges = [Edge(i, i + 1) for i in range(200)]
    picture = plan_svg(boxes, edges)
    assert picture.count("<rect") == 1 + 4
    assert picture.count('class="af-edge"') == 3
    assert "add ×50" in picture and "200 nodes" not in picture and "201 nodes" in picture


def test_wide_layers_take_several_rows() -> None:
    boxes = [Box(i, "input", -1) for i in range(64)] + [Box(64, "sum", 0)]
    root = ElementTree.fromstring(plan_svg(boxes, [Edge(i, 64) for i in range(64)]))
    assert float(root.attrib["width"]) < 1100
    rects = [r for r in root.iter(f"{{{svg.NAMESPACE}}}rect") if "x" in r.attrib]
    assert len({(r.attrib["x"], r.attrib["y"]) for r in rects}) == 65


def test_plans_that_cannot_be_drawn_are_refused() -> None:
    one, two = Box(1, "a", 0), Box(2, "b", 0)
    with pytest.raises(ReportError, match="circle"):
        plan_svg([one, two], [Edge(1, 2), Edge(2, 1)])
    with pytest.raises(ReportError, match="two boxes"):
        plan_svg([one, one], [])
    with pytest.raises(ReportError, match="no box"):
        plan_svg([one], [Edge(1, 2)])
    ElementTree.fromstring(plan_svg([], []))
