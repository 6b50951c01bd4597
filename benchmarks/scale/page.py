"""The figures of docs/scale.md, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.scale.costs import ScaleCosts
from benchmarks.scale.limits import EACH, FleetTotals, ScaleLimit
from benchmarks.scale.scripts import SessionScript
from benchmarks.scale.simulate import FleetLoad, FleetSize


def scale_data(
    size: FleetSize, scripts: Sequence[SessionScript], whole: FleetTotals,
    found: Mapping[int, FleetLoad], ends: Sequence[ScaleLimit],
) -> dict[str, Any]:  # fmt: skip
    """Everything as what JSON holds."""
    return {
        "fleet": asdict(size),
        "sessions": [
            {"space": s.name, "operations": len(s.steps), "own_s": s.own_s, "rows": dict(s.rows)}
            for s in scripts
        ],
        "whole": asdict(whole),
        "loads": {str(count): asdict(load) for count, load in found.items()},
        "limits": [asdict(one) for one in ends],
    }


def scale_lines(
    size: FleetSize, whole: FleetTotals, costs: ScaleCosts, found: Mapping[int, FleetLoad],
    ends: Sequence[ScaleLimit],
) -> Iterator[str]:  # fmt: skip
    """The same for people."""
    yield f"{size.graphs} graphs x {size.kinds} kinds of device x {size.workers} workers, once each"
    yield f"{whole.sessions} sessions, {whole.operations} operations,"
    yield f"{whole.tuning_s / 3600:.0f} worker hours, {whole.tuning_s / size.workers / 3600:.1f} h"
    yield f"of all of them, {whole.database_s / 3600:.1f} h of the server's processors"
    yield ""
    yield f"{'table':20} {'rows':>12} {'GB':>8}"
    for table, count in whole.rows.items():
        yield f"{table:20} {count:12} {whole.bytes[table] / 1e9:8.2f}"
    yield f"{'together':20} {sum(whole.rows.values()):12} {sum(whole.bytes.values()) / 1e9:8.2f}"
    yield ""
    yield (
        "workers  operations/s  sessions/h   busy  waited  median ms   p99 ms  at once  connections"
    )
    for count, load in found.items():
        yield (
            f"{count:7} {load.operations_s:13.0f} {3600 * load.sessions_s:11.0f} {load.busy:6.1%} "
            f"{load.waited:7.1%} {load.median_ms:10.2f} {load.p99_ms:8.2f} {load.at_once:8} "
            f"{EACH * count:12}"
        )
    yield ""
    memory = EACH * size.workers * costs.connection_bytes / 1e9
    yield f"memory of {EACH * size.workers} connections of their own: {memory:.1f} GB"
    rows = whole.rows.get("measurement", 0) + whole.rows.get("kernel_measurement", 0)
    for what, seconds in costs.row_s.items():
        yield f"{what} of all measurements: {rows * seconds / 3600:.2f} h"
    yield ""
    for end in ends:
        where = (
            f"{end.workers} workers" if end.workers is not None else f"{end.times:.0f} times all"
        )
        yield f"ends at {where:18} {end.what}"
