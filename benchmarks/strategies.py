"""Strategies against each other on whole workloads: same budget, fresh databases and caches.

Each tuning runs as its own process with a database and a cache of compiled kernels of its own, so
that none profits from what another has compiled. Their best plans are then timed interleaved.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.devices import device_named
from autofuse.graph.types import Graph
from autofuse.measure.timing.compare import Blocks, verdict
from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate
from autofuse.simplify import normal_form
from autofuse.sources import load_source
from autofuse.tuning.in_turns import timed_in_turns
from autofuse.tuning.plans import best_plan
from autofuse.tuning.together import Interleaving

RUNS = (100, 1_000_000)
BLOCKS, ROUNDS = 5, 12
# Wall seconds of timing plans together, and of one alone.
LIMIT_S = 300.0


@dataclass(frozen=True)
class Tuned:
    """One tuning process: what `tune --format json` printed, and the best plan it left behind."""

    result: dict[str, Any]
    best: Candidate


@dataclass(frozen=True)
class StrategyRow:
    """Two strategies on one workload. `ratio`, `low`, `high`: time of the second's plan over that
    of the first's, interleaved, with a 95 % interval; `slower_than`: baselines that the first's
    plan lost to in its own final comparison."""

    workload: str
    first: str
    second: str
    first_us: float
    second_us: float
    ratio: float
    low: float
    high: float
    outcome: str
    gap: float | None
    seconds: tuple[float, float]
    slower_than: tuple[str, ...]


@dataclass(frozen=True)
class RunsRow:
    """Seconds that tuning took by itself for each number of runs, and its plan's microseconds."""

    workload: str
    seconds: dict[int, float]
    best_us: dict[int, float]


def tuned(source: str, graph: Graph, budget_s: float, arguments: Sequence[str]) -> Tuned:
    """Tune in a process of its own; raises BenchError with what it said if it fails."""
    with TemporaryDirectory() as folder:
        db = str(Path(folder) / "tuning.db")
        command = [
            sys.executable, "-m", "autofuse", "tune", source, "--device", "cpu", "--db", db,
            "--budget", str(budget_s), "--format", "json", *arguments,
        ]  # fmt: skip
        root = str(Path(__file__).resolve().parent.parent.parent)
        env = os.environ | {"XDG_CACHE_HOME": folder, "PYTHONPATH": root}
        ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if ended.returncode != 0:
            raise BenchError(f"tuning {source} failed: {ended.stderr.strip()[-300:]}")
        known = best_plan(graph, device="cpu", db=db)
    if known is None:
        raise BenchError(f"tuning {source} left no plan")
    return Tuned(json.loads(ended.stdout), known.candidate)


def compare_strategies(
    source: str, budget_s: float, first: str = "exact", second: str = "optuna"
) -> StrategyRow:
    """Tune with both, then time both plans together."""
    graph = normal_form(load_source(source)[1])
    one, other = (tuned(source, graph, budget_s, ["--strategy", s]) for s in (first, second))
    times = _together(graph, {first: one.best, second: other.best})
    judged = verdict(second, times[second], times[first])
    losses = (n for n, v in one.result["speedup_over"].items() if v["outcome"] == "slower")
    return StrategyRow(
        source, first, second, _middle(times[first]), _middle(times[second]),
        judged.ratio, judged.low, judged.high, judged.outcome, one.result["search_gap"],
        (one.result["spent_s"]["total"], other.result["spent_s"]["total"]), tuple(losses),
    )  # fmt: skip


def _together(graph: Graph, plans: dict[str, Candidate]) -> dict[str, Blocks]:
    """Samples of each plan by block; equal plans share theirs."""
    different = {c.digest: c for c in plans.values()}
    how = Interleaving(BLOCKS, ROUNDS, limit_s=LIMIT_S, single_limit_s=LIMIT_S)
    found = timed_in_turns(graph, device_named("cpu"), different, how)
    if len(found.samples) < len(different):
        raise BenchError("a tuned plan does not run any more")
    return {name: found.samples[c.digest] for name, c in plans.items()}


def _middle(blocks: Blocks) -> float:
    ranked = sorted(us for block in blocks for us in block)
    return ranked[len(ranked) // 2]


def compare_runs(source: str, budget_s: float, runs: Sequence[int] = RUNS) -> RunsRow:
    """Tune once for each number of runs."""
    graph = normal_form(load_source(source)[1])
    each = {n: tuned(source, graph, budget_s, ["--runs", str(n)]).result for n in runs}
    return RunsRow(
        source,
        {n: r["spent_s"]["total"] for n, r in each.items()},
        {n: r["best"]["time_us"] for n, r in each.items()},
    )


def bench_strategies(
    sources: Iterable[str], budget_s: float, parts: Sequence[str],
    say: Callable[[str], None] = lambda text: None,
) -> tuple[list[StrategyRow], list[RunsRow]]:  # fmt: skip
    """`parts`: "strategies", "runs" or both. Raises BenchError."""
    strategies: list[StrategyRow] = []
    runs: list[RunsRow] = []
    for source in sources:
        if "strategies" in parts:
            strategies.append(compare_strategies(source, budget_s))
            say(str(strategies[-1]))
        if "runs" in parts:
            runs.append(compare_runs(source, budget_s))
            say(str(runs[-1]))
    return strategies, runs
