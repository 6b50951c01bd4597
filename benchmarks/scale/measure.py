"""What operations cost on a PostgreSQL of our own: processor seconds of server and client."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import median

from sqlalchemy import text

from autofuse.backends.machine import cpu_model
from autofuse.limits import usable_cores
from autofuse.records import (
    Cost,
    Environment,
    Event,
    KernelMeasurement,
    Measurement,
    Proof,
    SessionResult,
    Timing,
)
from benchmarks.postgres import Server, round_trips, running
from benchmarks.scale.costs import GROUPS, OperationCost, ScaleCosts
from benchmarks.scale.fill import PLAN_BYTES, Filling, fill
from benchmarks.scale.partitions import lookup_s
from tuning_db import Store
from tuning_db.compact import compact
from tuning_db.transfer import export_lines, import_lines

_TIMING = Timing(30, 9.0, 9.5, 10.0, 10.5, 10.1, 0.25, "cold", "noise")
_TABLES = (
    "workload", "group_", "candidate", "candidate_group", "session", "measurement",
    "kernel_measurement",
)  # fmt: skip
# Commits of one byte that the time of a flush is the median of.
_FLUSHES = 100
# Facts of a kernel: those of its group, and those that a compiler tells.
_FACTS = tuple((f"a fact of number {n:02}", 3.25 * n) for n in range(24))


def measure_costs(rows: int, repeats: int) -> ScaleCosts:
    """Costs on a server with `rows` measurements of candidates and of kernels. Raises AutofuseError
    where there is no server to be had."""
    filling = Filling(rows)
    with running() as server, Store.open(server.create("costs")) as store:
        fill(store, filling)
        operations = {
            name: _cost(server, store, work, 2 if name in _LONG else repeats, name not in _READING)
            for name, work in _operations(store, filling, repeats).items()
        }
        operations["open"] = _opened(server, store.url.database or "", repeats)
        with store.reading() as t:
            version = str(t.scalar(text("SHOW server_version"))).split()[0]
        return ScaleCosts(
            f"PostgreSQL {version}", f"{cpu_model()}, {usable_cores()} cores, {platform.system()}",
            rows, _flush_s(server), _connection_bytes(server), operations,
            _row_bytes(server, filling), _row_s(store, server, rows), lookup_s(server, "costs"),
        )  # fmt: skip


_LONG = ("recall", "recall_kernels")
_READING = (*_LONG, "calibration", "kernels", "latest", "incumbent", "best")


def _operations(store: Store, filling: Filling, repeats: int) -> Mapping[str, Callable[[], object]]:
    """Every operation of `scripts.py`, on rows that are new each time where it adds some."""
    env, workload, numbers = filling.environments[0], filling.workload(0), count()
    session = _session(store, env, workload)
    with store.reading() as t:
        known = list(t.scalars(text("SELECT digest FROM group_ ORDER BY id LIMIT 100")))
        digest = t.scalars(text("SELECT digest FROM candidate ORDER BY id LIMIT 1")).one()

    def candidate() -> Measurement:
        return _measurement(workload, f"new {next(numbers)}", known[:GROUPS])

    def claimed() -> object:
        return store.claim(f"measure:{'0' * 100}:{next(numbers)}", "a host 1", 60.0)

    def promoted() -> object:
        one = replace(candidate(), stage="final")
        beaten.append(one.candidate_digest)
        return store.promote(session, env, one, beaten[-2])

    best, lease = store.best(env, workload, "cold"), store.claim("prolonged", "a host 1", 600.0)
    assert best is not None and lease is not None
    beaten = [best.measurement.candidate_digest]
    begun = iter([_session(store, env, workload) for _ in range(3 * repeats + 1)])
    ended = SessionResult("exact", 0, 60.0, Cost(), 9, 9, (), digest, (), (), True, Proof(0.0, 0.0))
    return {
        "add_workload": lambda: store.add_workload(workload, "text", "w", 50),
        "start_session": lambda: _session(store, env, workload),
        "recall": lambda: store.measured(env, workload),
        "calibration": lambda: store.calibration(env),
        "recall_kernels": lambda: store.kernels(env, known),
        "kernels": lambda: store.kernels(env, known[:GROUPS]),
        "latest": lambda: store.latest(env, workload, digest),
        "claim": claimed,
        "prolong": lambda: store.prolong(lease, 600.0),
        "release": lambda: store.release(lease),
        "add_measurement": lambda: store.add_measurement(session, env, candidate()),
        "add_final": lambda: store.add_measurement(
            session, env, _measurement(workload, digest, known[:GROUPS])
        ),
        "add_kernels": lambda: store.add_kernels(
            session, env, [_kernel(group) for group in known[:GROUPS]]
        ),
        "add_event": lambda: store.add_event(session, Event(1, Cost(), 10.0, digest, "exact")),
        "incumbent": lambda: store.incumbent(env, workload, "cold"),
        "best": lambda: store.best(env, workload),
        "promote": promoted,
        "finish_session": lambda: store.finish_session(next(begun), ended),
    }


def _session(store: Store, env: Environment, workload: str) -> int:
    return store.start_session(env, workload, "exact", 0, 60.0)


def _measurement(workload: str, digest: str, groups: list[str]) -> Measurement:
    return Measurement(
        workload, "x" * PLAN_BYTES, digest, "exact", GROUPS, tuple(groups), _TIMING, None, 1e-7,
        Cost(0.1, 0.2, 0.3), code="0" * 32,
    )  # fmt: skip


def _kernel(group: str) -> KernelMeasurement:
    return KernelMeasurement(
        group, '{"tile":64}', "cold", "0" * 32, _TIMING, None, 1e-7, Cost(), 2.5, _FACTS
    )


def _cost(
    server: Server, store: Store, work: Callable[[], object], repeats: int, writes: bool
) -> OperationCost:
    """The least of three rounds, so that what else runs here counts little."""
    trips = round_trips(store, work)
    rounds = [_round_cost(server, work, repeats) for _ in range(3)]
    return OperationCost(min(s for s, _ in rounds), min(c for _, c in rounds), trips, writes)


def _round_cost(server: Server, work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Processor seconds of all of the server's processes, and of this one, for one time."""
    before, own = server.processor_s(), time.process_time()
    for _ in range(repeats):
        work()
    used, own = server.processor_s(), time.process_time() - own
    served = sum(used[pid] - seconds for pid, seconds in before.items() if pid in used)
    return served / repeats, own / repeats


def _opened(server: Server, database: str, repeats: int) -> OperationCost:
    """Opening a store: the process that the server starts for it ends with it, so that its seconds
    are read before that."""
    served, own = [], []
    for _ in range(max(3, repeats // 10)):
        known, begun = server.processor_s(), time.process_time()
        with Store.open(server.url(database)):
            own.append(time.process_time() - begun)
            served.append(sum(s for pid, s in server.processor_s().items() if pid not in known))
    return OperationCost(median(served), median(own), 6, False)


def _flush_s(server: Server) -> float:
    """Seconds that a commit waits for the disk."""
    took = []
    for _ in range(_FLUSHES):
        begun = time.perf_counter()
        with (server.folder / "data" / "flush").open("wb") as file:
            file.write(b"x" * 8192)
            file.flush()
            os.fdatasync(file.fileno())
        took.append(time.perf_counter() - begun)
    (server.folder / "data" / "flush").unlink()
    return median(took)


def _connection_bytes(server: Server) -> float:
    """Memory that is a connection's own."""
    with Store.open(server.url("costs")) as store, store.reading() as t:
        pid = t.scalar(text("SELECT pg_backend_pid()"))
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        private = [line.split()[1] for line in rollup if line.startswith("Private_")]
        return 1024.0 * sum(map(int, private))


def _row_bytes(server: Server, filling: Filling) -> dict[str, float]:
    """Bytes of a row with its part of the indices."""
    query = "SELECT pg_total_relation_size('{0}')::float / greatest(count(*), 1) FROM {0}"
    found = {table: server.execute(query.format(table), "costs")[0][0] for table in _TABLES}
    return {table: round(float(one), 1) for table, one in found.items()}


def _row_s(store: Store, server: Server, rows: int) -> dict[str, float]:
    """Processor seconds, of server and client, for each measurement of what goes through all of
    them."""
    few = Filling(min(rows, 1_000), workloads=20)
    lines: list[str] = []
    with Store.open(server.create("few")) as small, Store.open(server.create("imported")) as other:
        fill(small, few)
        works: dict[str, tuple[Callable[[], object], int]] = {
            "compact": (lambda: compact(store, kept=10**6), rows),
            "export": (lambda: lines.extend(export_lines(small)), few.rows),
            "import": (lambda: import_lines(other, lines), few.rows),
        }
        return {
            name: sum(_round_cost(server, work, 1)) / (2 * each)
            for name, (work, each) in works.items()
        }
