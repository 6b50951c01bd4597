"""Old rows that no answer depends on, removed a few at a time, so that writers hardly wait."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Delete, Select, and_, delete, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from tuning_db import models as m
from tuning_db.clock import server_now
from tuning_db.store import Store

# Latest times kept of each candidate and kernel; rows removed in one transaction.
KEPT, BATCH = 5, 500


def compact(store: Store, kept: int = KEPT) -> dict[str, int]:
    """Remove all but the latest `kept` (at least one) times of each candidate in the search and of
    each kernel, per device, and all but the latest failure; and leases that have expired. How many
    rows went, by table. What is served, finals, baselines and sessions stay, and so does every
    answer but those that tell the whole history."""
    removed = {
        "measurement": _remove(store, m.Measurement, _measurements(kept)),
        "kernel_measurement": _remove(store, m.KernelMeasurement, _kernels(kept)),
    }
    gone = delete(m.Lease).where(m.Lease.expires < server_now())
    return {**removed, "lease": _delete(store, gone)}


def _remove(
    store: Store, own: type[m.Measurement] | type[m.KernelMeasurement], old: Select[int]
) -> int:
    numbers = store.read(lambda t: t.scalars(old).all())
    for start in range(0, len(numbers), BATCH):
        _delete(store, delete(own).where(own.id.in_(numbers[start : start + BATCH])))
    return len(numbers)


def _delete(store: Store, gone: Delete) -> int:
    return store.write(lambda t: t.connection().execute(gone).rowcount)


def _measurements(kept: int) -> Select[int]:
    own = m.Measurement
    alike = (own.environment_id, own.candidate_id, own.cache)
    served = select(m.BestPlan.measurement_id)
    return _old(own, alike, kept).where(own.stage == "search", own.id.not_in(served))


def _kernels(kept: int) -> Select[int]:
    own = m.KernelMeasurement
    return _old(own, (own.environment_id, own.group_id, own.launch, own.cache, own.code), kept)


def _old(
    own: type[m.Measurement] | type[m.KernelMeasurement],
    alike: Sequence[InstrumentedAttribute[Any]],
    kept: int,
) -> Select[int]:
    """Rows that have `kept` later ones of their kind, failures one."""
    failed = own.failure_kind.is_not(None)
    latest = (own.created.desc(), own.id.desc())
    ranked = select(
        own.id, failed.label("failed"),
        func.row_number().over(partition_by=[*alike, failed], order_by=latest).label("rank"),
    ).subquery()  # fmt: skip
    old = or_(ranked.c.rank > kept, and_(ranked.c.failed, ranked.c.rank > 1))
    return select(own.id).join(ranked, ranked.c.id == own.id).where(old)
