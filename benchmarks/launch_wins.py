"""How often a setting that is not the default was the best of a kernel, and by how much: what a
launch parameter is worth, counted over the kernels that tuning databases have.

For each kernel on each device, a parameter's settings other than the default of its row are held
against that default, which is not always what a launch space offers first: the least time of the
launches with the one over that with the other. Where only one of the two was tried, nothing is
counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from autofuse.plan.parameters import LAUNCH_TABLES, LaunchTable
from autofuse.plan.types import LaunchConfig
from autofuse.tuning.search.launches import launch_of
from tuning_db import Store, lines, transfer

# A setting is no better than its default by less than this, as times go.
CLEARLY = 1.02


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Microseconds of a kernel (`kernel` names it and its device) under a launch configuration."""

    kernel: tuple[str, str]
    launch: LaunchConfig
    us: float


@dataclass(frozen=True, slots=True)
class Wins:
    """Of `tried` kernels of which both were, a setting other than the default was clearly better in
    `won`: `gain` is the geometric mean of its speed-ups there, `most` the largest."""

    parameter: str
    tried: int
    won: int
    gain: float
    most: float


def kernel_times(db: str) -> Iterator[KernelTime]:
    """The kernels of a tuning database that were timed. Raises DatabaseError."""
    with Store.open(db) as store:
        texts = list(transfer.export_lines(store))
    schema = lines.read_header(texts[0]).schema
    for text in texts[1:]:
        line = lines.read_line(text, schema)
        if isinstance(line, lines.KernelLine) and (timing := line.kernel.timing) is not None:
            kernel = line.environment, line.kernel.group
            yield KernelTime(kernel, launch_of(line.kernel.launch), timing.median_us)


def wins(times: Iterable[KernelTime], dialect: str = "c") -> list[Wins]:
    """Of every parameter of a dialect that has both in some kernel, those that win most often
    first."""
    table = LAUNCH_TABLES[dialect]
    kernels: dict[tuple[str, str], list[KernelTime]] = {}
    for one in times:
        kernels.setdefault(one.kernel, []).append(one)
    gains: dict[str, list[float]] = {}
    for own in kernels.values():
        for parameter, gain in _gains(own, table).items():
            gains.setdefault(parameter, []).append(gain)
    found = [_row(parameter, of) for parameter, of in gains.items()]
    return sorted(found, key=lambda row: (-row.won / row.tried, row.parameter))


def _gains(times: list[KernelTime], table: LaunchTable) -> Mapping[str, float]:
    """The least time with a parameter's default over that with another setting."""
    changed = [_changed(one.launch, table) for one in times]
    found: dict[str, float] = {}
    for parameter in set().union(*changed):
        own = [t.us for t, names in zip(times, changed, strict=True) if parameter in names]
        plain = [t.us for t, names in zip(times, changed, strict=True) if parameter not in names]
        if plain:
            found[parameter] = min(plain) / min(own)
    return found


def _changed(launch: LaunchConfig, table: LaunchTable) -> set[str]:
    """The parameters that a configuration sets to something else than their default."""
    known = ((name, setting) for name, setting in launch.settings if name in table)
    return {name for name, setting in known if setting != table[name].default}


def _row(parameter: str, gains: list[float]) -> Wins:
    won = [gain for gain in gains if gain >= CLEARLY]
    mean = math.exp(sum(map(math.log, won)) / len(won)) if won else 1.0
    return Wins(parameter, len(gains), len(won), mean, max(gains))


def page(rows: Iterable[Wins]) -> str:
    """The rows as a Markdown table."""
    head = "| parameter | kernels | won | geometric mean where it won | at most |"
    body = [
        f"| {r.parameter} | {r.tried} | {r.won} ({r.won / r.tried:.0%}) "
        f"| {r.gain:.2f} | {r.most:.2f} |"
        for r in rows
    ]
    return "\n".join([head, "|---|---|---|---|---|", *body])
