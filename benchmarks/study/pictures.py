"""The figures of docs/study.md, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.report.svg import Scale, drawing, label, path, steps, tag
from autofuse.tuning.plans import BEST
from benchmarks.kept import Row
from benchmarks.study.distance import ratios_of
from benchmarks.study.summary import Price, prices

_WIDTH, _LEFT, _RIGHT, _TOP, _PLOT = 560.0, 48.0, 24.0, 30.0, 240.0
# Those that are drawn: as many as there are colours, the search first.
SHOWN = (BEST, "xla-2026", "inductor", "tvm", "nvfuser", "unfused")
FARTHEST = 16.0
# A row of rules, and the room for their names.
_ROW, _NAMES = 22.0, 180.0
_SMALL = "af-muted af-small"


def distance_picture(rows: Sequence[Row]) -> str:
    """The share of programs on which a planner's plan is within a factor of the best known."""
    x = Scale(1.0, FARTHEST, _LEFT, _WIDTH - _RIGHT, True)
    y = Scale(0.0, 1.0, _TOP + _PLOT, _TOP, False)
    body = [_frame(x, y)]
    for series, planner in enumerate(SHOWN):
        points = _cumulative(sorted(ratio for ratio, _ in ratios_of(rows, planner)))
        line = steps([(x(ratio), y(share)) for ratio, share in points])
        body.append(path(line, class_=f"af-line af-l{series}"))
        at = _TOP + _PLOT + 56 + 20.0 * series
        body.append(path([(8.0, at - 4), (28.0, at - 4)], class_=f"af-line af-l{series}"))
        body.append(label(36.0, at, "search of 20 s" if planner == BEST else planner))
    height = _TOP + _PLOT + 48 + 20.0 * len(SHOWN) + 8
    title = "share of programs within a factor of the best plan known"
    return drawing(
        _WIDTH, height, "Distance from the best", title,
        label(4.0, 15.0, title, class_="af-strong"), *body,
    )  # fmt: skip


def _cumulative(ratios: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Each ratio with the share of all that are no greater, up to the edge of the picture."""
    yield 1.0, 0.0
    for k, ratio in enumerate(ratios, 1):
        if ratio <= FARTHEST:
            yield ratio, k / len(ratios)
    yield FARTHEST, sum(ratio <= FARTHEST for ratio in ratios) / len(ratios)


def _frame(x: Scale, y: Scale) -> str:
    bottom, right = _TOP + _PLOT, _WIDTH - _RIGHT
    parts = []
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(path([(_LEFT, y(value)), (right, y(value))], class_="af-grid"))
        text = f"{100 * value:g} %"
        parts.append(label(_LEFT - 6, y(value) + 4, text, class_=_SMALL, text_anchor="end"))
    parts += [
        label(x(value), bottom + 16, f"{value:g}", class_=_SMALL, text_anchor="middle")
        for value in (1.0, 1.5, 2.0, 3.0, 5.0, 10.0, FARTHEST)
    ]
    parts.append(path([(_LEFT, _TOP), (_LEFT, bottom), (right, bottom)], class_="af-axis"))
    said = "time over that of the best"
    parts.append(label(right, bottom + 34, said, class_="af-muted", text_anchor="end"))
    return "".join(parts)


def price_picture(rows: Sequence[Row], planner: str) -> str:
    """Each rule that changes a plan: time with it over time without it, and its interval."""
    found = [price for price in prices(rows, planner) if price.changed]
    ends = [end for price in found for end in (price.low, price.high)]
    x = Scale(min([0.9, *ends]), max([1.1, *ends]), _NAMES, _WIDTH - _RIGHT, True)
    bottom = _TOP + _ROW * len(found)
    parts = [path([(x(1.0), _TOP), (x(1.0), bottom)], class_="af-rule")]
    for k, price in enumerate(found):
        parts.append(_price(price, x, _TOP + _ROW * (k + 0.5)))
    parts += [
        label(x(value), bottom + 16, f"{value:.2f}", class_=_SMALL, text_anchor="middle")
        for value in (x.low, 1.0, x.high)
    ]
    title = f"{planner}: time with a rule over time without it"
    said = "geometric mean over all programs, 95 %"
    parts.append(label(_WIDTH - _RIGHT, bottom + 34, said, class_="af-muted", text_anchor="end"))
    return drawing(
        _WIDTH, bottom + 44, f"Prices of the rules of {planner}", title,
        label(4.0, 15.0, title, class_="af-strong"), *parts,
    )  # fmt: skip


def _price(price: Price, x: Scale, y: float) -> str:
    name = label(_NAMES - 10, y + 4, price.rule, text_anchor="end")
    line = path([(x(price.low), y), (x(price.high), y)], class_="af-line af-l0")
    return name + line + tag("circle", cx=x(price.ratio), cy=y, r=4.0, class_="af-f0")
