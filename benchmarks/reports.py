"""How long a report takes, on a tuning database of made-up times: real graphs and plans, but
nothing in it was measured, and no name in it can be taken for a device or workload."""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from autofuse.baselines import BASELINES
from autofuse.cost.account import kernel_count
from autofuse.graph.canonical import canonical, digest, text
from autofuse.graph.types import Graph
from autofuse.peers.types import BenchError
from autofuse.plan.types import Candidate, LaunchConfig
from autofuse.records import (
    Cost,
    Environment,
    Event,
    Failure,
    FailureKind,
    Measurement,
    Proof,
    SessionResult,
    Timing,
    Verdict,
)
from autofuse.tuning.problem import default_candidate
from autofuse.zoo import ZOO, zoo_graph
from search_spaces import CpuLaunchSpace
from tuning_db import Store

RULES = ("unfused", "greedy-chains", "xla-2022", "inductor")
_BEST = "inductor"
_FAILURES = (FailureKind.COMPILE, FailureKind.TIMEOUT, FailureKind.WRONG_RESULT)


@dataclass(frozen=True)
class MadeUp:
    """What a database is filled with; some workloads are on both devices."""

    workloads: int = 10
    strategies: int = 5
    candidates: int = 40
    devices: tuple[str, ...] = ("made-up-a", "made-up-b")


def fill(path: Path, wanted: MadeUp) -> int:
    """Fill a new database, always with the same times; returns how many sessions it holds.

    Raises BenchError if the zoo has fewer workloads than wanted."""
    if wanted.workloads > len(ZOO):
        raise BenchError(f"there are only {len(ZOO)} workloads, not {wanted.workloads}")
    sessions = 0
    with Store.open(path) as store:
        for number, name in enumerate(list(ZOO)[: wanted.workloads]):
            graph = canonical(zoo_graph(name, "small"))
            store.add_workload(digest(graph), text(graph), f"made-up:{name}", len(graph.nodes))
            for device in wanted.devices if number % 4 == 0 else wanted.devices[:1]:
                filler = _Filler(store, graph, device, random.Random(f"{name} {device}"))
                filler.baselines()
                for strategy in range(wanted.strategies):
                    filler.session(f"strategy-{strategy + 1}", wanted.candidates)
                    sessions += 1
    return sessions


class _Filler:
    """Fills in one workload on one device."""

    def __init__(self, store: Store, graph: Graph, device: str, rng: random.Random) -> None:
        self.store, self.graph, self.rng = store, graph, rng
        self.environment = Environment(device, (("model", "made up"),))
        self.digest = digest(graph)
        self.us = 10 ** rng.uniform(1.5, 4.0)
        self.numbers = count(1)
        self.plans = {name: self._plan(name) for name in RULES}
        # Rules that agree on a plan agree on its time.
        known: dict[str, float] = {}
        for i, name in enumerate(RULES):
            known[self.plans[name].digest] = self.us * (4 - i) / 2
        self.times = {name: known[plan.digest] for name, plan in self.plans.items()}

    def _plan(self, name: str) -> Candidate:
        plan = BASELINES[name](self.graph).plan
        return default_candidate(self.graph, plan, CpuLaunchSpace(), name)

    def baselines(self) -> None:
        for name, plan in self.plans.items():
            self._add(None, plan, self.times[name], "baseline", name)

    def session(self, strategy: str, candidates: int) -> None:
        """A search that finds better plans ever more seldom."""
        seed = self.rng.randrange(100)
        session = self.store.start_session(self.environment, self.digest, strategy, seed, 60.0)
        rules = self.times[_BEST]
        best, spent, digest_ = rules, Cost(0.1, 1.0, 0.5, 0.1), self.plans[_BEST].digest
        self._event(session, 0, spent, best, digest_, _BEST)
        failed: dict[str, int] = {}
        for trial in range(1, candidates + 1):
            spent += Cost(0.05, self.rng.uniform(0.2, 0.8), 0.3, 0.01)
            one = self._variant()
            if self.rng.random() < 0.15:
                kind = self.rng.choice(_FAILURES)
                failed[kind.value] = failed.get(kind.value, 0) + 1
                self._add(session, one, None, "search", strategy, kind)
                continue
            us = self.us * self.rng.uniform(0.3, 2.0) * (1 + 2 / trial)
            self._add(session, one, us, "search", strategy)
            if us < best:
                best, digest_ = us, one.digest
                self._event(session, trial, spent, best, digest_, strategy)
        self._finish(session, strategy, seed, spent, candidates, failed, digest_, best)

    def _finish(
        self,
        session: int,
        strategy: str,
        seed: int,
        spent: Cost,
        trials: int,
        failed: dict[str, int],
        best: str,
        us: float,
    ) -> None:
        verdicts = [
            Verdict(n, t, us, t / us, 0.97 * t / us, 1.04 * t / us, "faster" if us < t else "tie")
            for n, t in self.times.items()
        ]
        result = SessionResult(
            strategy=strategy,
            seed=seed,
            budget_s=60.0,
            spent=spent,
            trials=trials,
            measured=trials - sum(failed.values()),
            failed=tuple(sorted(failed.items())),
            best_digest=best,
            baselines=tuple((n, p.digest) for n, p in self.plans.items()),
            verdicts=tuple(verdicts),
            finished=True,
        )
        self.store.finish_session(session, result)

    def _variant(self) -> Candidate:
        """A candidate that no other is equal to, with a plan of the rules."""
        base = self.plans[self.rng.choice(RULES)]
        mark = LaunchConfig.of(made_up=next(self.numbers))
        return replace(base, launches=(mark, *base.launches[1:]))

    def _event(
        self, session: int, trial: int, spent: Cost, us: float, digest_: str, origin: str
    ) -> None:
        bound = 0.25 * self.us
        event = Event(trial, spent, us, digest_, origin, Proof(search_gap=0.0, bound_us=bound))
        self.store.add_event(session, event)

    def _add(
        self,
        session: int | None,
        one: Candidate,
        us: float | None,
        stage: str,
        origin: str,
        kind: FailureKind = FailureKind.COMPILE,
    ) -> None:
        timing = None
        if us is not None:
            timing = Timing(30, 0.95 * us, 0.98 * us, us, 1.03 * us, us, 0.02 * us, "warm", "noise")
        measurement = Measurement(
            workload=self.digest,
            candidate=one.to_json(),
            candidate_digest=one.digest,
            origin=origin,
            kernels=kernel_count(one.plan),
            groups=(),
            timing=timing,
            failure=Failure(kind, f"made up: {kind.value}") if us is None else None,
            max_rel_error=None if us is None else 1e-7,
            cost=Cost(0.05, self.rng.uniform(0.1, 1.0), 0.3),
            stage=stage,
        )
        self.store.add_measurement(session, self.environment, measurement)


def bench_report(folder: Path, wanted: MadeUp, repeats: int) -> dict[str, Any]:
    """Wall seconds of `autofuse report` in a process of its own, start-up included, by format.

    Raises BenchError if it fails."""
    database = folder / "made-up.db"
    sessions = fill(database, wanted)
    results = {form: list(_seconds(folder, database, form, repeats)) for form in ("html", "json")}
    return {
        "workloads": wanted.workloads,
        "strategies": wanted.strategies,
        "sessions": sessions,
        "candidates_per_session": wanted.candidates,
        "page_bytes": (folder / "report.html").stat().st_size,
        "seconds": {form: statistics.median(found) for form, found in results.items()},
        "slowest_seconds": {form: max(found) for form, found in results.items()},
    }


def _seconds(folder: Path, database: Path, form: str, repeats: int) -> Iterator[float]:
    out = folder / f"report.{form}"
    command = [sys.executable, "-m", "autofuse", "report", "--db", str(database), "--out", str(out)]
    for _ in range(repeats):
        begun = time.perf_counter()
        _call([*command, "--format", form])
        yield time.perf_counter() - begun


def _call(command: Sequence[str]) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    if ended.returncode:
        raise BenchError(f"autofuse report failed: {ended.stderr.strip()}")
