"""What is asked most often, by one statement each: one row by its key, whatever the history.

They answer only where there is nothing to weigh: see `best` for a plan that is stale, failed or
missing, `queries.latest` for what is told of a candidate.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, Text, bindparam, cast, func, select
from sqlalchemy.orm import aliased

from autofuse import records as r
from tuning_db import models as m
from tuning_db import rows
from tuning_db.checked import identified, pairs_of

# A list of lists in JSON, by dialect: the aggregate, and what makes each of them.
_LISTS = {
    "sqlite": ("json_group_array", "json_array"),
    "postgresql": ("json_agg", "json_build_array"),
}


def served(
    connection: Connection,
    env: r.Environment,
    workload: str,
    cache: str | None,
    without: Collection[str],
) -> r.BestPlan | None:
    """What `best.best` gives, if that is what was promoted last, taken under the asker's own stale
    pairs, of a candidate that never failed and is not in `without`; None: it has to be asked."""
    values = {"workload": workload, "fingerprint": rows.fingerprint(env), "cache": cache}
    found = connection.execute(_statement(connection.dialect.name), values).all()
    row: Any = next(identified(found), None)
    usual = row is not None and not row.has_failed and row.median_us is not None
    if not usual or row.digest in without or row.stale != rows.stale_text(env):
        return None
    pairs = sorted(pairs_of(row.groups)) if row.groups else []
    groups = tuple(digest for _, digest in pairs)
    return r.BestPlan(rows.measurement_of(row, row, workload, groups), ())


def is_told_of(connection: Connection, env: r.Environment, workload: str, candidate: str) -> bool:
    """Whether anything was ever measured of a candidate on devices of this fingerprint."""
    values = {
        "workload": workload,
        "candidate": candidate,
        "fingerprint": rows.fingerprint(env),
    }
    return connection.execute(_telling(), values).first() is not None


@lru_cache(maxsize=1)
def _telling() -> Select[Any]:
    return (
        select(m.Measurement.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Workload, m.Candidate.workload_id == m.Workload.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Workload.digest == bindparam("workload"))
        .where(m.Candidate.digest == bindparam("candidate"))
        .where(m.Environment.fingerprint == bindparam("fingerprint"))
        .limit(1)
    )


@lru_cache(maxsize=len(_LISTS))
def _statement(dialect: str) -> Select[Any]:
    """Made once: making it anew would take longer than a server needs to answer it."""
    failed, cache = aliased(m.Measurement), bindparam("cache", type_=Text())
    has_failed = (
        select(failed.id)
        .where(failed.candidate_id == m.Candidate.id, failed.failure_kind.is_not(None))
        .exists()
    )
    return (
        select(
            *m.Measurement.__table__.columns,
            *(m.Candidate.digest, m.Candidate.json, m.Candidate.kernels, m.Environment.stale),
            has_failed.label("has_failed"),
            _groups(dialect).label("groups"),
        )
        .join_from(m.BestPlan, m.Workload, m.BestPlan.workload_id == m.Workload.id)
        .join(m.Measurement, m.BestPlan.measurement_id == m.Measurement.id)
        .join(m.Candidate, m.Measurement.candidate_id == m.Candidate.id)
        .join(m.Environment, m.Measurement.environment_id == m.Environment.id)
        .where(m.Workload.digest == bindparam("workload"))
        .where(m.BestPlan.fingerprint == bindparam("fingerprint"))
        .where(cache.is_(None) | (m.BestPlan.cache == cache))
        .order_by(m.BestPlan.promoted.desc(), m.BestPlan.cache)
        .limit(1)
    )


def _groups(dialect: str) -> Any:
    """The candidate's groups: a JSON list of their positions and digests, in any order."""
    every, each = (getattr(func, name) for name in _LISTS[dialect])
    pairs = every(each(m.CandidateGroup.position, m.Group.digest))
    return (
        select(cast(pairs, Text))
        .join_from(m.CandidateGroup, m.Group, m.CandidateGroup.group_id == m.Group.id)
        .where(m.CandidateGroup.candidate_id == m.Candidate.id)
        .scalar_subquery()
    )
