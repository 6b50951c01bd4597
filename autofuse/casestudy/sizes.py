"""Few environments and many: the searched plan, no fusion and jax.jit at each size."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autofuse.casestudy.columns import EXACT, JAX, Column, ours, peer
from autofuse.casestudy.rungs import KEY, NAIVE, SEED, initial_state, zoo_peers
from autofuse.devices import device_named
from autofuse.graph.canonical import canonical
from autofuse.graph.types import Graph
from autofuse.ops.types import AutofuseError
from autofuse.peers.types import Arrays, BenchError
from autofuse.peers.verify import check
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.tuning.plans import FUSED, plan_named
from autofuse.zoo import ZOO
from autofuse.zoo.cartpole import FORCE, RESET

# The ends first: the middle is left out where time is short.
SIZES = (1, 1_048_576, 64, 32_768)
STEPS = 10
SAMPLES, SAMPLE_S = 5, 0.5
COLUMNS = ("unfused", EXACT, JAX)
NO_TIME = "left out: the budget was spent"


def sizes_swept(
    plans: Mapping[str, Candidate], sizes: Sequence[int], db: str | None, deadline: float,
    say: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """By number of environments and workload, what each column takes for STEPS steps.

    `plans` were found at another size: their settings and others of one kernel are tried, nothing
    is searched anew. Nothing begins after `deadline`."""
    found: dict[str, Any] = {}
    for n_envs in sizes:
        rows: dict[str, Any] = {}
        for name, plan in plans.items():
            say(f"{name} with {n_envs} environments")
            late = time.perf_counter() > deadline
            rows[name] = {"error": NO_TIME} if late else _one(name, plan, n_envs, db, deadline)
        found[str(n_envs)] = rows
    return dict(sorted(found.items(), key=lambda item: int(item[0])))


def _one(
    name: str, plan: Candidate, n_envs: int, db: str | None, deadline: float
) -> dict[str, Any]:
    sizes = (n_envs, STEPS)
    graph = canonical(ZOO[name].make(*sizes))
    inputs = _inputs(name, n_envs)
    wanted: Arrays | None = None
    row: dict[str, Any] = {}
    for column in COLUMNS:
        if time.perf_counter() > deadline and column == "unfused":
            row[column] = {"error": NO_TIME}
            continue
        try:
            tried = list(_columns(column, name, graph, inputs, plan, db))
            results = [c.fetch(c.call()) for c in tried]
            wanted = wanted or tuple(np.asarray(a, np.float64) for a in results[0])
            drawn = column == JAX and name == NAIVE
            error = max(_error(r, wanted, drawn, n_envs) for r in results)
        except AutofuseError as failed:
            row[column] = {"error": str(failed)}
            continue
        times = [_time(c.call) for c in tried]
        best = min(times)
        kernels = tried[times.index(best)].kernels
        row[column] = {
            "time_us": best,
            "step_us": best / STEPS,
            "kernels_per_step": None if kernels is None else kernels / STEPS,
            "rel_error": error,
        }
    return row


def _error(found: Arrays, wanted: Arrays, drawn: bool, n_envs: int) -> float:
    """As all are checked; few environments with numbers of their own have no distribution."""
    if drawn and n_envs < 1024:
        return 0.0
    return check(found, wanted, drawn)


def _columns(
    column: str, name: str, graph: Graph, inputs: Arrays, plan: Candidate, db: str | None
) -> list[Column]:
    """What is tried for a column; the fastest counts."""
    if column == JAX:
        made = peer(JAX, zoo_peers(name, (inputs[1].shape[-1], STEPS), STEPS), inputs)
        if made is None:
            raise BenchError("there is no JAX program")
        return [made]
    if column != EXACT:
        return [ours(graph, inputs, column, db)]
    fused = plan_named(graph, FUSED, device_named("cpu"), db=db, simplify=False)
    tried = {c.digest: c for c in (*_alone_or_all(fused), *_moved(graph, plan))}
    return [ours(graph, inputs, candidate, db) for candidate in tried.values()]


def _alone_or_all(candidate: Candidate) -> list[Candidate]:
    """One thread is faster where there is little to do."""

    def alone(launch: LaunchConfig) -> LaunchConfig:
        return LaunchConfig.of(**{**dict(launch.settings), "threads": 1})

    launches = tuple(one.changed(alone) for one in candidate.launches)
    return [candidate, replace(candidate, launches=launches)]


def _moved(graph: Graph, plan: Candidate) -> list[Candidate]:
    """The plan of another size, where it is a plan of this graph too."""
    from autofuse.plan.fusion.legality import check_plan

    try:
        check_plan(graph, plan.plan)
        device_named("cpu").backend.program(graph, plan)
    except AutofuseError:
        return []  # it unrolls more iterations than there are here, as a plan or by its launches
    return [plan]


def _inputs(name: str, n_envs: int) -> Arrays:
    state = initial_state(n_envs)
    if name == NAIVE:
        return (KEY, state)
    draw = np.random.default_rng(SEED)
    force = draw.integers(0, 2, (STEPS, n_envs)).astype(np.float32) * np.float32(2 * FORCE)
    resets = draw.random((STEPS, 4, n_envs), np.float32) * np.float32(2 * RESET)
    return (*state, force - np.float32(FORCE), resets - np.float32(RESET))


def _time(call: Callable[[], Any]) -> float:
    """The median of a few calls after one that is not timed, microseconds."""
    call()
    samples: list[float] = []
    begun = time.perf_counter()
    while len(samples) < SAMPLES and (not samples or time.perf_counter() - begun < SAMPLE_S):
        start = time.perf_counter()
        result = call()
        samples.append((time.perf_counter() - start) * 1e6)
        del result
    return float(np.median(samples))
