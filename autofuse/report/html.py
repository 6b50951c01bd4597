"""Pages as one self-contained HTML file: script and style are in it, and no network is needed.
Without scripting everything is there but sorting, filtering and tooltips."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from autofuse.report import charts_cost, overview, svg, tables
from autofuse.report.envelope import advice, envelope, together
from autofuse.report.model import WorkloadReport
from autofuse.report.overview import headline as headline
from autofuse.report.tables import Cell, Table
from autofuse.report.topics import Topic, topics


@dataclass(frozen=True, slots=True)
class _Section:
    """A workload on the page; `anchor` is its id there."""

    anchor: str
    report: WorkloadReport
    headline: str
    topics: tuple[Topic, ...]


@dataclass(frozen=True, slots=True)
class _Together:
    """All workloads of one device run equally often."""

    device: str
    count: int
    advice: str
    picture: Markup
    table: Table | None


def render_html(
    reports: Sequence[WorkloadReport], generated: str, title: str = "autofuse report"
) -> str:
    """The whole page, the same text for equal arguments. `generated` says what it is of.

    Names may hold anything: they are escaped, and what a page cannot hold is replaced.
    """
    sections = [
        _Section(f"workload-{i}", report, headline(report), topics(report))
        for i, report in enumerate(reports, 1)
    ]
    return rendered(
        "report.html.j2",
        title=title,
        generated=generated,
        sections=sections,
        devices=sorted({r.device for r in reports}),
        summary=overview.summary(reports),
        advice=overview.what_to_use(reports),
        failures=overview.all_failures(reports),
        together=_all_together(reports),
    )


def rendered(template: str, **values: object) -> str:
    """A page of ours: what all have in common, their script and style, is added."""
    script, style = _static("report.js"), _static("report.css") + svg.STYLE
    return _template(template).render(
        **values,
        script=Markup(script),
        script_hash=b64encode(sha256(script.encode()).digest()).decode(),
        style=Markup(style),
    )


def _all_together(reports: Sequence[WorkloadReport]) -> list[_Together]:
    found = []
    for device in sorted({r.device for r in reports}):
        own = [r for r in reports if r.device == device]
        shared = together(own)
        segments = envelope(shared)
        if segments:
            name = f"all {len(own)} workloads on {device}"
            chart = charts_cost.envelope_chart(name, segments, shared)
            picture = _picture(chart)
            table = tables.segments_table(segments)
            found.append(_Together(device, len(own), advice(segments), picture, table))
    return found


def _shown(value: object) -> object:
    """Every text that goes into the page passes here before it is escaped."""
    return svg.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _sort_key(cell: Cell) -> str:
    """The number a cell is sorted by, as JavaScript reads it; "" if it has none."""
    return "" if cell.sort is None else repr(cell.sort).replace("inf", "Infinity")


def _picture(drawn: str) -> Markup:
    """A picture of ours as markup for this page."""
    return Markup(svg.embedded(drawn))


@cache
def _static(name: str) -> str:
    return files("autofuse.report").joinpath("static", name).read_text(encoding="utf-8")


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("autofuse.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters |= {"sort_key": _sort_key, "picture": _picture}
    return environment.get_template(name)
