"""The figures of docs/study.md, as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autofuse.report.frame import LEFT, PLOT, RIGHT, ROW, TOP, WIDTH, frame, height, legend
from autofuse.report.svg import Scale, drawing, label, path, steps, tag
from autofuse.tuning.plans import BEST, UNTUNED
from benchmarks.kept import Row
from benchmarks.study.cheapest import TOLD, cost_over, share_of, times_of
from benchmarks.study.distance import ratios_of
from benchmarks.study.journeys import WHAT, losses
from benchmarks.study.shares import splits
from benchmarks.study.summary import Ratio, prices
from benchmarks.study.travel import PARTITION, WHOLE

# Those that are drawn: as many as there are colours, the search first.
SHOWN = (BEST, "xla-2026", "inductor", "tvm", "nvfuser", "unfused")
FARTHEST, DEAREST = 16.0, 100.0
# The room for the names of rules.
_NAMES = 160.0
# Between what is drawn in one row.
_BESIDE = 8.0
_SMALL = "af-muted af-small"


def distance_picture(rows: Sequence[Row]) -> str:
    """The share of programs on which a planner's plan is within a factor of the best known."""
    x = Scale(1.0, FARTHEST, LEFT, WIDTH - RIGHT, True)
    y = Scale(0.0, 1.0, TOP + PLOT, TOP, False)
    title = "share of programs"
    parts = [frame(x, y, "time over the best known", title, "{:g}".format, "{:.0%}".format)]
    for series, planner in enumerate(SHOWN):
        points = _cumulative(sorted(ratio for ratio, _ in ratios_of(rows, planner)))
        line = steps([(x(ratio), y(share)) for ratio, share in points])
        parts.append(path(line, class_=f"af-line af-l{series}"))
    names = ("search of 20 s" if planner == BEST else planner for planner in SHOWN)
    parts.append(legend([("—", series, name) for series, name in enumerate(names)]))
    return drawing(WIDTH, height(len(SHOWN)), "Distance from the best", title, *parts)


# What is drawn together of experiment A: the least of several dials' costs counts for each.
TOGETHER: Mapping[str, Callable[[str], bool]] = {
    "autofuse, untuned": "autofuse untuned".__eq__,
    "autofuse, tuned": lambda name: name.startswith("autofuse ") and name != "autofuse untuned",
    "jax.jit": "jax.jit".__eq__,
    "inductor": "inductor".__eq__,
    "onnxruntime": "onnxruntime".__eq__,
    "eager PyTorch, NumPy": ("eager", "numpy").__contains__,
}


def runs_picture(rows: Sequence[Row]) -> str:
    """The share of programs for which a dial is the cheapest, by the number of runs, with 95 %
    intervals."""
    times = times_of(rows)
    y = Scale(0.0, 1.0, TOP + PLOT, TOP, False)
    title = "share of programs for which it is the cheapest"
    found = {
        name: [share_of(times, runs, is_of) for runs in TOLD] for name, is_of in TOGETHER.items()
    }
    return _by_runs("Which dial for how many runs", title, y, "{:.0%}".format, found)


def costs_picture(rows: Sequence[Row]) -> str:
    """What always taking one dial costs over the cheapest one of each program, by the number of
    runs: a geometric mean over the programs that have it, with 95 % intervals."""
    times = times_of(rows)
    found = {
        name: [cost_over(times, runs, is_of) for runs in TOLD] for name, is_of in TOGETHER.items()
    }
    y = Scale(1.0, DEAREST, TOP + PLOT, TOP, True)
    title = "cost over the cheapest, mean"
    return _by_runs("What one dial for all costs", title, y, "{:g}".format, found)


def travel_picture(rows: Sequence[Row]) -> str:
    """What plans lose at another size than the one that they were tuned at, by how far it is."""
    told = losses(rows)
    factors = sorted({one.factor for one in told if one.what != UNTUNED})
    (still,) = (one.mean for one in told if one.what == UNTUNED)
    found = {
        WHAT[what]: [one.mean for one in told if one.what == what] for what in (WHOLE, PARTITION)
    } | {WHAT[UNTUNED]: [still] * len(factors)}
    ends = [high for each in found.values() for _, _, high in each]
    y = Scale(0.9, max([2.0, *ends]), TOP + PLOT, TOP, True)
    title = "time over the size's own plan's, mean"
    picture = Curves("What is lost when plans travel", title, "times as large or small", factors)
    return _curves(picture, y, "{:g}".format, "{:g}".format, found)


# Mean and interval for each place along a curve.
Means = Sequence[Ratio]


@dataclass(frozen=True, slots=True)
class Curves:
    """A picture of curves over the same places: its name, what is read upwards, what along."""

    name: str
    title: str
    below: str
    places: Sequence[float]


def _by_runs(
    name: str, title: str, y: Scale, text: Callable[[float], str], found: Mapping[str, Means]
) -> str:
    return _curves(Curves(name, title, "runs", list(map(float, TOLD))), y, _power, text, found)


def _curves(
    picture: Curves, y: Scale, x_text: Callable[[float], str], y_text: Callable[[float], str],
    found: Mapping[str, Means],
) -> str:  # fmt: skip
    places = picture.places
    x = Scale(places[0], places[-1], LEFT, WIDTH - RIGHT, True)
    parts = [frame(x, y, picture.below, picture.title, x_text, y_text)]
    for series, each in enumerate(found.values()):
        shown = [tuple(min(y.high, max(y.low, value)) for value in one) for one in each]
        points = list(zip(map(x, places), shown, strict=True))
        parts.append(path([(at, y(one[0])) for at, one in points], class_=f"af-line af-l{series}"))
        aside, class_ = 3 * (series - 2.5), f"af-line af-thin af-l{series}"
        parts += [
            path([(at + aside, y(low)), (at + aside, y(high))], class_=class_)
            for at, (_, low, high) in points
            if low < high
        ]
    parts.append(legend([("—", series, each) for series, each in enumerate(found)]))
    return drawing(WIDTH, height(len(found)), picture.name, picture.title, *parts)


def _power(runs: float) -> str:
    return f"10^{round(math.log10(runs))}"


def _cumulative(ratios: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Each ratio with the share of all that are no greater, up to the edge of the picture."""
    yield 1.0, 0.0
    for k, ratio in enumerate(ratios, 1):
        if ratio <= FARTHEST:
            yield ratio, k / len(ratios)
    yield FARTHEST, sum(ratio <= FARTHEST for ratio in ratios) / len(ratios)


def price_picture(rows: Sequence[Row], planner: str) -> str:
    """Each rule that changes a plan: time with it over time without it, and its interval."""
    found = [price for price in prices(rows, planner) if price.changed]
    told = {price.rule: [(price.ratio, price.low, price.high)] for price in found}
    title = f"{planner}: time with a rule over without it"
    return _intervals(f"Prices of the rules of {planner}", title, told, 0.9, 1.1, ())


def split_picture(rows: Sequence[Row], state: str) -> str:
    """What partition and launches give of each rule set's distance from the searched plan."""
    told = {each.planner: [each.partition, each.launches] for each in splits(rows, state)}
    title = f"times as fast, caches {state}"
    parts = ("the partition", "the launches")
    return _intervals("Whose speed-up it is", title, told, 1.0, 1.5, parts)


def _intervals(
    name: str, title: str, told: Mapping[str, Sequence[Ratio]], least: float, most: float,
    series: Sequence[str],
) -> str:  # fmt: skip
    """Ratios and their intervals in a row for each name, those of a row by `series`."""
    ends = [end for ratios in told.values() for _, *both in ratios for end in both]
    x = Scale(min([least, *ends]), max([most, *ends]), _NAMES, WIDTH - 2 * RIGHT, True)
    bottom = TOP + ROW * len(told)
    parts = [path([(x(1.0), TOP), (x(1.0), bottom)], class_="af-rule")]
    for k, (each, ratios) in enumerate(told.items()):
        middle = TOP + ROW * (k + 0.5)
        parts.append(label(_NAMES - 10, middle + 4, each, text_anchor="end"))
        first = middle - _BESIDE * (len(ratios) - 1) / 2
        parts += [_interval(one, x, first + _BESIDE * n, n) for n, one in enumerate(ratios)]
    parts += [
        label(x(value), bottom + 16, f"{value:.2f}", class_=_SMALL, text_anchor="middle")
        for value in sorted({x.low, 1.0, x.high})
    ]  # fmt: skip
    parts.append(label(4.0, 15.0, title, class_="af-muted"))
    parts.append(legend([("●", n, each) for n, each in enumerate(series)], bottom + 44))
    high = bottom + 26 + (ROW * (len(series) + 0.5) if series else 0.0)
    return drawing(WIDTH, high, name, title, *parts)


def _interval(ratio: Ratio, x: Scale, y: float, series: int) -> str:
    middle, low, high = ratio
    line = path([(x(low), y), (x(high), y)], class_=f"af-line af-l{series}")
    return line + tag("circle", cx=x(middle), cy=y, r=4.0, class_=f"af-f{series}")
