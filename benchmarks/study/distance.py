"""How far each planner's plans are from the best that is known, over programs of others.

The rows are those of `scripts/bench_unseen`: all rules and the plan that a search found, timed in
turns after the search.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.baselines import BASELINES
from autofuse.tuning.plans import BEST
from benchmarks.kept import Row
from benchmarks.study.summary import geometric_mean, interval_text

NEAR, FAR = 1.05, 2.0
HEAD = "| planner | programs | within 5 % | twice as slow or worse | mean | the farthest |"


@dataclass(frozen=True, slots=True)
class Distance:
    """Of one planner's plans from the fastest plan timed beside them, as a ratio of times: how many
    are within 5 % of it and how many take twice as long or longer, the geometric mean with a 95 %
    interval from programs drawn again, and the farthest, by program."""

    planner: str
    programs: int
    near: int
    far: int
    mean: float
    low: float
    high: float
    farthest: tuple[float, str]


def distances(rows: Sequence[Row]) -> list[Distance]:
    """Of all rules and of the search, the nearest first; programs without times are left out."""
    found = (_distance(rows, name) for name in (*BASELINES, BEST))
    return sorted(
        (one for one in found if one is not None), key=lambda one: (one.mean, one.planner)
    )


def _distance(rows: Sequence[Row], planner: str) -> Distance | None:
    ratios = sorted(ratios_of(rows, planner))
    if not ratios:
        return None
    values = np.array([ratio for ratio, _ in ratios])
    mean, low, high = geometric_mean(np.log(values))
    near, far = int((values <= NEAR).sum()), int((values >= FAR).sum())
    return Distance(planner, len(ratios), near, far, mean, low, high, ratios[-1])


def ratios_of(rows: Sequence[Row], planner: str) -> Iterator[tuple[float, str]]:
    """Of each program that has times: the planner's over the fastest, and its name."""
    for row in rows:
        us = row.get("rules_us", {})
        if planner in us:
            yield us[planner] / min(us.values()), row["program"]


def distances_text(data: Mapping[str, Any]) -> str:
    """The table of one run of `scripts/bench_unseen`, in Markdown."""
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    found = distances(list(data["rows"].values()))
    most = max(one.programs for one in found)
    yield f"{most} programs, {data['cpu']}, {data['threads']} threads."
    yield from ("", HEAD, "|---" * 6 + "|")
    for one in found:
        name = "the search, 20 s" if one.planner == BEST else one.planner
        ratio, program = one.farthest
        yield (
            f"| {name} | {one.programs} | {one.near} | {one.far} "
            f"| {interval_text((one.mean, one.low, one.high))} | {program} {ratio:.1f} |"
        )
