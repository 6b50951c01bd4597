"""Which code a time belongs to, whose fault a failure is, and which plan is the best.

Fingerprints lose the version number of the code generator: the code says it by itself. Best plans
are what the rule before this schema serves: the winner of the latest finished session, else the
least latest median; what is fresh first, what failed last passed over.
"""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

Pairs = list[list[str]]
TABLES = ("measurement", "kernel_measurement")
REFER = ("measurement", "kernel_measurement", "session")


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("failure_blame", sa.String(length=20), nullable=True))
        op.add_column(table, sa.Column("code", sa.String(length=64), nullable=True))
    op.create_table(
        "best_plan",
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("cache", sa.String(length=20), nullable=False),
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("promoted", sa.String(length=40), nullable=False),
        sa.CheckConstraint("cache IN ('cold', 'warm')", name=op.f("ck_best_plan_cache")),
        *(
            sa.ForeignKeyConstraint(
                [f"{other}_id"], [f"{other}.id"], name=op.f(f"fk_best_plan_{other}_id")
            )
            for other in ("workload", "measurement")
        ),
        sa.PrimaryKeyConstraint("workload_id", "fingerprint", "cache", name=op.f("pk_best_plan")),
    )
    _rewrite_environments(lambda must: [pair for pair in must if pair[0] != "codegen"])
    _fill()


def downgrade() -> None:
    op.drop_table("best_plan")
    for table in TABLES:
        op.drop_column(table, "failure_blame")
        op.drop_column(table, "code")
    _rewrite_environments(lambda must: [*must, ["codegen", "1"]])


def _rewrite_environments(change: Callable[[Pairs], Pairs]) -> None:
    """Give every environment other must pairs; those that become equal become one."""
    found: dict[str, list[tuple[bool, int, str]]] = {}
    for row in _all("SELECT id, digest, device, must, stale FROM environment"):
        must = _text(change(json.loads(row.must)))
        digest = _hash("\n".join((row.device, must, _text(json.loads(row.stale)))))
        found.setdefault(digest, []).append((digest != row.digest, row.id, must))
    for digest, alike in found.items():
        (changed, kept, must), *others = sorted(alike)
        for _, number, _ in others:
            _join(number, kept)
        if changed:
            _do(
                "UPDATE environment SET digest = :digest, fingerprint = :fingerprint, "
                "must = :must WHERE id = :id",
                digest=digest, fingerprint=_hash(must), must=must, id=kept,
            )  # fmt: skip


def _join(one: int, other: int) -> None:
    for table in REFER:
        _do(
            f"UPDATE {table} SET environment_id = :other WHERE environment_id = :one",
            one=one, other=other,
        )  # fmt: skip
    _do(
        "UPDATE calibration SET environment_id = :other WHERE environment_id = :one AND name "
        "NOT IN (SELECT name FROM calibration WHERE environment_id = :other)",
        one=one, other=other,
    )  # fmt: skip
    _do("DELETE FROM calibration WHERE environment_id = :one", one=one)
    _do("DELETE FROM environment WHERE id = :one", one=one)


def _fill() -> None:
    rows = _all(
        "SELECT c.workload_id, e.fingerprint, x.id, x.candidate_id, x.median_us, x.cache, x.stage, "
        "x.created, e.stale, c.digest FROM measurement x "
        "JOIN candidate c ON c.id = x.candidate_id JOIN environment e ON e.id = x.environment_id "
        "ORDER BY x.created DESC, x.id DESC"
    )
    places: dict[tuple[int, str], list[Any]] = {}
    for row in rows:
        places.setdefault((row.workload_id, row.fingerprint), []).append(row)
    for (workload, fingerprint), found in places.items():
        latest: dict[int, Any] = {}
        for row in found:
            latest.setdefault(row.candidate_id, row)
        good = {n for n, row in latest.items() if row.median_us is not None}
        timed = [row for row in found if row.candidate_id in good and row.median_us is not None]
        # Who will ask is not known: whoever measured last.
        best = _best(workload, fingerprint, timed, timed[0].stale) if timed else None
        if best is not None and best.cache in ("cold", "warm"):
            _do(
                "INSERT INTO best_plan (workload_id, fingerprint, cache, measurement_id, promoted) "
                "VALUES (:workload, :fingerprint, :cache, :measurement, :promoted)",
                workload=workload, fingerprint=fingerprint, cache=best.cache,
                measurement=best.id, promoted=best.created,
            )  # fmt: skip


def _best(workload: int, fingerprint: str, timed: list[Any], stale: str) -> Any:
    """`timed` is latest first; `stale` are the stale pairs of who asks."""
    winners = _all(
        "SELECT s.best_id, e.stale FROM session s JOIN environment e ON e.id = s.environment_id "
        "WHERE s.workload_id = :workload AND e.fingerprint = :fingerprint AND s.finished "
        "AND s.best_id IS NOT NULL ORDER BY s.ended DESC, s.id DESC",
        workload=workload, fingerprint=fingerprint,
    )  # fmt: skip
    for winner in winners:
        times = [row for row in timed if row.candidate_id == winner.best_id]
        if times and winner.stale == stale:
            return max(times, key=lambda row: (row.stale == stale, row.stage == "final"))
    first: dict[int, Any] = {}
    for row in timed:
        first.setdefault(row.candidate_id, row)
    fresh = [row for row in first.values() if row.stale == stale]
    alike = [row for row in fresh if row.cache == fresh[0].cache]
    return min(alike, key=lambda row: (row.median_us, row.digest))


def _all(text: str, **values: Any) -> list[Any]:
    return list(op.get_bind().execute(sa.text(text), values).all())


def _do(text: str, **values: Any) -> None:
    op.get_bind().execute(sa.text(text), values)


def _text(pairs: Pairs) -> str:
    return json.dumps(sorted(map(tuple, pairs)), separators=(",", ":"))


def _hash(text: str) -> str:
    return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:32]
