"""The report as Markdown: the tables and sentences of the page, without its pictures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from autofuse.report import overview, tables
from autofuse.report.envelope import advice, envelope, together
from autofuse.report.model import WorkloadReport
from autofuse.report.svg import clean
from autofuse.report.tables import Table
from autofuse.report.topics import topics

# Texts never begin a line of their own, so list marks and the like need no escape.
_SPECIAL = re.compile(r"([\\`*_\[\]<>|~&$])")


def render_markdown(
    reports: Sequence[WorkloadReport], generated: str, title: str = "autofuse report"
) -> str:
    """The whole document, the same text for equal arguments."""
    return "\n".join(_lines(reports, generated, title)).rstrip("\n") + "\n"


def _lines(reports: Sequence[WorkloadReport], generated: str, title: str) -> Iterator[str]:
    yield f"# {_text(title)}"
    yield ""
    if generated:
        yield f"As of {_text(generated)}."
        yield ""
    if not reports:
        yield "The tuning database is empty: it knows no workload."
        return
    yield from _table(overview.summary(reports))
    yield from _table(overview.what_to_use(reports))
    for device in sorted({r.device for r in reports}):
        own = [r for r in reports if r.device == device]
        segments = envelope(together(own))
        if segments:
            yield f"All {len(own)} workloads on {_text(device)}, each run equally often: "
            yield _text(advice(segments))
            yield ""
            yield from _table(tables.segments_table(segments))
    yield from _table(overview.all_failures(reports))
    for report in reports:
        yield from _workload(report)


def _workload(report: WorkloadReport) -> Iterator[str]:
    yield f"## {_text(report.name)} on {_text(report.device)}"
    yield ""
    yield _text(overview.headline(report))
    yield ""
    for topic in topics(report):
        found = [p.table for p in topic.pictures if p.table is not None] + [*topic.tables]
        if not found:
            continue
        yield f"### {_text(topic.heading)}"
        yield ""
        if topic.result:
            yield _text(topic.result)
            yield ""
        for one in found:
            yield from _table(one)


def _table(one: Table | None) -> Iterator[str]:
    if one is None:
        return
    yield f"**{_text(one.caption)}**"
    yield ""
    yield f"| {' | '.join(map(_text, one.heads))} |"
    numeric = [cell.sort is not None for cell in one.rows[0]]
    yield f"|{'|'.join('---:' if right else '---' for right in numeric)}|"
    for row in one.rows:
        yield f"| {' | '.join(_text(cell.text) for cell in row)} |"
    yield ""


def _text(text: str) -> str:
    """One line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", " ".join(clean(text).split()))
