"""Tuning on the toy device, and what must hold of each result."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autofuse.backends.registry import Backend
from autofuse.devices import DEVICES
from autofuse.graph.canonical import canonical, digest
from autofuse.graph.types import Graph
from autofuse.records import Measurement, SessionRow
from autofuse.tuning import TuneResult, tune
from autofuse.tuning.job import tuner
from tests.support.toy_device import LONG_S, QUICK, TOY, toy_kind, workload
from tuning_db import Store

KEYS = {
    "graph": {"digest", "nodes"},
    "spent_s": {"codegen", "compile", "measure", "sampler", "total"},
    "best": {"time_us", "kernels", "compile_s", "plan_digest", "origin"},
}

PLAIN_KEYS = {
    "device", "strategy", "budget_s", "trials", "measured", "failed", "baselines", "speedup_over",
    "break_even_runs", "verified", "checked", "predicted", "max_rel_error",
}  # fmt: skip


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, TOY)


def use(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    """Register a device, and measure quickly, for one test."""
    monkeypatch.setitem(DEVICES, "toy", toy_kind(backend))
    monkeypatch.setattr(tuner, "Sampling", lambda cache, **_: replace(QUICK, cache=cache))


def tune_toy(db: Path, strategy: str = "random", **more: Any) -> TuneResult:
    more = {"baselines": "all"} | more
    return tune(workload(), device="toy", db=str(db), budget_s=LONG_S, strategy=strategy, **more)


def stored(db: Path, graph: Graph) -> tuple[tuple[Measurement, ...], tuple[SessionRow, ...]]:
    with Store.open(str(db)) as store:
        key = digest(canonical(graph))
        return store.measurements(key), store.sessions(key)


def measured_once(rows: tuple[Measurement, ...]) -> int:
    """How many candidates were measured; each must have one row besides those of finals."""
    counts = Counter(r.candidate_digest for r in rows if r.stage in ("search", "baseline"))
    assert set(counts.values()) <= {1}, counts
    return len(counts)


def check_complete(result: TuneResult, db: Path, graph: Graph) -> None:
    """The JSON has its keys, no baseline beats the best, and the database says the same."""
    data = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert set(data) >= PLAIN_KEYS
    for key, inner in KEYS.items():
        assert inner <= set(data[key])
    assert result.verified and data["max_rel_error"] < 1e-4
    for row in data["baselines"].values():
        assert {"time_us", "kernels", "compile_s"} <= set(row)
    assert set(data["speedup_over"]) == set(data["baselines"]) == set(data["break_even_runs"])
    assert {v.outcome for v in result.verdicts} <= {"faster", "tie"}
    assert result.best_us <= min(result.baseline_us.values())
    spent = data["spent_s"]
    parts = spent["codegen"] + spent["compile"] + spent["measure"] + spent["sampler"]
    assert 0 < parts <= spent["total"] * 1.001
    rows, sessions = stored(db, graph)
    check_rows(result, rows, sessions[-1])
    check_events(result, db, sessions[-1])


def check_rows(result: TuneResult, rows: tuple[Measurement, ...], ended: SessionRow) -> None:
    measured_once(rows)
    assert all((r.timing is None) != (r.failure is None) for r in rows)
    assert result.best.digest in {r.candidate_digest for r in rows if r.stage == "final"}
    found = ended.result
    assert found is not None and found.finished == (not result.interrupted)
    assert found.best_digest == result.best.digest
    assert dict(found.baselines) == {n: m.candidate_digest for n, m in result.baselines.items()}
    assert (found.trials, found.measured) == (result.trials, result.measured)
    assert dict(found.failed) == result.failed and found.verdicts == result.verdicts


def check_events(result: TuneResult, db: Path, ended: SessionRow) -> None:
    with Store.open(str(db)) as store:
        events = store.events(ended.id)
    assert events[-1].candidate_digest == result.best.digest
    assert events[-1].best_us == result.best_us
    for one, two in pairwise(events):
        assert one.trial <= two.trial and one.spent.total <= two.spent.total
    falling = [e.best_us for e in events[:-1]]
    assert falling == sorted(falling, reverse=True) and len(set(falling)) == len(falling)


def after(count: int) -> Callable[[], bool]:
    """True once asked `count` times: the driver asks twice a step."""
    asked = iter(range(count))
    return lambda: next(asked, None) is None
