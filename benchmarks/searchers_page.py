"""The comparison of searchers as text and as a page with one picture per space."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autofuse.report.svg import Scale, drawing, label, path, scale, steps, tag, words
from autofuse.units import seconds_text, time_text
from benchmarks.searchers import SpaceResult

_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 520.0, 48.0, 12.0, 26.0, 240.0
_COLUMNS = (
    "space",
    "plans",
    "kernels",
    "optimum",
    "random",
    "TPE",
    "NSGA-II",
    "exact",
    "ratio",
    "with own",
    "unrecorded",
)


def rows_of(results: Sequence[SpaceResult]) -> list[tuple[str, ...]]:
    """One row per space: accounted seconds to within 2 % of the optimum (median; in brackets the
    share of seeds that got there, where not all did) and the ratio of exact to TPE."""
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for r in results:
        times = [_reached_text(r, name) for name in ("random", "tpe", "nsga2", "exact")]
        ratio = "–" if math.isinf(r.ratio) else f"{'< ' if r.censored else ''}{r.ratio:.2f}"
        if r.worse_at:
            ratio += " *"
        lost = f"{max(r.unrecorded.values()):.0%}"
        counts = (str(r.plans), str(r.kernels), time_text(r.optimum_us))
        rows.append(
            (r.name.removeprefix("zoo:"), *counts, *times, ratio, f"{r.ratio_all:.2f}", lost)
        )
    return rows


def table(results: Sequence[SpaceResult]) -> str:
    """The rows in columns."""
    rows = rows_of(results)
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            text.ljust(width) if i == 0 else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines.append(
        "seconds charged to within 2 % of the optimum, median (share of seeds that got there); "
        "ratio: exact over TPE, and with the searchers' own real seconds; "
        "unrecorded: proposals the record cannot answer; "
        "* : at some charge a sampler's median is better than exact's"
    )
    return "\n".join(lines)


def _reached_text(result: SpaceResult, name: str) -> str:
    reached = result.reached[name]
    share = "" if reached.share == 1 else f" ({reached.share:.0%})"
    if math.isinf(reached.median):
        return f"> {seconds_text(result.limit_s)}{share}"
    return seconds_text(reached.median) + share


def page(results: Sequence[SpaceResult]) -> str:
    """An HTML page that stands alone."""
    header, *body = rows_of(results)
    cells = [tag("tr", *(tag("th", words(text)) for text in header))]
    cells += [tag("tr", *(tag("td", words(text)) for text in row)) for row in body]
    notes = (
        "Median of all seeds, shaded from first to third quartile. Quality 0 is the expected time "
        "of one uniformly drawn plan, 1 the least plan of all recorded kernels. Charged are the "
        "recorded seconds of compiling each kernel once and of running each plan, not the "
        "searchers' own. Dashed: random search computed from the distribution of plans."
    )
    style = "body{font:15px system-ui;max-width:1100px;margin:2em auto;padding:0 1em}"
    style += "td,th{padding:2px 10px;text-align:right}svg{max-width:540px}"
    head = tag("meta", charset="utf-8") + tag("title", "Searchers compared") + tag("style", style)
    return "<!DOCTYPE html>\n" + tag(
        "html",
        tag("head", head),
        tag(
            "body",
            tag("h1", "Searchers compared on recorded spaces"),
            tag("p", words(notes)),
            tag("table", *cells),
            *(picture(result) for result in results),
        ),
        lang="en",
    )


def picture(result: SpaceResult) -> str:
    """Quality against accounted seconds of every searcher on one space."""
    x = scale(result.grid, _LEFT, _WIDTH - _RIGHT)
    y = Scale(0.0, 1.0, _TOP + _PLOT, _TOP, False)
    body = [_frame(x, y)]
    dashed = [(x(at), y(q)) for at, q in zip(result.grid, result.analytic, strict=True)]
    body.append(path(dashed, class_="af-rule af-dash"))
    for i, (name, curve) in enumerate(sorted(result.curves.items())):
        low = _line(result.grid, curve.low, x, y)
        high = _line(result.grid, curve.high, x, y)
        middle = _line(result.grid, curve.median, x, y)
        if low and high:
            area = [*high, *reversed(low)]
            body.append(path(area, class_=f"af-f{i}", fill_opacity="0.15", stroke="none"))
        if middle:
            body.append(path(middle, class_=f"af-line af-l{i}"))
        at = _TOP + _PLOT + 56 + 20.0 * i
        body.append(path([(8.0, at - 4), (28.0, at - 4)], class_=f"af-line af-l{i}"))
        body.append(label(36.0, at, f"{name}: {_reached_text(result, name)} to within 2 %"))
    height = _TOP + _PLOT + 48 + 20.0 * len(result.curves) + 8
    said = "; ".join(f"{n}: {_reached_text(result, n)}" for n in sorted(result.curves))
    return drawing(
        _WIDTH, height, f"Searchers on {result.name}", f"To within 2 %: {said}.",
        label(4.0, 15.0, f"quality on {result.name.removeprefix('zoo:')}", class_="af-strong"),
        *body,
    )  # fmt: skip


def _line(
    grid: Sequence[float], values: Sequence[float], x: Scale, y: Scale
) -> list[tuple[float, float]]:
    """The staircase of what is finite."""
    pairs = [(x(at), y(v)) for at, v in zip(grid, values, strict=True) if math.isfinite(v)]
    return steps(pairs)


def _frame(x: Scale, y: Scale) -> str:
    bottom, right = _TOP + _PLOT, _WIDTH - _RIGHT
    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(path([(_LEFT, y(value)), (right, y(value))], class_="af-grid"))
        where = (_LEFT - 6, y(value) + 4)
        parts.append(label(*where, f"{value:g}", class_="af-muted af-small", text_anchor="end"))
    for value in x.ticks():
        style, anchor = "af-muted af-small", "middle"
        text = seconds_text(value)
        parts.append(label(x(value), bottom + 16, text, class_=style, text_anchor=anchor))
    parts.append(path([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)], class_="af-axis"))
    said = "seconds charged"
    parts.append(label(right, bottom + 34, said, class_="af-muted", text_anchor="end"))
    return "".join(parts)
