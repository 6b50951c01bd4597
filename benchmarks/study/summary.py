"""What each rule costs, over all programs that were timed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.baselines.switches import SWITCHABLE, only, without
from benchmarks.kept import Row

RESAMPLES, CONFIDENCE, SEED = 4000, 0.95, 20240607
# A change of less is a tie.
TIE = 0.02


@dataclass(frozen=True, slots=True)
class Price:
    """Of one rule: its plan's time over that of the plan it was taken out of or put into.

    `ratio` is a geometric mean over all programs, with a 95 % interval from programs drawn again;
    above 1 the plan is faster without the rule. `changed` counts programs whose plan is another
    one, `dearer` and `cheaper` those whose whole interval lies more than 2 % above and below 1;
    `most` and `least` are the farthest of them, by program. `failed` plans did not run."""

    rule: str
    programs: int
    changed: int
    dearer: int
    cheaper: int
    ratio: float
    low: float
    high: float
    most: tuple[float, str]
    least: tuple[float, str]
    failed: int


def prices(rows: Sequence[Row], planner: str) -> list[Price]:
    """Each rule of a planner: its plan over the plan without it, the dearest first."""
    found = [
        _price(rows, planner, rule, "whole", without(planner, rule))
        for rule in SWITCHABLE[planner].rules
    ]
    return sorted(found, key=lambda price: -price.ratio)


def alone(rows: Sequence[Row], planner: str) -> list[Price]:
    """Each rule alone: the plan with no rule but it over the plan with none, the dearest first."""
    found = [
        _price(rows, planner, rule, "bare", only(planner, rule), up=True)
        for rule in SWITCHABLE[planner].rules
    ]
    return sorted(found, key=lambda price: -price.ratio)


def all_rules(rows: Sequence[Row], planner: str) -> Price:
    """All rules of a planner that can be off together: its plan over that without any of them."""
    return _price(rows, planner, "all", "whole", only(planner))


def _price(
    rows: Sequence[Row], planner: str, rule: str, side: str, name: str, up: bool = False
) -> Price:
    told = dict(_ratios(rows, planner, side, name, up))
    known = {program: ratio for program, ratio in told.items() if ratio is not None}
    changed = {program: ratio for program, ratio in known.items() if ratio != _SAME}
    logs = np.log([ratio[0] for ratio in known.values()])
    ratio, low, high = geometric_mean(logs)
    ranked = sorted((ratio[0], program) for program, ratio in changed.items()) or [(1.0, "")]
    return Price(
        rule, len(known), len(changed),
        sum(low > 1 + TIE for _, low, _ in changed.values()),
        sum(high < 1 / (1 + TIE) for _, _, high in changed.values()),
        ratio, low, high,
        ranked[-1], ranked[0],
        len(told) - len(known),
    )  # fmt: skip


Ratio = tuple[float, float, float]
_SAME: Ratio = (1.0, 1.0, 1.0)


def _ratios(
    rows: Sequence[Row], planner: str, side: str, name: str, up: bool
) -> Iterator[tuple[str, Ratio | None]]:
    """Each program's ratio and its interval; None where a plan did not run. `up`: the plan called
    `name` over the other, not the other way round."""
    for row in rows:
        variants: Mapping[str, str] = row["variants"]
        base = row["planners"][planner]["plan"]
        if side == "bare":
            base = variants.get(only(planner), base)
        digest = variants.get(name, base)
        if digest == base:
            yield row["program"], _SAME if "us" in row["plans"][digest] else None
            continue
        found = row["over"][planner].get(side, {}).get(digest)
        if found is None:
            yield row["program"], None
            continue
        ratio, low, high = found
        yield row["program"], (1 / ratio, 1 / high, 1 / low) if up else (ratio, low, high)


def geometric_mean(logs: np.ndarray) -> Ratio:
    """The mean of ratios by their logarithms, and its interval where programs are drawn again."""
    if not len(logs):
        return _SAME
    low, high = np.exp(drawn_interval(logs))
    return float(np.exp(logs.mean())), float(low), float(high)


def opening(data: Mapping[str, Any], said: str) -> Iterator[str]:
    """What tables of a run begin with: what is said of it, its note, and what it left out."""
    yield said
    if data["note"]:
        yield f"The run: {data['note']}."
    for name, row in data["rows"].items():
        if "error" in row:
            yield f"Left out: `{name}`, {row['error']}."


def interval_text(ratio: Ratio, digits: int = 2) -> str:
    """A mean and its interval, as "1.04 (1.01 to 1.07)"."""
    mean, low, high = (f"{each:.{digits}f}" for each in ratio)
    return f"{mean} ({low} to {high})"


def drawn_interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of their mean where they are drawn again."""
    drawn = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(values[drawn].mean(axis=1), (tail, 100 - tail))
    return float(low), float(high)
