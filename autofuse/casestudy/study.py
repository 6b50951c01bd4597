"""The case study: what rules make of four ways to write one simulation, and what searching does.

The ablation steps compute one and the same roll-out. Three of them are given their random numbers,
which somebody has to draw: their time is that of drawing them and then rolling out, so that all
ablation steps do equal work; what each part takes alone is told too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.casestudy.columns import EXACT, NEEDS, PEERS, STRATEGIES, Column, ours, peer
from autofuse.casestudy.rungs import (
    DRAWING,
    NAIVE,
    POLICY,
    TRAINED,
    TRAINING,
    UNROLLED,
    Rung,
    ladder,
    steered,
    trained,
    weights,
)
from autofuse.casestudy.sizes import SIZES, sizes_swept
from autofuse.devices import timed_device
from autofuse.limits import usable_cores
from autofuse.measure.hardware import HOST
from autofuse.measure.worker.lock import measurement_lock
from autofuse.ops.types import AutofuseError
from autofuse.peers.interleave import overwriter, take_turns
from autofuse.peers.types import BenchError
from autofuse.peers.verify import check
from autofuse.tuning import tune
from autofuse.tuning.cache_state import cache_state
from autofuse.tuning.explain.explain import explain_plan
from autofuse.tuning.result import TuneResult

Say = Callable[[str], None]
N_ENVS, STEPS = 2048, 100
# Shares of the budget: searching, other compilers, timing, other numbers of environments.
SEARCHING, TIMING, SWEEPING = 0.38, 0.08, 0.25
LEAST_S = 1.0


@dataclass
class Study:
    """What is found on the way. `columns` by ablation step and column; `told` what is said of
    each."""

    rungs: dict[str, Rung]
    budget_s: float
    db: str | None
    say: Say
    begun: float = field(default_factory=time.perf_counter)
    columns: dict[str, dict[str, Column]] = field(default_factory=dict)
    told: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    found: dict[str, TuneResult] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        self.say(f"{time.perf_counter() - self.begun:.0f} s: {text}")

    def left_s(self, until: float) -> float:
        """Seconds left of the first `until` of the budget."""
        return until * self.budget_s - (time.perf_counter() - self.begun)


def casestudy(
    budget_s: float = 120.0,
    *,
    device: str = "cpu",
    target: str = "",
    db: str | None = None,
    n_envs: int = N_ENVS,
    steps: int = STEPS,
    sizes: tuple[int, ...] = SIZES,
    sizes_of_training: tuple[int, ...] = TRAINED,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """The whole study in about `budget_s` seconds: rules are measured first, and what a compiler
    of others takes is not cut short, so a small budget is exceeded.

    `steps` is a multiple of ten. Raises BenchError for a device but the CPU."""
    if timed_device(device, target).name != "cpu":
        raise BenchError("the case study runs on the CPU; scripts/bench_peers times GPUs")
    if not (math.isfinite(budget_s) and budget_s > 0):
        raise BenchError(f"the budget must be a positive number of seconds, not {budget_s:g}")
    say("drawing inputs and references")
    rungs = ladder(n_envs, steps) | {POLICY: steered(n_envs, steps)}
    rungs[TRAINING] = trained(sizes_of_training)
    study = Study(rungs, budget_s, db, say)
    _search(study)
    _prepare(study)
    timed = _time(study)
    plan = study.found[NAIVE].best, study.found[UNROLLED].best
    swept = sizes_swept(dict(zip((NAIVE, UNROLLED), plan, strict=True)), sizes, db,
                        study.begun + budget_s, study.tell)  # fmt: skip
    return _result(study, timed, swept, (n_envs, steps))


def _search(study: Study) -> None:
    """Every ablation step's search, the rest of the time shared by what is left to do."""
    shares = {name: share for name, share in weights().items() if name in study.rungs}
    for name in list(shares):
        rest = max(study.left_s(SEARCHING), 0.0)
        seconds = max(LEAST_S, rest * shares.pop(name) / (sum(shares.values()) + weights()[name]))
        study.tell(f"searching {name} for {seconds:.1f} s")
        study.found[name] = tune(
            study.rungs[name].graph, name=f"case study: {name}", device="cpu", db=study.db,
            budget_s=seconds, baselines=STRATEGIES, simplify=False,
        )  # fmt: skip


def _prepare(study: Study) -> None:
    """Compile and check every column; one that fails has its sentence."""
    for name, rung in study.rungs.items():
        study.columns[name], study.told[name] = {}, {}
        for column in (*STRATEGIES, EXACT, *PEERS):
            study.tell(f"preparing {name}: {column}")
            try:
                made = _column(study, rung, column)
                if made is None:
                    continue
                results = made.fetch(made.call())
            except Exception as failed:  # another compiler may raise anything
                _failed(study, name, column, failed)
                continue
            try:
                error = check(results, rung.wanted, rung.own and column in PEERS)
            except BenchError as wrong:
                _failed(study, name, column, wrong)
                study.wrong.append(f"{name} {column}")
                continue
            study.columns[name][column] = made
            study.told[name][column] = {"rel_error": error}


def _column(study: Study, rung: Rung, column: str) -> Column | None:
    if column in STRATEGIES:
        return ours(rung.graph, rung.inputs, column, study.db)
    if column == EXACT:
        return ours(rung.graph, rung.inputs, study.found[rung.name].best, study.db)
    if column in study.absent:
        return None
    try:
        return peer(column, rung.peers, rung.inputs)
    except BenchError as error:
        study.absent[column] = f"{NEEDS[column]}: {error}"
        return None


def _failed(study: Study, rung: str, column: str, error: Exception) -> None:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    sentence = lines[0][:300] if lines else ""
    ours_ = isinstance(error, AutofuseError)
    study.told[rung][column] = {
        "error": sentence if ours_ else f"{type(error).__name__}: {sentence}"
    }
    study.tell(f"{rung}: {column} failed: {study.told[rung][column]['error']}")


Key = tuple[str, str, bool]  # ablation step, column, whether numbers are drawn first
Timed = Mapping[Key, Mapping[str, float]]


def _time(study: Study) -> Timed:
    """All columns of all ablation steps in turns, so that each can be compared with each; warm or
    cold as their plans were searched for."""
    calls = _calls(study)
    kind = timed_device("cpu")
    states = {n: cache_state("auto", r.graph, kind) for n, r in study.rungs.items()}
    overwrite = {"warm": _leave, "cold": overwriter(last_level_cache_bytes())}
    samples: dict[Key, list[float]] = {}
    seconds = max(study.left_s(1.0 - SWEEPING), TIMING * study.budget_s)
    with measurement_lock(HOST.unit):
        for state in sorted(set(states.values())):
            mine = {" ".join(map(str, k)): k for k in calls if states[k[0]] == state}
            share = seconds * len(mine) / len(calls)
            study.tell(f"timing {len(mine)} programs, caches {state}")
            taken = take_turns({t: calls[k] for t, k in mine.items()}, overwrite[state], share)
            samples |= {k: taken[text] for text, k in mine.items()}
    return {key: _quartiles(found) for key, found in samples.items()}


def _calls(study: Study) -> dict[Key, Callable[[], Any]]:
    """Every column, and those that are given numbers once more behind one that draws them."""
    calls: dict[Key, Callable[[], Any]] = {}
    for name, columns in study.columns.items():
        for column, made in columns.items():
            calls[name, column, False] = made.call
            drawn = study.columns[DRAWING].get(column)
            if study.rungs[name].given and drawn is not None:
                calls[name, column, True] = partial(_drawn_first, drawn, made)
    return calls


def _drawn_first(drawn: Column, made: Column) -> Any:
    return made.feed(drawn.call())


def _quartiles(samples: Sequence[float]) -> dict[str, float]:
    q1, median, q3 = (float(q) for q in np.percentile(samples, (25, 50, 75)))
    return {"time_us": median, "q1_us": q1, "q3_us": q3, "samples": len(samples)}


def _leave() -> None:
    """Warm caches stay warm."""


def _all_failed(study: Study) -> list[str]:
    return [f"{rung} {column}" for rung, row in study.told.items() for column in row
            if "error" in row[column]]  # fmt: skip


def _result(
    study: Study, timed: Timed, swept: dict[str, Any], shape: tuple[int, int]
) -> dict[str, Any]:
    rungs = {name: _rung(study, timed, name) for name in study.rungs if name != DRAWING}
    errors = [
        c["rel_error"] for row in study.told.values() for c in row.values() if "error" not in c
    ]
    return {
        "study": "cartpole",
        "device": "cpu",
        "cpu": cpu_model(),
        "threads": usable_cores(),
        "n_envs": shape[0],
        "steps": shape[1],
        "budget_s": study.budget_s,
        "spent_s": time.perf_counter() - study.begun,
        "rungs": rungs,
        "drawing": _rung(study, timed, DRAWING),
        "sizes": swept,
        "bars": bars(rungs),
        "agree": not study.wrong,
        "failed": _all_failed(study),
        "max_rel_error": max(errors, default=None),
        "recomputed": _recomputed(study),
        "notes": {name: rung.note for name, rung in study.rungs.items() if rung.note},
        "absent": study.absent | {"cuda": "no GPU was used: its hand-written kernel is timed by "
                                  "scripts/bench_peers --device cuda"},
    }  # fmt: skip


def _rung(study: Study, timed: Timed, name: str) -> dict[str, dict[str, Any]]:
    """The columns of one ablation step. `time_us` of an ablation step that is given numbers
    includes drawing them; kernels and bytes are those of the roll-out alone, as is `given_us`."""
    rung, row = study.rungs[name], {}
    for column, told in study.told[name].items():
        made = study.columns[name].get(column)
        if made is None:
            row[column] = dict(told)
            continue
        cell = {
            **told,
            **timed[name, column, False],
            "compile_s": made.compile_s,
            "note": made.note,
        }
        if rung.given and (name, column, True) in timed:
            extra = study.columns[DRAWING][column]
            cell |= {
                "given_us": cell["time_us"],
                "draw_us": timed[DRAWING, column, False]["time_us"],
                "draw_kernels_per_step": _each(extra.kernels, rung.steps),
                **timed[name, column, True],
            }
        elif rung.given:
            cell["note"] = "drawing its numbers failed and is not counted"
        cell["step_us"] = cell["time_us"] / rung.steps
        cell["kernels_per_step"] = _each(made.kernels, rung.steps)
        cell["bytes_per_step"] = _each(made.nbytes, rung.steps)
        if column == EXACT:
            cell["search_s"] = study.found[name].total_s
        row[column] = cell
    return row


def _each(total: float | None, steps: int) -> float | None:
    return None if total is None else total / steps


def bars(rungs: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """What the study is to show: speeds from the naive program over others, 1.0 for equal."""
    naive = rungs[NAIVE].get(EXACT, {}).get("time_us")
    unrolled = rungs[UNROLLED].get(EXACT, {})
    jax = rungs[NAIVE].get("jax.jit", {}).get("time_us")
    rules = [rungs[NAIVE][s]["time_us"] for s in STRATEGIES if "time_us" in rungs[NAIVE].get(s, {})]

    def over(other: float | None) -> float | None:
        return other / naive if naive and other else None

    return {
        "naive_over_unroll10": over(unrolled.get("time_us")),
        "naive_over_unroll10_without_drawing": over(unrolled.get("given_us")),
        "naive_over_jax": over(jax),
        "naive_over_best_rule": over(min(rules, default=None)),
    }


def _recomputed(study: Study) -> dict[str, Any]:
    """Operations that the searched plans compute more than once rather than store."""
    found = {}
    for name in (TRAINING, POLICY):
        graph, best = study.rungs[name].graph, study.found[name].best
        rows = explain_plan(graph, best, device="cpu", db=study.db).recomputed
        found[name] = {
            "nodes": len(rows),
            "times": sum(len(row.kernels) - 1 for row in rows),
            "ops": sorted({graph[row.node].op for row in rows}),
            "bytes_saved": sum(row.more_bytes for row in rows),
            "more_flops": sum(row.fewer_flops for row in rows),
        }
    return found
