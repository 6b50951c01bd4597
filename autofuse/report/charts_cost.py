"""The charts of costs: the envelope, break-even runs, gaps, bytes; "" where there is nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from autofuse.report.envelope import MOST_RUNS, EnvelopeSegment, SearchedOption
from autofuse.report.frame import (
    LEFT,
    RIGHT,
    WIDTH,
    across,
    frame,
    height,
    legend,
    letter,
    upward,
)
from autofuse.report.model import BreakEven, SessionReport, WorkloadReport
from autofuse.report.svg import (
    SERIES,
    Scale,
    drawing,
    label,
    lifted,
    path,
    scale,
    steps,
    tag,
    words,
)
from autofuse.units import amount_text, percent_text, runs_text, seconds_text

# Enough points that a curve on two log axes looks smooth.
_SAMPLES = 46
_MOST_LINES = 8


def envelope_chart(
    name: str, segments: Sequence[EnvelopeSegment], found: Iterable[SearchedOption]
) -> str:
    """Total seconds against runs, both by logarithm: the cheapest option thick, and every option
    that is the cheapest somewhere or ends up fastest of its kind thin."""
    if not segments:
        return ""
    winners = list(dict.fromkeys(s.option for s in segments))
    drawn = list(islice(dict.fromkeys([*_spaced(winners), *_kinds(found)]), _MOST_LINES))
    x = Scale(1.0, MOST_RUNS, LEFT, WIDTH - RIGHT, True)
    y = upward(_positive_ends(drawn), 1.0)
    body = [frame(x, y, "runs", "total seconds", amount_text, _long_text)]
    body += [_thin(i, option, x, y) for i, option in enumerate(drawn)]
    body += [_thick(segment, x, y) for segment in segments]
    rows = [(letter(i), i, f"{o.label} ({o.role})") for i, o in enumerate(drawn)]
    body.append(legend(rows))
    said = "; ".join(
        f"from {runs_text(s.first)} to {runs_text(s.last)} runs: {s.option.label}" for s in segments
    )
    return drawing(
        WIDTH,
        height(len(rows)),
        f"Total cost against runs of {name}",
        f"The thick line is the least total cost. {said}.",
        *body,
    )


def _spaced(winners: Sequence[SearchedOption]) -> list[SearchedOption]:
    """At most half of the lines for winners, the first and the last among them."""
    stride = math.ceil(len(winners) / (_MOST_LINES // 2)) or 1
    return [o for i, o in enumerate(winners) if i % stride == 0 or i == len(winners) - 1]


def _kinds(found: Iterable[SearchedOption]) -> list[SearchedOption]:
    """The fastest option of each strategy, the fastest strategy first."""
    best: dict[tuple[str, str], SearchedOption] = {}
    for one in sorted(found, key=lambda o: (o.run_us, o.seconds, o.label)):
        best.setdefault((one.role, one.name), one)
    return list(best.values())


def _positive_ends(drawn: Iterable[SearchedOption]) -> list[float]:
    ends = [o.total_s(n) for o in drawn for n in (1.0, MOST_RUNS)]
    return [e for e in ends if e > 0]


def _curve(option: SearchedOption, first: float, last: float) -> list[tuple[float, float]]:
    """(runs, seconds) evenly spaced by logarithm."""
    ratio = last / first
    runs = [first * ratio ** (i / (_SAMPLES - 1)) for i in range(_SAMPLES)]
    return [(n, option.total_s(n)) for n in runs]


def _thin(number: int, option: SearchedOption, x: Scale, y: Scale) -> str:
    points = [(x(n), y(s)) for n, s in _curve(option, 1.0, MOST_RUNS) if s > 0]
    tip = f"{option.label}: {seconds_text(option.seconds)} before the first run"
    if not points:
        return ""
    end_x, end_y = points[len(points) * (number + 2) // (_MOST_LINES + 4)]
    return tag(
        "g",
        tag("title", words(tip)),
        path(points, class_=f"af-line af-thin af-l{number % SERIES}"),
        lifted(end_x, end_y + 4, letter(number), "af-strong", "middle"),
    )


def _thick(segment: EnvelopeSegment, x: Scale, y: Scale) -> str:
    curve = _curve(segment.option, segment.first, segment.last)
    points = [(x(n), y(s)) for n, s in curve if s > 0]
    if not points:  # it costs nothing: a logarithmic scale has no place for that
        return ""
    span = f"{runs_text(segment.first)} to {runs_text(segment.last)} runs"
    tip = tag("title", words(f"{span}: {segment.option.label} costs the least"))
    start = tag("circle", class_="af-tip", cx=points[0][0], cy=points[0][1], r=4.0)
    return tag("g", tip, path(points, class_="af-line af-thick"), start)


def break_even_chart(report: WorkloadReport) -> str:
    """Runs after which each session has paid against each baseline, with intervals."""
    rows = [(s.label, b) for s in report.current for b in s.break_even if b.runs is not None]
    if not rows:
        return ""
    ends = [max(1.0, n) for _, b in rows for n in _known_runs(b)]
    x = scale([1.0, *ends], 8.0, WIDTH - 20.0, 1.0)
    bottom = 44.0 * len(rows) + 4
    body = [*_grid(x, bottom)]
    body.append(
        label(WIDTH - RIGHT, bottom + 36, "runs (log scale)", class_="af-muted", text_anchor="end")
    )
    body += [_whisker(18.0 + 44.0 * i, x, name, one) for i, (name, one) in enumerate(rows)]
    said = "; ".join(f"{n} against {b.baseline}: {runs_text(b.runs)}" for n, b in rows)
    title = f"Break-even runs of {report.name}"
    return drawing(WIDTH, bottom + 46, title, f"Dots with intervals. {said}.", *body)


def _known_runs(one: BreakEven) -> list[float]:
    return [n for n in (one.runs, *(one.interval or ())) if n is not None]


def _grid(x: Scale, bottom: float) -> Iterator[str]:
    """A line per tick, with its number where it does not touch the one before."""
    last = -math.inf
    for value in x.ticks():
        at, text = x(value), amount_text(value)
        yield path([(at, 6.0), (at, bottom)], class_="af-grid")
        if at - last >= 9.0 * len(text) + 4:
            anchor = "start" if at < 20 else "middle"
            yield label(at, bottom + 16, text, class_="af-muted af-small", text_anchor=anchor)
            last = at


def _whisker(top: float, x: Scale, name: str, one: BreakEven) -> str:
    runs = max(1.0, one.runs or 0.0)
    low, high = one.interval or (runs, runs)
    span = [x(max(1.0, low or runs)), WIDTH - 8.0 if high is None else x(max(1.0, high))]
    told = f"{name} against {one.baseline}: {runs_text(one.runs)} runs{_between(one.interval)}"
    return tag(
        "g",
        tag("title", words(told)),
        label(8.0, top, f"{name} against {one.baseline}", 54),
        path([(span[0], top + 14), (span[1], top + 14)], class_="af-line af-l0"),
        tag("circle", class_="af-f0", cx=x(runs), cy=top + 14, r=6.0),
    )


def _long_text(seconds: float) -> str:
    """Seconds that may be very many, in few letters."""
    return seconds_text(seconds) if seconds < 1e3 else f"{amount_text(seconds)}s"


def _between(interval: tuple[float | None, float | None] | None) -> str:
    if interval is None:
        return ""
    return f" ({runs_text(interval[0])} to {runs_text(interval[1])})"


def _gaps(session: SessionReport) -> list[tuple[float, float]]:
    """(seconds, gap) at each event that knows one, and once more at the end of the session."""
    found = [(e.spent.total, e.proof.search_gap) for e in session.events]
    known = [(at, gap) for at, gap in found if gap is not None]
    good = [(at, gap) for at, gap in known if math.isfinite(at) and math.isfinite(gap)]
    if good:
        good.append((max(session.spent.total, good[-1][0]), good[-1][1]))
    return good


def gap_chart(report: WorkloadReport) -> str:
    """What the plans of each session's own kernels may still gain, against seconds spent."""
    tracks = [(s.label, track) for s in report.sessions if (track := _gaps(s))]
    if not tracks:
        return ""
    spent, gaps = zip(*(point for _, track in tracks for point in track), strict=True)
    x, y = across(spent), upward([0.0, *gaps])
    body = [frame(x, y, "seconds spent", "gap of the search", y_text=percent_text)]
    for i, (name, track) in enumerate(tracks):
        corners = steps([(x(at), y(gap)) for at, gap in track])
        line = path(corners, class_=f"af-line af-l{i % SERIES}")
        end_x, end_y = corners[-1]
        sign = lifted(end_x, end_y - 6, letter(i), "af-strong", "end")
        body.append(
            tag("g", tag("title", words(f"{name}: {percent_text(track[-1][1])}")), line, sign)
        )
    body.append(legend([(letter(i), i, name) for i, (name, _) in enumerate(tracks)]))
    said = "; ".join(
        f"{n}: {percent_text(t[-1][1])} after {seconds_text(t[-1][0])}" for n, t in tracks
    )
    return drawing(
        WIDTH, height(len(tracks)), f"Gap against seconds spent on {report.name}", f"{said}.", *body
    )


def quantity_bars(
    title: str, rows: Sequence[tuple[str, float, int]], text: Callable[[float], str]
) -> str:
    """A bar per (name, quantity, colour), with the quantity as `text` says it."""
    if not rows:
        return ""
    along = Scale(0.0, max(q for _, q, _ in rows) or 1.0, 8.0, WIDTH - 96.0, False)
    body = []
    for i, (name, quantity, colour) in enumerate(rows):
        top, end = 18.0 + 44.0 * i, along(quantity)
        body.append(
            tag(
                "g",
                tag("title", words(f"{name}: {text(quantity)}")),
                label(8.0, top, name, 54),
                tag(
                    "rect",
                    class_=f"af-bar af-f{colour}",
                    x=8.0,
                    y=top + 6,
                    width=max(end - 8.0, 1.0),
                    height=18.0,
                ),
                label(max(end, 9.0) + 6, top + 20, text(quantity), class_="af-strong"),
            )
        )
    said = "; ".join(f"{name}: {text(quantity)}" for name, quantity, _ in rows)
    return drawing(WIDTH, 44.0 * len(rows) + 8, title, f"{said}.", *body)
