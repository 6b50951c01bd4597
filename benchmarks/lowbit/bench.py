"""Times of products by narrow weights, of all systems in turns, from cold caches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from autofuse.backends.machine import cpu_model
from autofuse.frontends import array_api as xp
from autofuse.frontends.array_api.tracer import spec, trace
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.serving.compiling import compile as compile_graph
from benchmarks.kept import Row, filled, kept_table
from benchmarks.lowbit.cases import Case
from benchmarks.lowbit.systems import TUNED, UNTUNED, Call, NotHereError, system_of

# Bytes that are written between two calls: more than the last level of cache.
COLD_BYTES = 96 << 20
# The largest error, in parts of the largest element, of sums in f32 and of rows in bf16.
RIGHT, COARSE = 1e-4, 3e-2
# What rows of one table have in common.
SAME = ("cpu", "budget_s")
OURS = (UNTUNED, TUNED)


@dataclass(frozen=True, slots=True)
class LowbitOptions:
    """Seconds of tuning a case, and of taking turns; which systems; the database of a run."""

    budget_s: float
    timing_s: float
    systems: tuple[str, ...]
    db: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class LowbitRow:
    """What a case gave: microseconds by system (median, quartiles), errors against f64, why others
    are missing, bytes of weights."""

    model: str
    rows: int
    format: str
    nbytes: int
    us: dict[str, tuple[float, float, float]]
    errors: dict[str, float]
    missing: dict[str, str]
    first_s: dict[str, float]


def row_of(case: Case, options: LowbitOptions) -> LowbitRow:
    """Make every system, check it, and time those that are right in turns."""
    calls: dict[str, Call] = {}
    errors: dict[str, float] = {}
    missing: dict[str, str] = {}
    first_s: dict[str, float] = {}
    wanted = case.wanted()
    for name in options.systems:
        begun = time.perf_counter()
        try:
            call = system_of(name, case, options.db, options.budget_s)
        except NotHereError as error:
            missing[name] = str(error)
            continue
        found = call()
        first_s[name] = time.perf_counter() - begun
        errors[name] = float(np.abs(found - wanted).max() / np.abs(wanted).max())
        if errors[name] <= (RIGHT if name in OURS else COARSE):
            calls[name] = call
        else:
            missing[name] = f"wrong by {errors[name]:.1e}"
    taken = take_turns(calls, overwriter(COLD_BYTES), options.timing_s)
    us = {name: _quartiles(samples) for name, samples in taken.items()}
    return LowbitRow(case.model, case.rows, case.format.name, case.nbytes, us, errors,
                     missing, first_s)  # fmt: skip


def _quartiles(samples: list[float]) -> tuple[float, float, float]:
    low, high = np.quantile(samples, (0.25, 0.75))
    return median(samples), float(low), float(high)


def read_gbytes_per_s(db: str, timing_s: float = 3.0) -> float:
    """How fast our own sum reads an array from memory, by all threads, from cold caches."""
    count = 1 << 24
    plan = compile_graph(trace(lambda x: xp.sum(x), spec((count,))), device="cpu", db=db)
    array = np.ones(count, np.float32)
    taken = take_turns({"sum": lambda: plan(array)}, overwriter(COLD_BYTES), timing_s)
    return array.nbytes / median(taken["sum"]) / 1e3


def bench_lowbit(
    cases: Iterable[Case], options: LowbitOptions, output: Path | None, tell: Callable[[str], None]
) -> dict[str, Any]:
    """All cases; rows that `output` has are not taken again."""
    facts = {"cpu": cpu_model(), "budget_s": options.budget_s, "note": options.note}
    found = kept_table(output, {name: facts[name] for name in SAME}, "bench_lowbit")
    rows: dict[str, Row] = found.get("rows", {})
    speed = found.get("read_gbytes_per_s") or read_gbytes_per_s(options.db)
    wanted = ((case.name, partial(_row, case, options)) for case in cases)
    return filled(
        rows, wanted, lambda row: "us" in row,
        lambda: {**facts, "read_gbytes_per_s": speed, "rows": rows}, output,
        lambda name, row: tell(line_of(name, row)),
    )  # fmt: skip


def _row(case: Case, options: LowbitOptions) -> Row:
    return asdict(row_of(case, options))


def line_of(name: str, row: Row) -> str:
    """A row as text."""
    times = "  ".join(f"{system} {us[0]:.0f}" for system, us in row["us"].items())
    best = min((us[0] for n, us in row["us"].items() if n in OURS), default=math.inf)
    return f"{name:40} {times}  ({row['nbytes'] / best / 1e3:.1f} GB/s)"


def summary(found: dict[str, Any]) -> list[str]:
    """By rows: the best peer's time over ours, and the share of the speed of reading memory."""
    speed, rows = float(found["read_gbytes_per_s"]), list(found["rows"].values())
    lines = [f"reading memory: {speed:.1f} GB/s"]
    for count in sorted({row["rows"] for row in rows}):
        some = [row for row in rows if row["rows"] == count]
        lines += [text for ours in OURS if (text := _figures(some, ours, speed))]
    return lines


def _figures(rows: list[Row], ours: str, speed: float) -> str:
    """Of rows of one height, where something is told of them."""
    timed = [row for row in rows if ours in row["us"]]
    peers = [[us[0] for n, us in row["us"].items() if n not in OURS] for row in timed]
    ratios = [min(p) / row["us"][ours][0] for p, row in zip(peers, timed, strict=True) if p]
    shares = [row["nbytes"] / row["us"][ours][0] / 1e3 / speed for row in timed]
    if not ratios:
        return ""
    return (
        f"{rows[0]['rows']} rows, {ours}: best peer over ours {geometric_mean(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {len(ratios)} cases), weights at "
        f"{geometric_mean(shares):.2f} of reading memory"
    )
