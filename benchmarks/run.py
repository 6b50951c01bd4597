"""The comparison from end to end: prepare, check, time in turns, write as it goes."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.graph.reference import evaluate
from autofuse.limits import usable_cores
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.ops.types import AutofuseError
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.peers.systems import OURS, PEERS, implementations, limit_threads
from autofuse.peers.types import (
    Arrays,
    BenchError,
    BenchWorkload,
    Implementation,
    PeerOutcome,
    Ready,
)
from autofuse.peers.verify import check
from benchmarks import table
from benchmarks.workloads import bench_workload, chosen

Row = dict[str, PeerOutcome]
Say = Callable[[str], None]
# (found, wanted, whether only distributions are compared): the error, or BenchError
Judge = Callable[[Arrays, Sequence[np.ndarray], bool], float]
# Calls longer than this would leave the others no time to take turns.
SLOW_S = 2.0
SLOW_NOTE = "too slow to take turns: one call was timed"
RANDOM_NOTE = "draws its own random numbers: compared as distributions"


def bench_peers(
    workloads: Sequence[str] = (),
    *,
    seconds: float = 20.0,
    timing_s: float = 10.0,
    threads: int | None = None,
    tvm_trials: int = 64,
    size: str = "default",
    db: str | None = None,
    output: Path | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Compare on each of `workloads` (none: all) and return what `--output` holds.

    Ours is tuned for `seconds` per workload, TVM by `tvm_trials` trials; all are then timed for
    about `timing_s` seconds.
    `output` is rewritten after every workload. Raises BenchError for an unknown workload or
    thread count."""
    names = chosen(workloads)
    threads = threads or usable_cores()
    limit_threads(threads)
    columns, missing = implementations(threads, seconds, db, tvm_trials)
    overwrite = overwriter(last_level_cache_bytes())
    results: dict[str, Row] = {}
    facts = _facts(threads, seconds, size, missing)
    for name in names:
        say(f"{name} ...")
        try:
            workload = bench_workload(name, size)
        except AutofuseError as error:
            missing[name] = str(error)
            continue
        results[name] = compare(workload, columns, overwrite, timing_s, say)
        say(table.text_table({name: results[name]}, (*OURS, *PEERS), {}))
        if output is not None:
            write_json(output, table.as_data(results, facts))
    data = table.as_data(results, facts)
    if output is not None:
        write_json(output, data)
    return {**data, "table": table.text_table(results, (*OURS, *PEERS), missing)}


def compare(
    workload: BenchWorkload,
    columns: Sequence[Implementation],
    overwrite: Callable[[], Any],
    timing_s: float,
    say: Say = lambda _: None,
) -> Row:
    """One row: every implementation checked against the float64 reference, then timed."""
    row, ready = checked(workload, columns, say)
    with measurement_lock(HOST.unit):
        samples = take_turns({n: r.call for n, r in ready.items()}, overwrite, timing_s)
    return {name: timed(cell, samples.get(name, ())) for name, cell in row.items()}


def checked(
    workload: BenchWorkload,
    columns: Sequence[Implementation],
    say: Say = lambda _: None,
    judge: Judge = check,
) -> tuple[Row, dict[str, Ready]]:
    """Every implementation made and checked against the float64 reference by `judge`: a row without
    times, and those that are fit to take turns. What takes longer than SLOW_S is timed here."""
    wanted = evaluate(workload.graph, workload.inputs)
    ready: dict[str, Ready] = {}
    row: Row = {}
    for column in columns:
        say(f"  {column.name}")
        try:
            made = column.prepare(workload)
            own_numbers = workload.random and column.name in PEERS
            begun = time.perf_counter()
            results = made.call()
            took = time.perf_counter() - begun
            error = judge(made.fetch(results), wanted, own_numbers)
        except Exception as failed:  # a peer's compiler may raise anything; the row goes on
            row[column.name] = PeerOutcome(error=sentence(failed))
            continue
        slow = took > SLOW_S
        if not slow:
            ready[column.name] = made
        note = RANDOM_NOTE if own_numbers else SLOW_NOTE if slow else made.note
        row[column.name] = PeerOutcome(
            time_us=1e6 * took if slow else None,
            samples=int(slow),
            compile_s=made.compile_s,
            tune_s=made.tune_s,
            kernels=made.kernels,
            max_rel_error=error,
            note=note,
        )
    return row, ready


def timed(cell: PeerOutcome, samples: Sequence[float]) -> PeerOutcome:
    """`cell` with median and quartiles of its samples, in microseconds, if it has any."""
    if not samples:
        return cell
    q1, median, q3 = (float(q) for q in np.percentile(samples, (25, 50, 75)))
    return replace(cell, time_us=median, q1_us=q1, q3_us=q3, samples=len(samples))


def sentence(error: Exception) -> str:
    """The first line of what was raised, with its type when it is not ours."""
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return text if isinstance(error, BenchError) else f"{type(error).__name__}: {text}"[:300]


def _facts(threads: int, seconds: float, size: str, missing: Mapping[str, str]) -> dict[str, Any]:
    """What must be known to read the figures."""
    versions = {"python": platform.python_version()}
    for package in ("numpy", "jax", "torch", "apache-tvm"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "missing"
    return {
        "threads": threads,
        "cpu": cpu_model(),
        "tuning_budget_s": seconds,
        "size": size,
        "cache": "cold: overwritten before each sample, after a call that is not timed",
        "versions": versions,
        "missing": missing,
    }


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    """Replace the file at once: who is cut off leaves the one before, whole."""
    part = path.with_name(f".{path.name}.part-{os.getpid()}")
    part.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    os.replace(part, path)
