"""A PostgreSQL database with as many rows as years of tuning leave, made on the server itself."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text

from autofuse.records import Environment
from tuning_db import Store
from tuning_db.rows import fingerprint

# Bytes of what is text: a graph, a plan, and the facts of a kernel (see docs/scale.md).
GRAPH_BYTES, PLAN_BYTES, FACTS = 3200, 1280, 24
_TIMES = "30, t - 1, t - 0.5, t, t + 0.5, t, 0.2, 'cold', 'noise', ''"
_TIME_NAMES = "n, min_us, q1_us, median_us, q3_us, mean_us, stdev_us, cache, stopped, mode"
_COSTS = "0.1, 0.2, 0.3, 0.0"
_COST_NAMES = "codegen_s, compile_s, measure_s, sampler_s"
# Seconds apart, the last one now.
_CREATED = (
    "to_char((now() - (:rows - i) * interval '1 second') AT TIME ZONE 'UTC', "
    "'YYYY-MM-DD\"T\"HH24:MI:SS.US') || '+00:00'"
)


def _text(letters: str, bytes_: int) -> str:
    """Text of so many bytes that repeats nothing."""
    parts = f"SELECT string_agg(md5({letters} || '.' || k), '') FROM generate_series(1, {{}}) k"
    return f"({parts.format(bytes_ // 32)})"


@dataclass(frozen=True, slots=True)
class Filling:
    """`rows` measurements of candidates and as many of kernels; each workload has its best plan on
    the first of the `kinds` devices."""

    rows: int
    workloads: int = 200
    candidates: int = 20
    groups: int = 4
    kinds: int = 8

    @property
    def environments(self) -> list[Environment]:
        return [
            Environment("cpu", (("model", f"made up {n}"),), (("driver", "1"),))
            for n in range(self.kinds)
        ]

    def workload(self, number: int) -> str:
        """The digest of one of the workloads, by its number from 0."""
        return f"{number:032x}"


def fill(store: Store, filling: Filling) -> None:
    """Fill an empty database, and tell its planner what is in it."""
    for environment in filling.environments:
        store.add_environment(environment)
    many = filling.workloads * filling.candidates
    values = {
        "rows": filling.rows, "workloads": filling.workloads, "candidates": filling.candidates,
        "many": many, "groups": filling.groups, "kinds": filling.kinds,
        "fingerprint": fingerprint(filling.environments[0]),
    }  # fmt: skip
    for statement in _STATEMENTS:
        used = {name: value for name, value in values.items() if f":{name}" in statement}
        with store.writing() as t:
            t.execute(text(statement), used)
    with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE"))


_STATEMENTS = (
    "INSERT INTO workload (digest, text, name, nodes) SELECT lpad(to_hex(i - 1), 32, '0'), "
    f"{_text('i', GRAPH_BYTES)}, 'w' || i, 50 FROM generate_series(1, :workloads) i",
    "INSERT INTO session (uid, environment_id, workload_id, strategy, seed, budget_s, started) "
    "SELECT md5('s' || i), 1, i, 'exact', 0, 60, to_char(now(), 'YYYY-MM-DD\"T\"HH24:MI:SS') "
    "FROM generate_series(1, :workloads) i",
    "INSERT INTO group_ (digest) SELECT md5('g' || i) FROM generate_series(1, :many) i",
    "INSERT INTO candidate (workload_id, digest, json, origin, kernels) "
    f"SELECT 1 + (i - 1) / :candidates, md5('c' || i), {_text('i', PLAN_BYTES)}, 'exact', :groups "
    "FROM generate_series(1, :many) i",
    "INSERT INTO candidate_group (candidate_id, position, group_id) "
    "SELECT i, k, 1 + (i + 7 * k) % :many "
    "FROM generate_series(1, :many) i, generate_series(0, :groups - 1) k",
    f"INSERT INTO measurement (uid, created, session_id, environment_id, candidate_id, origin, "
    f"stage, {_TIME_NAMES}, max_rel_error, {_COST_NAMES}, code) "
    f"SELECT md5('m' || i), {_CREATED}, 1 + i % :workloads, 1 + (i / :many) % :kinds, "
    f"1 + i % :many, 'exact', 'search', {_TIMES}, 1e-7, {_COSTS}, md5('k' || i % :many) "
    "FROM (SELECT i, 10 + random() AS t FROM generate_series(1, :rows) i) AS drawn",
    f"INSERT INTO kernel_measurement (uid, created, session_id, environment_id, group_id, launch, "
    f"{_TIME_NAMES}, max_rel_error, {_COST_NAMES}, bound_us, facts, code) "
    f"SELECT md5('n' || i), {_CREATED}, 1 + i % :workloads, 1 + (i / :many) % :kinds, "
    "1 + i % :many, '{\"tile\" \\:' || i % 100 || '}', "
    f"{_TIMES}, 1e-7, {_COSTS}, 2.5, "
    "(SELECT '[' || string_agg('[\"' || substr(md5('f' || k), 1, 16) || '\", ' || t * k || ']', "
    f"', ') || ']' FROM generate_series(1, {FACTS}) k), md5('k' || i % :many) "
    "FROM (SELECT i, 10 + random() AS t FROM generate_series(1, :rows) i) AS drawn",
    "INSERT INTO best_plan (workload_id, fingerprint, cache, measurement_id, promoted) "
    "SELECT c.workload_id, :fingerprint, 'cold', min(m.id), max(m.created) FROM measurement m "
    "JOIN candidate c ON c.id = m.candidate_id WHERE m.environment_id = 1 GROUP BY c.workload_id",
)
