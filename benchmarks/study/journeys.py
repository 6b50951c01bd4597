"""Experiment E as figures: what is lost when a plan is moved, by how far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autofuse.tuning.plans import UNTUNED
from benchmarks.kept import Row
from benchmarks.study.summary import Ratio, geometric_mean, interval_text, opening
from benchmarks.study.travel import PARTITION, WHOLE

WHAT = {WHOLE: "the plan with its launches", PARTITION: "its partition", UNTUNED: "nothing"}


@dataclass(frozen=True, slots=True)
class Loss:
    """Of plans moved to a size that is `factor` times theirs or its inverse (1: nothing moves): the
    time over that of the plan tuned at the size. `pairs` of sizes, of which `none` had a plan that
    is none at the other size; a geometric mean with a 95 % interval from programs drawn again, and
    the worst, by program."""

    what: str
    factor: float
    pairs: int
    none: int
    mean: Ratio
    worst: tuple[float, str]


def losses(rows: Sequence[Row]) -> list[Loss]:
    """By what is moved and how far."""
    found: list[Loss] = []
    for what in WHAT:
        told = [(row["program"], *one) for row in rows for one in _moves(row, what)]
        for factor in sorted({factor for _, factor, _ in told}):
            those = [(name, ratio) for name, by, ratio in told if by == factor]
            found.append(_loss(what, factor, those))
    return found


def _loss(what: str, factor: float, told: Sequence[tuple[str, float | None]]) -> Loss:
    known = [(ratio, name) for name, ratio in told if ratio is not None]
    by_program: dict[str, list[float]] = {}
    for ratio, name in known:
        by_program.setdefault(name, []).append(float(np.log(ratio)))
    # Pairs of one program are alike: the programs are what is drawn again.
    means = np.array([np.mean(each) for each in by_program.values()])
    worst = max(known, default=(1.0, ""))
    return Loss(what, factor, len(told), len(told) - len(known), geometric_mean(means), worst)


def _moves(row: Row, what: str) -> Iterator[tuple[float, float | None]]:
    """How far, and the time over that of the size's own plan; None where there is no plan."""
    for size, us in row["us"].items():
        if what == UNTUNED:
            yield 1.0, us[UNTUNED] / us["own"]
            continue
        for other, time in us[what].items():
            near, far = sorted((int(size), int(other)))
            yield far / near, None if time is None else time / us["own"]


HEAD = (
    "| moved | times as large or small | pairs | no plan there | time over the own plan's | worst |"
)


def losses_text(data: Mapping[str, Any]) -> str:
    """The table of one run (`bench.study_travel`), in Markdown."""
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    rows = [row for row in data["rows"].values() if "error" not in row]
    yield from opening(
        data,
        f"{len(rows)} programs, {data['cpu']}, {data['threads']} threads; each size tuned for "
        f"{data['seconds']:g} s.",
    )
    yield from ("", HEAD, "|---" * 6 + "|")
    for one in losses(rows):
        far = "any" if one.what == UNTUNED else f"{one.factor:g}"
        yield (
            f"| {WHAT[one.what]} | {far} | {one.pairs} | {one.none} "
            f"| {interval_text(one.mean)} | {one.worst[1]} {one.worst[0]:.2f} |"
        )
