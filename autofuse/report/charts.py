"""The charts of a workload, each one picture; "" where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autofuse.records import Timing
from autofuse.report.model import Point, SessionReport, WorkloadReport
from autofuse.report.svg import (
    SERIES,
    Scale,
    drawing,
    label,
    lifted,
    path,
    scale,
    seconds_text,
    spread,
    steps,
    tag,
    time_text,
    words,
)

# Narrow, so that text stays readable when a phone shrinks the picture to its width.
WIDTH = 420.0
_LEFT, _RIGHT, _TOP, _PLOT = 62.0, 12.0, 26.0, 230.0
_ROW = 20.0
_MOST_DOTS = 1500


def bars(report: WorkloadReport) -> str:
    """Median run time of each baseline and of the best of each session, with its quartiles."""
    rows: list[tuple[str, Timing, int, int]] = [
        (b.name, b.timing, b.kernels, 1) for b in report.baselines
    ]
    rows += [
        (f"best: {s.label}", s.best.timing, s.best.kernels, 0) for s in report.current if s.best
    ]
    rows = [row for row in rows if math.isfinite(row[1].median_us)]
    if not rows:
        return ""
    longest = max(max(t.median_us, _finite(t.q3_us)) for _, t, _, _ in rows) or 1.0
    across = Scale(0.0, longest, 8.0, WIDTH - 96.0, False)
    body = [_bar(18.0 + 44.0 * i, across, *row) for i, row in enumerate(rows)]
    said = "; ".join(f"{name}: {time_text(t.median_us)}" for name, t, _, _ in rows)
    return drawing(
        WIDTH,
        44.0 * len(rows) + 8,
        f"Run time of {report.name}",
        f"Bars to the median, whiskers from first to third quartile. {said}.",
        *body,
    )


def progress(report: WorkloadReport) -> str:
    """Best time so far against the seconds a session has spent; baselines as dashed lines."""
    shown = [(s, _track(s)) for s in report.sessions]
    shown = [(s, track) for s, track in shown if track]
    if not shown:
        return ""
    lines = [b for b in report.baselines if math.isfinite(b.timing.median_us)]
    bounds = [e.bound_us for s, _ in shown for e in s.events if e.bound_us]
    times = [y for _, track in shown for _, y in track] + [b.timing.median_us for b in lines]
    x = _across([at for _, track in shown for at, _ in track])
    y = _upward([*times, *bounds])
    body = [_frame(x, y, "seconds spent", "best run time so far")]
    body += [_rule(y(b.timing.median_us)) for b in lines]
    for i, (session, track) in enumerate(shown):
        body.append(_session_line(i, session, track, x, y))
    body.append(_rule_labels([(y(b.timing.median_us), b.name) for b in lines]))
    legend = [(_letter(i), i, session.label) for i, (session, _) in enumerate(shown)]
    if bounds:
        legend.append(("", 0, "dotted: lower bound proved so far"))
    body.append(_legend(legend))
    said = "; ".join(
        f"{s.label}: {time_text(track[-1][1])} after {seconds_text(track[-1][0])}"
        for s, track in shown
    )
    return drawing(
        WIDTH,
        _height(len(legend)),
        f"Best so far against seconds spent on {report.name}",
        f"One staircase per session, dashed lines for the baselines. {said}.",
        *body,
    )


def compile_scatter(report: WorkloadReport) -> str:
    """Every measured candidate at its own compile time, with the Pareto front."""
    return _scatter(
        report.points,
        f"Compile time against run time of the candidates of {report.name}",
        "compile time of the candidate alone",
    )


def tradeoff(report: WorkloadReport) -> str:
    """What could be had after how many seconds of compiling and searching, with the front."""
    return _scatter(
        report.offers,
        f"Seconds of compiling and searching against run time of {report.name}",
        "seconds of compiling and searching",
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _bar(top: float, across: Scale, name: str, timing: Timing, kernels: int, colour: int) -> str:
    end, middle = across(timing.median_us), top + 15.0
    counted = f"{kernels} kernel{'' if kernels == 1 else 's'}"
    interval = f"{time_text(timing.q1_us)} to {time_text(timing.q3_us)}"
    parts = [
        tag("title", words(f"{name}: {time_text(timing.median_us)} ({interval}), {counted}")),
        label(8.0, top, f"{name} · {counted}", 54),
        tag(
            "rect",
            class_=f"af-bar af-f{colour}",
            x=8.0,
            y=top + 6,
            width=max(end - 8.0, 1.0),
            height=18.0,
        ),
    ]
    right = end
    if math.isfinite(timing.q1_us) and math.isfinite(timing.q3_us):
        low, right = across(timing.q1_us), across(timing.q3_us)
        for corners in (
            [(low, middle), (right, middle)],
            [(low, middle - 5), (low, middle + 5)],
            [(right, middle - 5), (right, middle + 5)],
        ):
            parts.append(path(corners, class_="af-rule"))
    parts.append(
        label(max(end, right) + 6, middle + 5, time_text(timing.median_us), class_="af-strong")
    )
    return tag("g", *parts)


def _track(session: SessionReport) -> list[tuple[float, float]]:
    """(seconds, best microseconds) at each event, and once more at the end of the session."""
    found = [(e.spent.total, e.best_us) for e in session.events]
    found = [(at, us) for at, us in found if math.isfinite(at) and math.isfinite(us)]
    if found and session.spent.total > found[-1][0]:
        found.append((session.spent.total, found[-1][1]))
    return found


def _across(values: Sequence[float]) -> Scale:
    # A search may begin at nought seconds: a logarithm needs a least positive one.
    least = min((v for v in values if v > 0), default=1.0)
    return scale([max(v, least) for v in values], _LEFT, WIDTH - _RIGHT, 30.0)


def _upward(values: Sequence[float]) -> Scale:
    return scale(values, _TOP + _PLOT, _TOP)


def _height(legend_rows: int) -> float:
    return _TOP + _PLOT + 48 + _ROW * legend_rows


def _frame(x: Scale, y: Scale, below: str, above: str) -> str:
    """Axes, grid, tick texts and the names of the axes."""
    bottom, right = _TOP + _PLOT, WIDTH - _RIGHT
    parts = []
    for value in y.ticks():
        at = y(value)
        parts.append(path([(_LEFT, at), (right, at)], class_="af-grid"))
        parts.append(_tick(_LEFT - 6, at + 4, time_text(value), "end"))
    last = -math.inf
    for value in x.ticks():
        at, text = x(value), seconds_text(value)
        parts.append(path([(at, _TOP), (at, bottom)], class_="af-grid"))
        if at - last >= 8.0 * len(text):
            parts.append(_tick(at, bottom + 16, text, "middle"))
            last = at
    parts.append(path([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)], class_="af-axis"))
    parts.append(label(4.0, 15.0, _axis(above, y), class_="af-muted"))
    parts.append(label(right, bottom + 34, _axis(below, x), class_="af-muted", text_anchor="end"))
    return "".join(parts)


def _axis(name: str, along: Scale) -> str:
    return f"{name} (log scale)" if along.log else name


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return label(x, y, text, class_="af-muted af-small", text_anchor=anchor)


def _rule(at: float) -> str:
    return path([(_LEFT, at), (WIDTH - _RIGHT, at)], class_="af-rule af-dash")


def _rule_labels(rules: Sequence[tuple[float, str]]) -> str:
    places = spread([at - 5 for at, _ in rules], 13.0, _TOP + _PLOT - 3)
    return "".join(
        lifted(WIDTH - _RIGHT - 3, at, name, "af-small", "end")
        for at, (_, name) in zip(places, rules, strict=True)
    )


def _letter(number: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    more, last = divmod(number, 26)
    return (_letter(more - 1) if more else "") + chr(65 + last)


def _session_line(
    number: int,
    session: SessionReport,
    track: Sequence[tuple[float, float]],
    x: Scale,
    y: Scale,
) -> str:
    colour = number % SERIES
    corners = steps([(x(at), y(us)) for at, us in track])
    parts = [tag("title", words(session.label)), path(corners, class_=f"af-line af-l{colour}")]
    bound = [(e.spent.total, e.bound_us) for e in session.events if e.bound_us]
    if bound:
        line = steps([(x(at), y(us)) for at, us in bound])
        parts.append(path(line, class_=f"af-line af-l{colour}", stroke_dasharray="1 4"))
    for at, us in track:
        parts.append(tag("circle", class_=f"af-f{colour}", cx=x(at), cy=y(us), r=2.5))
    end_x, end_y = corners[-1]
    parts.append(lifted(end_x, end_y + 16, _letter(number), "af-strong", "end"))
    return tag("g", *parts)


def _legend(rows: Sequence[tuple[str, int, str]]) -> str:
    top = _TOP + _PLOT + 56
    parts = []
    for i, (sign, colour, text) in enumerate(rows):
        at = top + _ROW * i
        style, dashes = f"af-line af-l{colour % SERIES}", "none" if sign else "1 4"
        ends = [(8.0, at - 4), (28.0, at - 4)]
        parts.append(path(ends, class_=style, stroke_dasharray=dashes))
        parts.append(label(34.0, at, sign, class_="af-strong"))
        parts.append(label(56.0, at, text, 46))
    return "".join(parts)


def _scatter(points: Sequence[Point], title: str, below: str) -> str:
    good = [p for p in points if math.isfinite(p.seconds) and math.isfinite(p.run_us)]
    if not good:
        return ""
    least = min((p.seconds for p in good if p.seconds > 0), default=1.0)
    x = scale([max(p.seconds, least) for p in good], _LEFT, WIDTH - _RIGHT)
    y = _upward([p.run_us for p in good])
    front = sorted((p for p in good if p.front), key=lambda p: (p.seconds, p.run_us))
    corners = [(x(p.seconds), y(p.run_us)) for p in front]
    # The last step goes on to the edge: more seconds never make it worse.
    staircase = [*steps(corners), (WIDTH - _RIGHT, corners[-1][1])]
    dots = _thinned([p for p in good if p.role == "search"])
    named = _unique([p for p in good if p.role != "search"])
    body = [
        _frame(x, y, below, "run time"),
        path(staircase, class_="af-line af-l2"),
        *(_dot(p, x, y) for p in dots),
        *(_named(i, p, x, y) for i, p in enumerate(named)),
        _keys(named),
    ]
    said = f"{len(good)} points, {len(front)} of them on the Pareto front"
    if len(dots) < sum(p.role == "search" for p in good):
        said += f", {len(dots) + len(named)} drawn"
    best = "; ".join(f"{p.label}: {seconds_text(p.seconds)}, {time_text(p.run_us)}" for p in named)
    rows = len(named) + 2
    return drawing(WIDTH, _height(rows), title, f"{said}. {best}.", *body)


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most about _MOST_DOTS of the points, those of the front among them."""
    stride = math.ceil(len(points) / _MOST_DOTS) or 1
    return [p for i, p in enumerate(points) if p.front or i % stride == 0]


def _unique(points: Sequence[Point]) -> list[Point]:
    return list(dict.fromkeys(points))


def _tip(point: Point) -> str:
    counted = "" if point.kernels is None else f", kernels: {point.kernels}"
    front = ", on the Pareto front" if point.front else ""
    place = f"{seconds_text(point.seconds)}, {time_text(point.run_us)}"
    return tag("title", words(f"{point.label}: {place}{counted}{front}"))


def _dot(point: Point, x: Scale, y: Scale) -> str:
    at = (x(point.seconds), y(point.run_us))
    if not point.front:
        return tag("circle", _tip(point), class_="af-dot", cx=at[0], cy=at[1], r=3.0)
    return tag("circle", _tip(point), class_="af-f2", cx=at[0], cy=at[1], r=4.0)


def _shape(role: str) -> Callable[[float, float], str]:
    return _square if role == "baseline" else _diamond


def _square(x: float, y: float) -> str:
    return tag("rect", class_="af-f1", x=x - 5, y=y - 5, width=10.0, height=10.0)


def _diamond(x: float, y: float) -> str:
    return path([(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y), (x, y - 8)], class_="af-f0")


def _named(number: int, point: Point, x: Scale, y: Scale) -> str:
    at_x, at_y = x(point.seconds), y(point.run_us)
    side = -9.0 if at_x > WIDTH - 50 else 9.0
    anchor = "end" if side < 0 else "start"
    text = lifted(at_x + side, at_y - 7, _letter(number), "af-strong", anchor)
    return tag("g", _tip(point), _shape(point.role)(at_x, at_y), text)


def _keys(named: Sequence[Point]) -> str:
    """Two rows that explain the line and the dots, then one row per named point."""
    top = _TOP + _PLOT + 56
    parts = [
        path([(8.0, top - 4), (28.0, top - 4)], class_="af-line af-l2"),
        label(56.0, top, "Pareto front"),
        tag("circle", class_="af-dot", cx=18.0, cy=top + _ROW - 4, r=3.0),
        label(56.0, top + _ROW, "found by searching"),
    ]
    for i, point in enumerate(named):
        at = top + _ROW * (i + 2)
        parts.append(_shape(point.role)(18.0, at - 4))
        parts.append(label(34.0, at, _letter(i), class_="af-strong"))
        parts.append(label(56.0, at, point.label, 46))
    return "".join(parts)
