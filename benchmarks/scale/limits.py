"""What a fleet asks of a database in all, and where each thing that it needs ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.scale.costs import ScaleCosts
from benchmarks.scale.scripts import SessionScript
from benchmarks.scale.simulate import FleetLoad, FleetSize, simulate

# PostgreSQL's default of max_connections, less those that it keeps for its owner.
CONNECTIONS = 100 - 3
# Connections of a job: its own, and that of the thread that prolongs its lease.
EACH = 2
ROW_NUMBERS = 2**31
# A server's processors are full before all of them are in use all the time; a fleet is too large
# where this share of its time goes to the database.
FULL, TOO_LONG = 0.8, 0.1
_WORKERS = (50, 200, 500, 1000, 2000)


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """What the whole of the tuning leaves: rows and bytes by table; `tuning_s`, seconds of all
    workers together; `database_s`, seconds of the server's processors."""

    sessions: int
    rows: Mapping[str, int]
    bytes: Mapping[str, int]
    tuning_s: float
    database_s: float
    operations: int


@dataclass(frozen=True, slots=True)
class ScaleLimit:
    """Where something ends: at so many workers, or after so many times the whole of the tuning."""

    what: str
    workers: int | None
    times: float | None


def totals(size: FleetSize, scripts: Sequence[SessionScript], costs: ScaleCosts) -> FleetTotals:
    """Of graphs that are like the recorded ones in equal parts."""
    sessions = size.graphs * size.kinds * size.sessions
    each = sessions / len(scripts)
    rows: dict[str, float] = {"workload": size.graphs}
    rows["group_"] = sum(one.groups for one in scripts) * size.graphs / len(scripts)
    for script in scripts:
        for table, count in script.rows.items():
            rows[table] = rows.get(table, 0) + count * each
    rows = dict(sorted(rows.items()))
    served = [costs.operations[s.operation].server_s for one in scripts for s in one.steps]
    return FleetTotals(
        sessions,
        {table: round(count) for table, count in rows.items()},
        {t: round(count * costs.row_bytes.get(t, 0.0)) for t, count in rows.items()},
        sum(one.own_s for one in scripts) * each,
        sum(served) * each,
        round(len(served) * each),
    )


def loads(
    size: FleetSize, scripts: Sequence[SessionScript], costs: ScaleCosts, seconds: float,
    seed: int = 0, workers: Sequence[int] = _WORKERS,
) -> dict[int, FleetLoad]:  # fmt: skip
    """The simulated load of fleets of several sizes, that of `size` among them."""
    return {
        count: simulate(replace(size, workers=count), scripts, costs, seconds, seed)
        for count in sorted({*workers, size.workers})
    }


def limits(
    size: FleetSize, whole: FleetTotals, costs: ScaleCosts, found: Mapping[int, FleetLoad],
    disk_bytes: float = 1e12,
) -> tuple[ScaleLimit, ...]:  # fmt: skip
    """What ends where, what ends first before the others."""
    return tuple(sorted(_limits(size, whole, costs, found, disk_bytes), key=_nearness))


def _limits(
    size: FleetSize, whole: FleetTotals, costs: ScaleCosts, found: Mapping[int, FleetLoad],
    disk_bytes: float,
) -> Iterator[ScaleLimit]:  # fmt: skip
    direct = CONNECTIONS // EACH
    yield ScaleLimit("connections, each job its own", direct, None)
    rate = whole.database_s / whole.tuning_s
    yield ScaleLimit(f"{size.cores} processors of the server", int(FULL * size.cores / rate), None)
    slow = [count for count, load in found.items() if load.waited > TOO_LONG]
    if slow:
        yield ScaleLimit(f"workers wait {TOO_LONG:.0%} of their time", min(slow), None)
    numbered = {t: n for t, n in whole.rows.items() if t != "candidate_group"}
    table = max(numbered, key=lambda name: numbered[name])
    yield ScaleLimit(f"row numbers of {table}", None, ROW_NUMBERS / numbered[table])
    yield ScaleLimit(f"{disk_bytes / 1e12:g} TB", None, disk_bytes / sum(whole.bytes.values()))


def _nearness(limit: ScaleLimit) -> tuple[int, float]:
    return (0, limit.workers) if limit.workers is not None else (1, limit.times or 0.0)
