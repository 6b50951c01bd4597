"""The study of one program as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autofuse.report import charts
from autofuse.report.html import rendered
from autofuse.report.model import Point
from autofuse.report.tables import Table


@dataclass(frozen=True, slots=True)
class StudySection:
    """A table under a title, with what it says."""

    title: str
    said: str
    table: Table


def render_study(
    title: str, heading: str, sections: Sequence[StudySection], sentences: Sequence[str],
    dials: Sequence[Point],
) -> str:  # fmt: skip
    """The whole page, the same text for equal arguments; `dials` are drawn by seconds and time.

    Names may hold anything: they are escaped, and what a page cannot hold is replaced."""
    picture = charts.scatter(
        dials, f"Seconds against run time of {title}", "seconds to a plan that can be called"
    )
    return rendered(
        "study.html.j2", title=title, heading=heading, sections=sections,
        sentences=sentences, picture=picture,
    )  # fmt: skip
