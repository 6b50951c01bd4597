"""The charts of a workload, each one picture; "" where there is nothing to draw."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from autofuse.records import Timing
from autofuse.report.frame import (
    PLOT,
    RIGHT,
    ROW,
    TOP,
    WIDTH,
    across,
    frame,
    height,
    legend,
    letter,
    rule,
    rule_labels,
    upward,
)
from autofuse.report.model import Point, SessionReport, WorkloadReport
from autofuse.report.svg import SERIES, Scale, drawing, label, lifted, path, steps, tag, words
from autofuse.units import seconds_text, time_text

_MOST_DOTS = 1500


def bars(report: WorkloadReport) -> str:
    """Median run time of each baseline and of the best of each session, with its quartiles."""
    rows = [row for row in _timed(report) if math.isfinite(row[1].median_us)]
    if not rows:
        return ""
    longest = max(max(t.median_us, _finite(t.q3_us)) for _, t, _, _ in rows) or 1.0
    along = Scale(0.0, longest, 8.0, WIDTH - 96.0, False)
    body = [_bar(18.0 + 44.0 * i, along, *row) for i, row in enumerate(rows)]
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
    shown = [(s, track) for s in report.sessions if (track := _track(s))]
    if not shown:
        return ""
    levels = _levels(report)
    sessions, tracks = zip(*shown, strict=True)
    bounds = [us for _, us in _bounds(*sessions)]
    x, y = _axes(tracks, [*levels.values(), *bounds])
    body = [frame(x, y, "seconds spent", "best run time so far")]
    body += [rule(y(us)) for us in levels.values()]
    body += [_session_line(i, *each, x, y) for i, each in enumerate(shown)]
    body.append(rule_labels([(y(us), name) for name, us in levels.items()]))
    lines_below = [(letter(i), i, session.label) for i, session in enumerate(sessions)]
    if bounds:
        lines_below.append(("", 0, "dotted: lower bound proved so far"))
    body.append(legend(lines_below))
    return drawing(
        WIDTH,
        height(len(lines_below)),
        f"Best so far against seconds spent on {report.name}",
        f"One staircase per session, dashed lines for the baselines. {_ends(shown)}.",
        *body,
    )


def _axes(
    tracks: Sequence[Sequence[tuple[float, float]]], levels: Sequence[float]
) -> tuple[Scale, Scale]:
    """Scales that hold all (seconds, microseconds) of tracks, and levels without seconds."""
    seconds, times = zip(*(point for track in tracks for point in track), strict=True)
    return across(seconds), upward([*times, *levels])


def _levels(report: WorkloadReport) -> dict[str, float]:
    """The times of the baselines that have one."""
    found = {b.name: b.timing.median_us for b in report.baselines}
    return {name: us for name, us in found.items() if math.isfinite(us)}


def _bounds(*sessions: SessionReport) -> list[tuple[float, float]]:
    """(seconds, lower bound) at each event that proved one."""
    events = (e for s in sessions for e in s.events)
    return [(e.spent.total, e.proof.bound_us) for e in events if e.proof.bound_us]


def _ends(shown: Sequence[tuple[SessionReport, Sequence[tuple[float, float]]]]) -> str:
    """What each session had in the end."""
    last = [(session.label, *track[-1]) for session, track in shown]
    return "; ".join(f"{name}: {time_text(us)} after {seconds_text(at)}" for name, at, us in last)


def _timed(report: WorkloadReport) -> Iterator[tuple[str, Timing, int, int]]:
    """Name, time, kernels and colour."""
    for b in report.baselines:
        yield b.name, b.timing, b.kernels, 1
    for s in report.current:
        if s.best:
            role = "sample" if s.is_sample else "best"
            yield f"{role}: {s.label}", s.best.timing, s.best.kernels, 0


def compile_scatter(report: WorkloadReport) -> str:
    """Every measured candidate at its own compile time, with the Pareto front."""
    return scatter(
        report.points,
        f"Compile time against run time of the candidates of {report.name}",
        "compile time of the candidate alone",
    )


def tradeoff(report: WorkloadReport) -> str:
    """What could be had after how many seconds of compiling and searching, with the front."""
    return scatter(
        report.offers,
        f"Seconds of compiling and searching against run time of {report.name}",
        "seconds of compiling and searching",
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0


def _bar(top: float, along: Scale, name: str, timing: Timing, kernels: int, colour: int) -> str:
    end, middle = along(timing.median_us), top + 15.0
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
        low, right = along(timing.q1_us), along(timing.q3_us)
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
    found = [(at, us) for at, us in found if _is_finite(at, us)]
    if found and session.spent.total > found[-1][0]:
        found.append((session.spent.total, found[-1][1]))
    return found


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
    bound = _bounds(session)
    if bound:
        line = steps([(x(at), y(us)) for at, us in bound])
        parts.append(path(line, class_=f"af-line af-l{colour}", stroke_dasharray="1 4"))
    for at, us in track:
        parts.append(tag("circle", class_=f"af-f{colour}", cx=x(at), cy=y(us), r=2.5))
    end_x, end_y = corners[-1]
    parts.append(lifted(end_x, end_y + 16, letter(number), "af-strong", "end"))
    return tag("g", *parts)


def scatter(points: Sequence[Point], title: str, below: str) -> str:
    """Points by seconds and run time, with their Pareto front."""
    good = [p for p in points if _is_finite(p.seconds, p.run_us)]
    if not good:
        return ""
    x, y = across([p.seconds for p in good], 1.0), upward([p.run_us for p in good], 1.0)
    searched, named = _by_role(good)
    dots = _thinned(searched)
    body = [
        frame(x, y, below, "run time"),
        path(_staircase(good, x, y), class_="af-line af-l2"),
        *(_dot(p, x, y) for p in dots),
        *(_named(i, p, x, y) for i, p in enumerate(named)),
        _keys(named),
    ]
    said = f"{len(good)} points, {sum(p.front for p in good)} of them on the Pareto front"
    if len(dots) < len(searched):
        said += f", {len(dots) + len(named)} drawn"
    rows = len(named) + 2
    return drawing(WIDTH, height(rows), title, f"{said}. {_places(named)}.", *body)


def _is_finite(seconds: float, us: float) -> bool:
    return math.isfinite(seconds) and math.isfinite(us)


def _by_role(points: Sequence[Point]) -> tuple[list[Point], list[Point]]:
    """Points of searches, and the others, each once."""
    others = dict.fromkeys(p for p in points if p.role != "search")
    return [p for p in points if p.role == "search"], list(others)


def _staircase(points: Sequence[Point], x: Scale, y: Scale) -> list[tuple[float, float]]:
    """The Pareto front."""
    along = sorted((p.seconds, p.run_us) for p in points if p.front)
    corners = [(x(seconds), y(us)) for seconds, us in along]
    # The last step goes on to the edge: more seconds never make it worse.
    return [*steps(corners), (WIDTH - RIGHT, corners[-1][1])]


def _thinned(points: Sequence[Point]) -> list[Point]:
    """At most about _MOST_DOTS of the points, those of the front among them."""
    stride = math.ceil(len(points) / _MOST_DOTS) or 1
    return [p for i, p in enumerate(points) if p.front or i % stride == 0]


def _place(point: Point) -> str:
    return f"{seconds_text(point.seconds)}, {time_text(point.run_us)}"


def _places(points: Sequence[Point]) -> str:
    return "; ".join(f"{p.label}: {_place(p)}" for p in points)


def _tip(point: Point) -> str:
    counted = "" if point.kernels is None else f", kernels: {point.kernels}"
    front = ", on the Pareto front" if point.front else ""
    return tag("title", words(f"{point.label}: {_place(point)}{counted}{front}"))


def _dot(point: Point, x: Scale, y: Scale) -> str:
    at = (x(point.seconds), y(point.run_us))
    if not point.front:
        return tag("circle", _tip(point), class_="af-dot", cx=at[0], cy=at[1], r=3.0)
    return tag("circle", _tip(point), class_="af-f2", cx=at[0], cy=at[1], r=4.0)


def _shape(role: str) -> Callable[[float, float], str]:
    return {"baseline": _square, "peer": _triangle}.get(role, _diamond)


def _square(x: float, y: float) -> str:
    return tag("rect", class_="af-f1", x=x - 5, y=y - 5, width=10.0, height=10.0)


def _triangle(x: float, y: float) -> str:
    return path([(x, y - 7), (x + 7, y + 6), (x - 7, y + 6), (x, y - 7)], class_="af-f3")


def _diamond(x: float, y: float) -> str:
    return path([(x, y - 8), (x + 8, y), (x, y + 8), (x - 8, y), (x, y - 8)], class_="af-f0")


def _named(number: int, point: Point, x: Scale, y: Scale) -> str:
    at_x, at_y = x(point.seconds), y(point.run_us)
    side = -9.0 if at_x > WIDTH - 50 else 9.0
    anchor = "end" if side < 0 else "start"
    text = lifted(at_x + side, at_y - 7, letter(number), "af-strong", anchor)
    return tag("g", _tip(point), _shape(point.role)(at_x, at_y), text)


def _keys(named: Sequence[Point]) -> str:
    """Two lines that explain the line and the dots, then one row per named point."""
    top = TOP + PLOT + 56
    parts = [
        path([(8.0, top - 4), (28.0, top - 4)], class_="af-line af-l2"),
        label(56.0, top, "Pareto front"),
        tag("circle", class_="af-dot", cx=18.0, cy=top + ROW - 4, r=3.0),
        label(56.0, top + ROW, "found by searching"),
    ]
    for i, point in enumerate(named):
        at = top + ROW * (i + 2)
        parts.append(_shape(point.role)(18.0, at - 4))
        parts.append(label(34.0, at, letter(i), class_="af-strong"))
        parts.append(label(56.0, at, point.label, 46))
    return "".join(parts)
