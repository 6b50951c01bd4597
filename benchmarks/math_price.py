"""What it costs that kernels keep arithmetic as it is written: zoo workloads tuned in both ways,
and both plans timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean, median
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.devices import timed_device
from autofuse.graph.reference import random_inputs
from autofuse.limits import usable_cores
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.ops.types import AutofuseError
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.plan.arithmetic import MATHS
from autofuse.simplify import normal_form
from autofuse.tuning import compile as compile_graph
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from autofuse.zoo import zoo_graph
from benchmarks.kept import kept_table
from benchmarks.run import write_json

Row = dict[str, Any]


def math_row(name: str, size: str, seconds: float, timing_s: float, db: str) -> Row:
    """Microseconds of both plans, and the time of the default over that of the relaxed one. Raises
    AutofuseError where a plan is not found."""
    graph = zoo_graph(name, size)
    inputs, calls = random_inputs(graph, 0), {}
    for math_ in MATHS:
        tune(graph, device="cpu", db=db, budget_s=seconds, math=math_)
        plan = compile_graph(graph, device="cpu", db=db, math=math_)
        calls[math_] = lambda plan=plan: plan(*inputs)
    cold = cache_state("auto", normal_form(graph), timed_device("cpu")) == "cold"
    with measurement_lock(HOST.unit):
        overwrite = overwriter(last_level_cache_bytes() if cold else 0)
        samples = take_turns(calls, overwrite, timing_s)
    us = {each: median(taken) for each, taken in samples.items()}
    default, relaxed = (us[each] for each in MATHS)
    return {"us": us, "default_over_relaxed": default / relaxed}


def bench_math(
    names: Iterable[str],
    size: str,
    seconds: float,
    timing_s: float,
    output: Path | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Rows by workload, and the geometric mean of their ratios; what `output` has is not done
    again. Raises BenchError for an output of something else, or of other sizes and seconds."""
    facts = {"cpu": cpu_model(), "threads": usable_cores(), "size": size, "seconds": seconds}
    rows: dict[str, Row] = kept_table(output, facts, "bench_math").get("rows", {})
    with TemporaryDirectory() as folder:
        for name in names:
            if "us" in rows.get(name, {}):  # what failed is tried again
                continue
            try:
                rows[name] = math_row(name, size, seconds, timing_s, str(Path(folder) / "t.db"))
            except AutofuseError as error:
                rows[name] = {"error": str(error)}
            say(f"{name}: {rows[name].get('default_over_relaxed', rows[name].get('error'))}")
            if output is not None:
                write_json(output, _data(facts, rows))
    return _data(facts, rows)


def _data(facts: dict[str, Any], rows: dict[str, Row]) -> dict[str, Any]:
    ratios = [row["default_over_relaxed"] for row in rows.values() if "us" in row]
    return {**facts, "geometric_mean": geometric_mean(ratios) if ratios else None, "rows": rows}
