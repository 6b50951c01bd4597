"""The report in a browser: headless Chromium opens, sorts, filters and measures it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from benchmarks.reports import MadeUp, fill

ROOT = Path(__file__).parent.parent
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
MADE_UP = MadeUp(workloads=3, strategies=2, candidates=8)
CHARTS = ["run-time", "tradeoff", "envelope", "progress", "gap", "break-even", "bytes", "memory",
          "candidates", "plan"]  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.fail(
            "the browser tests need Chromium and its driver: "
            "on Debian run: apt-get install chromium chromium-driver",
            pytrace=False,
        )
    options = Options()
    options.binary_location = str(programs[0])
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    fill(folder / "made-up.db", MADE_UP)
    command = [sys.executable, "-m", "autofuse", "report", "--db", folder / "made-up.db"]
    subprocess.run([*command, "--out", folder / "report.html"], check=True, cwd=ROOT)
    return (folder / "report.html").as_uri()


@pytest.fixture
def opened(browser: Any, page: str) -> Any:
    resize(browser, 1600)
    browser.get_log("browser")
    browser.get(page)
    return browser


def resize(browser: Any, width: int) -> None:
    """Makes the page exactly so wide; a window cannot be made as narrow as a phone."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def column(table: Any, number: int) -> list[str]:
    return [row.find_elements(By.XPATH, "./*")[number].text
            for row in table.find_elements(By.CSS_SELECTOR, "tbody tr")
            if row.is_displayed()]  # fmt: skip


def shown_sections(browser: Any) -> list[str]:
    found = browser.find_elements(By.CSS_SELECTOR, "section[data-workload]")
    return [f"{s.get_attribute('data-workload')} on {s.get_attribute('data-device')}"
            for s in found if s.is_displayed()]  # fmt: skip


def test_it_opens_with_every_chart_and_without_errors(opened: Any) -> None:
    assert opened.title == "autofuse report"
    sections = opened.find_elements(By.CSS_SELECTOR, "section[data-workload]")
    assert len(sections) == 4
    for section in sections:
        charts = section.find_elements(By.CSS_SELECTOR, "figure")
        assert [c.get_attribute("data-chart") for c in charts] == CHARTS
    everything = opened.execute_script(
        "return [...document.querySelectorAll('svg.af')].map(s => [s.getAttribute('role'),"
        " s.querySelector('title').textContent, s.querySelector('desc').textContent,"
        " s.getBoundingClientRect().width, s.querySelectorAll('path,rect,circle').length])"
    )
    for role, title, words, width, shapes in everything:
        assert role == "img" and title and words and width > 100 and shapes > 3
    assert opened.get_log("browser") == []


def test_charts_show_their_data(opened: Any) -> None:
    section = opened.find_element(By.CSS_SELECTOR, "section[data-workload]")
    tradeoff = section.find_element(By.CSS_SELECTOR, "[data-chart=tradeoff]")
    tradeoff.find_element(By.TAG_NAME, "summary").click()
    table = tradeoff.find_element(By.TAG_NAME, "table")
    rows = column(table, 0)
    assert {"unfused", "xla-2022", "inductor"} <= set(rows) and len(rows) > 6
    fronts = tradeoff.find_elements(By.CSS_SELECTOR, "circle.af-f2, rect, path.af-f0")
    assert len(fronts) >= 4
    assert "yes" in column(table, 4) and "no" in column(table, 4)
    envelope = section.find_element(By.CSS_SELECTOR, "[data-chart=envelope]")
    segments = section.find_element(By.XPATH, ".//table[contains(caption, 'cheapest')]")
    assert len(envelope.find_elements(By.CSS_SELECTOR, ".af-thick")) == len(column(segments, 0))
    assert column(segments, 2)[0] == "1" and column(segments, 3)[-1] == "and more"


def test_a_head_sorts_its_column_by_mouse_and_keyboard(opened: Any) -> None:
    table = opened.find_element(By.XPATH, "//table[caption='All workloads']")
    head = table.find_elements(By.CSS_SELECTOR, "thead th")[4]
    button = head.find_element(By.TAG_NAME, "button")
    given = opened.execute_script(
        "return [...arguments[0].tBodies[0].rows].map(r => +r.cells[4].dataset.v)", table
    )
    for press, order, wanted in (
        (button.click, "ascending", sorted(given)),
        (lambda: button.send_keys(Keys.ENTER), "descending", sorted(given, reverse=True)),
    ):
        press()
        now = opened.execute_script(
            "return [...arguments[0].tBodies[0].rows].map(r => +r.cells[4].dataset.v)", table
        )
        assert now == wanted and head.get_attribute("aria-sort") == order
    name = table.find_elements(By.CSS_SELECTOR, "thead th")[0]
    name.find_element(By.TAG_NAME, "button").click()
    assert column(table, 0) == sorted(column(table, 0))
    assert head.get_attribute("aria-sort") is None


def test_filters_by_workload_and_device(opened: Any) -> None:
    assert len(shown_sections(opened)) == 4
    table = opened.find_element(By.XPATH, "//table[caption='All workloads']")
    opened.find_element(By.NAME, "workload").send_keys("SOFT")
    both = ["made-up:softmax on made-up-a", "made-up:softmax on made-up-b"]
    assert shown_sections(opened) == both
    assert column(table, 0) == ["made-up:softmax"] * 2
    assert opened.find_element(By.ID, "shown").text == "2 of 4 shown"
    Select(opened.find_element(By.NAME, "device")).select_by_visible_text("made-up-b")
    assert shown_sections(opened) == both[1:]
    opened.find_element(By.NAME, "workload").clear()
    opened.find_element(By.NAME, "workload").send_keys("nothing is called so")
    assert shown_sections(opened) == [] and column(table, 0) == []
    assert opened.get_log("browser") == []


@pytest.mark.parametrize("width", [400, 1600])
def test_nothing_overflows(opened: Any, width: int) -> None:
    resize(opened, width)
    opened.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    inner, page = opened.execute_script(
        "return [innerWidth, document.scrollingElement.scrollWidth]"
    )
    assert inner == width and page <= inner
    # Only what scrolls by itself may hold something wider than the page.
    wide = opened.execute_script(
        "return [...document.querySelectorAll('main *, header *')].filter(e =>"
        " !e.closest('.scroll') && e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_hovering_tells_what_a_mark_is(opened: Any) -> None:
    mark = opened.find_element(By.CSS_SELECTOR, "[data-chart=tradeoff] svg rect.af-f1")
    # A tip goes when the page scrolls, and the page says so with its next picture.
    opened.execute_async_script(
        "arguments[0].scrollIntoView({block: 'center'});"
        "requestAnimationFrame(() => requestAnimationFrame(arguments[1]))",
        mark,
    )
    webdriver.ActionChains(opened).move_to_element(mark).perform()
    tip = opened.find_element(By.CSS_SELECTOR, ".tip")
    assert tip.is_displayed() and "kernels:" in tip.text
    webdriver.ActionChains(opened).send_keys(Keys.ESCAPE).perform()
    assert not tip.is_displayed()


def test_tables_and_controls_have_names(opened: Any) -> None:
    nameless = opened.execute_script(
        "return [...document.querySelectorAll('table')].filter(t => !t.caption.textContent ||"
        " [...t.tHead.rows[0].cells].some(c => c.scope !== 'col' ||"
        " !c.querySelector('button[type=button]').textContent)).length"
    )
    assert nameless == 0
    assert {e.accessible_name for e in opened.find_elements(By.CSS_SELECTOR, "input, select")} == {
        "Workload", "Device",
    }  # fmt: skip


def test_paper_shows_what_is_folded(opened: Any) -> None:
    closed = "return document.querySelectorAll('details:not([open])').length"
    before = opened.execute_script(closed)
    opened.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert before > 10 and opened.execute_script(closed) == 0
    opened.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert opened.execute_script(closed) == before
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not opened.find_element(By.ID, "filters").is_displayed()
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
