"""The study of one program as a page in HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from autofuse.report.model import Point
from autofuse.report.study_html import StudySection, render_study
from autofuse.report.tables import table
from autofuse.study.page import heading, sections, sentences


def html(data: Mapping[str, Any]) -> str:
    """The page of `ProgramStudy.to_json`: one file that needs no network."""
    dials = [
        Point(dial["name"], "search" if dial["read"] else "baseline", dial["seconds"], dial["us"],
              front=dial["on_front"])
        for dial in data["dials"]
    ]  # fmt: skip
    return render_study(
        data["name"], heading(data), list(_sections(data)), list(sentences(data)), dials
    )


def _sections(data: Mapping[str, Any]) -> Iterator[StudySection]:
    """Those that have rows."""
    for section in sections(data):
        heads = [head.removeprefix(">") for head in section.head]
        rows = table(section.title, heads, section.rows)
        if rows is not None:
            yield StudySection(section.title, section.said, rows)
