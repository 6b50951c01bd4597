"""Seconds to float64 references: NumPy alone and compiled, with noise runs and checks."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from autofuse.backends.machine import cpu_model
from autofuse.graph.reference import Runs, random_inputs
from autofuse.graph.types import Graph
from autofuse.measure.check.compare import WorkloadReference, reference_of
from autofuse.measure.truth.compiled import CompiledRuns
from autofuse.simplify import normal_form
from autofuse.zoo import ZOO, zoo_graph


def programs(names: Iterable[str]) -> Iterator[tuple[str, Graph]]:
    """Programs by name: those of the zoo, and `unseen:NAME` of `truth_programs`."""
    for name in names:
        if name.startswith("unseen:"):
            from benchmarks.truth_programs import PROGRAMS

            known = {make.__name__: make for make in PROGRAMS}
            yield name, known[name.removeprefix("unseen:")]()
        else:
            yield name, zoo_graph(name)


def every_name() -> list[str]:
    from benchmarks.truth_programs import PROGRAMS

    return [*(f"unseen:{make.__name__}" for make in PROGRAMS), *ZOO]


def compared(graph: Graph, numpy_too: bool) -> dict[str, object]:
    """Seconds of both references, and how far the compiled one is off."""
    inputs = random_inputs(graph, 0)
    began = time.perf_counter()
    runs = CompiledRuns(graph, inputs)
    made = time.perf_counter()
    compiled = reference_of(graph, inputs, evaluate=lambda *_: runs)
    after = time.perf_counter() - began
    row: dict[str, object] = {
        "compiled": runs.compiled, "compiling_s": round(made - began, 3),
        "after_s": round(after, 3), "notes": runs.notes,
    }  # fmt: skip
    if numpy_too:
        began = time.perf_counter()
        plain = reference_of(graph, inputs, evaluate=Runs)
        row |= {"before_s": round(time.perf_counter() - began, 3), "apart": apart(compiled, plain)}
    return row


def apart(a: WorkloadReference, b: WorkloadReference) -> float:
    """The largest difference of what is expected, of an element and the root mean square."""
    worst = 0.0
    for x, y in zip(a.outputs, b.outputs, strict=True):
        with np.errstate(all="ignore"):
            moved = np.abs(x.expected.astype(np.float64) - y.expected)
            size = np.abs(y.expected.astype(np.float64)) + y.rms
            worst = max(worst, float(np.nanmax(moved / np.maximum(size, 1e-300), initial=0.0)))
    return worst


def run(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench_truth", description=__doc__)
    parser.add_argument("names", nargs="*", help="programs (default: all)")
    parser.add_argument("--no-numpy", action="store_true", help="do not take NumPy's time")
    parser.add_argument("--output", type=Path, help="rows as JSON, each kept as it ends")
    given = parser.parse_args(arguments)
    rows: dict[str, dict[str, Any]] = {}
    print(f"{cpu_model()}; load {os.getloadavg()[0]:.1f}")
    for name, graph in programs(given.names or every_name()):
        row = compared(normal_form(graph), not given.no_numpy)
        rows[name] = row
        before = row.get("before_s", float("nan"))
        print(
            f"{name:26} before {before:8.2f} s  after {row['after_s']:7.2f} s  "
            f"(compiling {row['compiling_s']:5.2f})  load {os.getloadavg()[0]:4.1f}  "
            f"apart {row.get('apart', float('nan')):.1e} {row['notes'] or ''}",
            flush=True,
        )
        if given.output:
            given.output.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if not given.no_numpy and rows:
        print(_in_all([(r["before_s"], r["after_s"]) for r in rows.values()]))
    return 0


def _in_all(pairs: list[tuple[float, float]]) -> str:
    before, after = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    ratio = median(a / max(b, 1e-3) for a, b in pairs)
    return f"in all: before {before:.1f} s, after {after:.1f} s; median ratio {ratio:.2f}"
