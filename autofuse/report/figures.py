"""Every picture of the report as a file: SVG, or PNG where the extra `figures` is installed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from autofuse.report import charts_cost
from autofuse.report.envelope import envelope, together
from autofuse.report.errors import ReportError
from autofuse.report.model import WorkloadReport
from autofuse.report.topics import topics

# Pixels per unit: sharp in print at the width of a page.
_ZOOM = 3
_FONTS = ("DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica", "Segoe UI")


def figures(reports: Sequence[WorkloadReport]) -> Iterator[tuple[str, str]]:
    """(file name without its ending, SVG text) of every picture; names are letters, digits and
    hyphens, whatever workloads are called."""
    for number, report in enumerate(reports, 1):
        prefix = f"{number:02}-{_plain(report.name)}-{_plain(report.device)}"
        for topic in topics(report):
            for picture in topic.pictures:
                yield f"{prefix}-{picture.key}", picture.svg
    for device in sorted({r.device for r in reports}):
        own = [r for r in reports if r.device == device]
        shared = together(own)
        segments = envelope(shared)
        if segments:
            name = f"all {len(own)} workloads on {device}"
            chart = charts_cost.envelope_chart(name, segments, shared)
            yield f"00-all-{_plain(device)}-envelope", chart


def png(svg: str) -> bytes:
    """A picture as a PNG file, light. Raises ReportError where the extra is not installed, or if
    the picture cannot be drawn."""
    try:
        import resvg_py  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise ReportError(
            "PNG figures need resvg: pip install 'autofuse[figures]' (or take SVG figures)"
        ) from error
    family = _font()
    if family is None:
        raise ReportError(
            "PNG figures need a font: on Debian run: apt-get install fonts-dejavu-core"
        )
    try:
        return _drawn(svg, family)
    except ValueError as error:
        raise ReportError(f"a figure cannot be drawn: {error}") from error


def _drawn(svg: str, family: str) -> bytes:
    import resvg_py

    return bytes(resvg_py.svg_to_bytes(svg_string=svg, zoom=_ZOOM, sans_serif_family=family))


@cache
def _font() -> str | None:
    """The first of the usual fonts that is installed: text in others is left out in silence."""
    frame = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'
    text = frame.format('<text x="2" y="15" font-family="sans-serif">x</text>')
    blank = frame.format("")
    return next((f for f in _FONTS if _drawn(text, f) != _drawn(blank, f)), None)


def _plain(name: str) -> str:
    text = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix("zoo:")).strip("-")
    return text[:60] or "unnamed"
