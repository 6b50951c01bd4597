"""The frame around a chart: its axes, grid, legend and the place of everything in it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from autofuse.report.svg import SERIES, Scale, label, lifted, path, scale, spread
from autofuse.units import seconds_text, time_text

# Narrow, so that text stays readable when a phone shrinks the picture to its width.
WIDTH = 420.0
LEFT, RIGHT, TOP, PLOT = 62.0, 12.0, 26.0, 230.0
ROW = 20.0


def across(values: Sequence[float], log_from: float = 30.0) -> Scale:
    """The scale of an axis to the right."""
    # A search may begin at nought seconds: a logarithm needs a least positive one.
    least = min((v for v in values if v > 0), default=1.0)
    return scale([max(v, least) for v in values], LEFT, WIDTH - RIGHT, log_from)


def upward(values: Sequence[float], log_from: float = 3.0) -> Scale:
    """The scale of an upright axis."""
    return scale(values, TOP + PLOT, TOP, log_from)


def height(legend_rows: int) -> float:
    """Of a framed chart with so many lines below it."""
    return TOP + PLOT + 48 + ROW * legend_rows


def frame(
    x: Scale,
    y: Scale,
    below: str,
    above: str,
    x_text: Callable[[float], str] = seconds_text,
    y_text: Callable[[float], str] = time_text,
) -> str:
    """Axes, grid, tick texts and the names of the axes."""
    bottom, right = TOP + PLOT, WIDTH - RIGHT
    parts = []
    for value in y.ticks():
        at = y(value)
        parts.append(path([(LEFT, at), (right, at)], class_="af-grid"))
        parts.append(_tick(LEFT - 6, at + 4, y_text(value), "end"))
    last = -math.inf
    for value in x.ticks():
        at, text = x(value), x_text(value)
        parts.append(path([(at, TOP), (at, bottom)], class_="af-grid"))
        if at - last >= 8.0 * len(text):
            parts.append(_tick(at, bottom + 16, text, "middle"))
            last = at
    parts.append(path([(LEFT, TOP), (LEFT, bottom), (right, bottom)], class_="af-axis"))
    parts.append(label(4.0, 15.0, _axis(above, y), class_="af-muted"))
    parts.append(label(right, bottom + 34, _axis(below, x), class_="af-muted", text_anchor="end"))
    return "".join(parts)


def _axis(name: str, along: Scale) -> str:
    return f"{name} (log scale)" if along.log else name


def _tick(x: float, y: float, text: str, anchor: str) -> str:
    return label(x, y, text, class_="af-muted af-small", text_anchor=anchor)


def rule(at: float) -> str:
    """A dashed line across the plot."""
    return path([(LEFT, at), (WIDTH - RIGHT, at)], class_="af-rule af-dash")


def rule_labels(rules: Sequence[tuple[float, str]]) -> str:
    """Names at the right end of lines at these heights, moved apart."""
    places = spread([at - 5 for at, _ in rules], 13.0, TOP + PLOT - 3)
    return "".join(
        lifted(WIDTH - RIGHT - 3, at, name, "af-small", "end")
        for at, (_, name) in zip(places, rules, strict=True)
    )


def letter(number: int) -> str:
    """A, B, ... Z, AA, AB, ..."""
    more, last = divmod(number, 26)
    return (letter(more - 1) if more else "") + chr(65 + last)


def legend(rows: Sequence[tuple[str, int, str]], top: float = TOP + PLOT + 56) -> str:
    """A sign, the number of a colour and a text per line, the first one at `top`; lines without a
    sign are dotted."""
    parts = []
    for i, (sign, colour, text) in enumerate(rows):
        at = top + ROW * i
        style, dashes = f"af-line af-l{colour % SERIES}", "none" if sign else "1 4"
        ends = [(8.0, at - 4), (28.0, at - 4)]
        parts.append(path(ends, class_=style, stroke_dasharray=dashes))
        parts.append(label(34.0, at, sign, class_="af-strong"))
        parts.append(label(56.0, at, text, 46))
    return "".join(parts)
