"""What a minute of tuning proves of each zoo workload, and how far what `compile` serves without
any tuning is from the plan that it finds.

Each workload is tuned as on a machine that never saw it: with an empty cache of compiled kernels
and a database that knows this device's peaks and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from autofuse.backends.machine import cpu_model, last_level_cache_bytes
from autofuse.devices import device_named, timed_device
from autofuse.errors import AutofuseError
from autofuse.limits import usable_cores
from autofuse.peers.types import BenchError
from autofuse.simplify import normal_form
from autofuse.tuning import tune
from autofuse.tuning.api import compare
from autofuse.tuning.plans import BEST, DEFAULT_PLAN, UNTUNED, known_peaks, plan_named
from autofuse.tuning.result import Progress, TuneResult
from autofuse.zoo import zoo_graph
from benchmarks.run import write_json
from tuning_db import Store

# A gap up to this fraction counts as closed.
CLOSED = 0.05
Workload = tuple[str, str]
"""A name in the zoo and a size."""
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Proof:
    """What tuning for `budget_s` seconds proved: `gap` is 1 - `bound_us` / `planned_us` (the sum of
    the times of the plan's kernels), `closed_s` the seconds after which it stayed at CLOSED or
    below. None: nothing was proved."""

    budget_s: float
    gap: float | None
    planned_us: float | None
    bound_us: float | None
    closed_s: float | None
    certificate: str | None
    trials: int
    measured: int
    kernels: int
    candidates: int
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UntunedRow:
    """One workload: microseconds of what is served without tuning, of the default baseline's plan
    and of the best plan known, timed interleaved; `plans` are these plans' digests, in this order,
    `load` what else the machine did when it was tuned (runnable tasks)."""

    workload: str
    size: str
    nodes: int
    origin: str
    untuned_us: float
    ruled_us: float
    best_us: float
    plans: tuple[str, ...]
    load: float
    proof: Proof | None = None

    @property
    def ratio(self) -> float:
        """Untuned over tuned: 1 is as good as tuning."""
        return self.untuned_us / self.best_us

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"ratio": self.ratio}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> UntunedRow:
        """Inverse of to_json; raises KeyError or TypeError for anything else."""
        own = {name: value for name, value in data.items() if name != "ratio"}
        proof = own.pop("proof")
        if proof is not None:
            proof = Proof(**proof | {"notes": tuple(proof["notes"])})
        return UntunedRow(**own | {"plans": tuple(own["plans"]), "proof": proof})


def bench_untuned(
    workloads: Iterable[Workload], budget_s: float, db: str | None, output: Path | None = None,
    note: str = "", say: Say = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """Tune each workload for `budget_s` seconds (0: `db` knows it already), then compare; what
    `output` holds. `output` is rewritten after every workload, and what it holds of an earlier run
    is not done again. A workload of which some plan fails is said and kept under `failed`.

    `db` None: a database of this run's own. Raises BenchError for an output of something else."""
    rows, failed = _read(output, budget_s), dict[str, str]()
    done = {(row.workload, row.size) for row in rows}
    with _machine(budget_s, db) as used:
        for name, size in workloads:
            if (name, size) in done:
                continue
            try:
                rows.append(_row(name, size, budget_s, used))
                say(line(rows[-1]))
            except AutofuseError as error:
                failed[f"{name}:{size}"] = str(error)
                say(f"{name}:{size}: {error}")
            if output is not None:
                write_json(output, _data(rows, failed, budget_s, note))
    return _data(rows, failed, budget_s, note)


def _read(output: Path | None, budget_s: float) -> list[UntunedRow]:
    """The rows of an earlier run under the same budget."""
    if output is None or not output.exists():
        return []
    try:
        data = json.loads(output.read_text(encoding="utf-8"))
        rows = [UntunedRow.from_json(row) for row in data["rows"]]
        same = data["cpu"] == cpu_model() and data["budget_s"] == budget_s
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{output} holds no rows of bench_untuned: {error}") from error
    if not same:
        raise BenchError(f"{output} holds rows of another machine or budget: name another file")
    return rows


@contextmanager
def _machine(budget_s: float, db: str | None) -> Iterator[str | None]:
    """The database to use, and an empty build cache, where anything is to be tuned: that is
    calibrated before, so that no workload's budget is spent on it."""
    if budget_s <= 0:
        yield db
        return
    before = os.environ.get("AUTOFUSE_CACHE")
    with TemporaryDirectory() as folder:
        os.environ["AUTOFUSE_CACHE"] = str(Path(folder) / "cache")
        own = db or str(Path(folder) / "tuning.db")
        try:
            _calibrate(own)
            yield own
        finally:
            del os.environ["AUTOFUSE_CACHE"]
            os.environ.update({} if before is None else {"AUTOFUSE_CACHE": before})


def _calibrate(db: str) -> None:
    kind = timed_device("cpu")
    environment = kind.backend.environment()
    if known_peaks(environment, db) is not None:
        return
    with Store.open(db) as store:
        store.set_calibration(environment, kind.calibrate().to_mapping())


def _row(name: str, size: str, budget_s: float, db: str | None) -> UntunedRow:
    graph, load = zoo_graph(name, size), os.getloadavg()[0]
    proof = _proof(name, size, budget_s, db) if budget_s > 0 else None
    names = (UNTUNED, DEFAULT_PLAN, BEST)
    found = compare(graph, device="cpu", db=db, plans=names)
    failed = [str(row["error"]) for row in found.plans.values() if "error" in row]
    if failed:
        raise AutofuseError(failed[0])
    untuned, ruled, best = (float(found.plans[p]["time_us"]) for p in names)
    origin = plan_named(normal_form(graph), UNTUNED, device_named("cpu"), db=db).origin
    digests = tuple(str(found.plans[p]["plan_digest"]) for p in names)
    return UntunedRow(
        name, size, found.nodes, origin, untuned, ruled, best, digests, load, proof
    )  # fmt: skip


def _proof(name: str, size: str, budget_s: float, db: str | None) -> Proof:
    begun, closed_s = time.perf_counter(), None

    def watch(state: Progress) -> None:
        nonlocal closed_s
        if state.proof.search_gap is None or state.proof.search_gap > CLOSED:
            closed_s = None
        elif closed_s is None:
            closed_s = time.perf_counter() - begun

    found: TuneResult = tune(
        zoo_graph(name, size), name=f"zoo:{name}:{size}", device="cpu", db=db, budget_s=budget_s,
        progress=watch,
    )  # fmt: skip
    return Proof(
        budget_s, found.search_gap, found.proof.planned_us, found.proof.search_floor_us, closed_s,
        found.proof.certificate,
        found.trials, found.measured, found.best_record.kernels or 0,
        found.counts.get("classes", 0), found.notes,
    )  # fmt: skip


def _data(
    rows: Sequence[UntunedRow], failed: Mapping[str, str], budget_s: float, note: str
) -> dict[str, Any]:
    return {
        "cpu": cpu_model(),
        "threads": usable_cores(),
        "cache_bytes": last_level_cache_bytes(),
        "python": platform.python_version(),
        "budget_s": budget_s,
        "note": note,
        "summary": summary(rows),
        "rows": [row.to_json() for row in rows],
        "failed": dict(failed),
    }


def summary(rows: Sequence[UntunedRow]) -> dict[str, float | None]:
    """The figures over all workloads: the share whose gap is at most CLOSED and the median gap
    (an unproved one is 1), None where nothing was tuned; the geometric mean of untuned over tuned,
    None for no rows."""
    gaps = [1.0 if r.proof.gap is None else r.proof.gap for r in rows if r.proof is not None]
    logs = [math.log(row.ratio) for row in rows]
    return {
        "workloads": len(rows),
        "closed": sum(gap <= CLOSED for gap in gaps) / len(gaps) if gaps else None,
        "median_gap": median(gaps) if gaps else None,
        "untuned_over_tuned": math.exp(math.fsum(logs) / len(logs)) if logs else None,
    }


def line(row: UntunedRow) -> str:
    """One workload as a line of text."""
    proof = row.proof
    gap = "not tuned" if proof is None else f"gap {1.0 if proof.gap is None else proof.gap:6.1%}"
    return (
        f"{row.workload + ':' + row.size:32} {row.untuned_us:10.1f} us untuned "
        f"{row.ruled_us:10.1f} rules {row.best_us:10.1f} tuned  ratio {row.ratio:5.2f}  {gap}  "
        f"({row.origin})"
    )
