"""What it costs that kernels keep arithmetic as it is written: zoo workloads tuned in both ways,
and both plans timed in turns."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
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
    again."""
    found: dict[str, Any] = {"cpu": cpu_model(), "threads": usable_cores(), "rows": {}}
    if output is not None and output.exists():
        found["rows"] = json.loads(output.read_text(encoding="utf-8"))["rows"]
    with TemporaryDirectory() as folder:
        for name in names:
            if name in found["rows"]:
                continue
            try:
                row = math_row(name, size, seconds, timing_s, str(Path(folder) / "t.db"))
            except AutofuseError as error:
                row = {"error": str(error)}
            found["rows"][name] = row
            say(f"{name}: {row.get('default_over_relaxed', row.get('error'))}")
            ratios = [r["default_over_relaxed"] for r in found["rows"].values() if "us" in r]
            if ratios:
                found["geometric_mean"] = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
            if output is not None:
                output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found
