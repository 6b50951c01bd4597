"""Products, convolutions and attention against the libraries for them, one contraction a case."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.backends.aligned import aligned_copy
from autofuse.backends.cpu.onednn import PACKAGE
from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.devices import timed_device
from autofuse.graph.reference import random_inputs
from autofuse.graph.types import Graph
from autofuse.limits import usable_cores
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.peers.systems import limit_threads
from autofuse.peers.types import Arrays, BenchError, BenchWorkload, PeerOutcome, Ready
from autofuse.simplify import normal_form
from autofuse.tuning.cache_state import cache_state
from benchmarks.contraction_cases import KINDS, Case, cases
from benchmarks.contraction_graphs import graph_of
from benchmarks.contraction_peers import OURS, Libraries, Ours, columns_of, libraries
from benchmarks.contraction_table import case_line, summary, text_table
from benchmarks.run import checked, timed, write_json
from benchmarks.seats import caller_apart

# Largest error over the root mean square of what is wanted: a float32 sum of 8192 products has
# 1e-5 of it at most, a wrong term of so many 1e-2.
TOLERANCE = 1e-3
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Options:
    """`budget_s` of tuning each case (0: the best plan known), `rounds` of samples in turns, `seed`
    of products and of all values, `count` cases of each kind (None: all); with `only_check`
    nothing is timed."""

    seed: int
    kinds: Sequence[str] = KINDS
    count: int | None = None
    budget_s: float = 20.0
    rounds: int = 15
    only_check: bool = False
    db: str | None = None


def bench_contractions(
    options: Options, output: Path | None = None, say: Say = lambda _: None
) -> dict[str, Any]:
    """Compare, and return what `output` holds, with the page as `table`.

    `output` is rewritten after every case. Raises BenchError for what cannot be asked, and where
    there is no row at all."""
    if options.rounds < 1 or not options.budget_s >= 0:
        raise BenchError("there must be a round, and the budget must not be negative")
    chosen = cases(options.kinds, options.seed, options.count)
    threads = usable_cores()
    limit_threads(threads)
    found, missing = libraries(threads)
    facts = _facts(options, threads, found)
    rows: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    _write(output, _data(rows, facts, missing))  # what cannot be written is known before any tuning
    for number, case in enumerate(chosen, 1):
        try:
            graph = graph_of(case)
        except BenchError as error:
            refused[case.kind] = str(error)
            continue
        rows.append(row_of(case, graph, options, found))
        say(f"{number}/{len(chosen)} {case_line(rows[-1])}")
        _write(output, _data(rows, facts, missing | refused))
    if not rows:
        raise BenchError("; ".join(refused.values()))
    data = _data(rows, facts, missing | refused)
    _write(output, data)
    return {**data, "table": text_table(rows, data["missing"])}


def _data(
    rows: Sequence[dict[str, Any]], facts: Mapping[str, Any], missing: Mapping[str, str]
) -> dict[str, Any]:
    return {"rows": rows, "summary": summary(rows), **facts, "missing": missing}


def _write(output: Path | None, data: Mapping[str, Any]) -> None:
    if output is not None:
        write_json(output, data)


def row_of(case: Case, graph: Graph, options: Options, found: Libraries) -> dict[str, Any]:
    """One case: everyone checked in every element, then timed in turns in the state of the cache
    that plans of it are tuned for."""
    drawn = random_inputs(graph, options.seed)
    inputs = tuple(aligned_copy(a, t) for a, t in zip(drawn, graph.input_types, strict=True))
    workload = BenchWorkload(case.name, graph, inputs)
    columns = columns_of(case, Ours(options.budget_s, options.db), found)
    cells, ready = checked(workload, columns, judge=every_element)
    state = cache_state("auto", normal_form(graph), timed_device("cpu"))
    if not options.only_check:
        cells = _timed(cells, ready, state, options)
    return as_row(case, state, cells)


def _timed(
    cells: Mapping[str, PeerOutcome], ready: Mapping[str, Ready], state: str, options: Options
) -> dict[str, PeerOutcome]:
    overwrite = overwriter(last_level_cache_bytes()) if state == "cold" else _leave
    calls = {name: made.call for name, made in ready.items()}
    with measurement_lock(HOST.unit), caller_apart():
        counts = (options.rounds, options.rounds)
        samples = take_turns(calls, overwrite, 0.0, options.seed, counts)
    return {name: timed(cell, samples.get(name, ())) for name, cell in cells.items()}


def _leave() -> None:
    """The caches as they are."""


def every_element(found: Arrays, wanted: Sequence[np.ndarray], random: bool) -> float:
    """The largest |found - wanted| / rms(wanted); raises BenchError for one above TOLERANCE."""
    (array,), (exact,) = found, wanted
    if array.shape != exact.shape:
        raise BenchError(f"gives shape {list(array.shape)} instead of {list(exact.shape)}")
    error = float(np.max(np.abs(array - exact)) / np.sqrt(np.mean(np.square(exact))))
    if not error <= TOLERANCE:
        raise BenchError(f"is wrong: an element is off by {error:.3g} of the root mean square")
    return error


def as_row(case: Case, state: str, cells: Mapping[str, PeerOutcome]) -> dict[str, Any]:
    """Plain data. Times are medians in microseconds with their quartiles in `spread_us`; whoever
    has none is not among the peers, and in `failed` if it should have one."""
    times = {n: c.time_us for n, c in cells.items() if c.time_us is not None}
    plans = {f"{n}_us": times.get(n) for n in cells if n.startswith(OURS)}
    return {
        "kind": case.kind,
        "case": case.name,
        "shape": asdict(case),
        "flops": case.flops,
        "cache": state,
        **plans,
        "peer_us": {n: us for n, us in times.items() if not n.startswith(OURS)},
        "spread_us": {n: [cells[n].q1_us, cells[n].q3_us] for n in times},
        "samples": max((c.samples for c in cells.values()), default=0),
        "max_error": {n: c.max_rel_error for n, c in cells.items() if not c.error},
        "notes": {n: c.note for n, c in cells.items() if c.note},
        "tune_s": {n: c.tune_s for n, c in cells.items() if c.tune_s},
        "failed": {n: c.error for n, c in cells.items() if c.error},
    }


def _facts(options: Options, threads: int, found: Libraries) -> dict[str, Any]:
    """What must be known to read the figures."""
    packages = ("numpy", "scipy", "torch", PACKAGE)
    versions = {"python": platform.python_version()}
    versions |= {p: _version(p) for p in packages}
    return {
        "cpu": cpu_model(),
        "threads": threads,
        "load_before": os.getloadavg()[0],
        "options": {name: value for name, value in asdict(options).items() if name != "db"},
        "onednn": None if found.onednn is None else found.onednn.version,
        "versions": versions,
        "how": "medians of calls from Python on arrays bound beforehand, taken in turns, "
        "the caller on a core of its own",
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
