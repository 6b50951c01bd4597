"""What can still be read of a damaged database, as an export that can be imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from autofuse import records as r
from tuning_db import lines
from tuning_db.engine import translated
from tuning_db.errors import DatabaseError
from tuning_db.store import Store
from tuning_db.transfer import PARTS, written


@dataclass(slots=True)
class Salvage:
    """`texts` is the export, to be read to its end; then `lost` says in one sentence each what
    could not be read. Lines that refer to what was lost are left out, because no import would take
    them; a measurement whose session was lost is kept without it."""

    store: Store
    lost: list[str] = field(default_factory=list)

    def texts(self) -> Iterator[str]:
        """Raises DatabaseError only if nothing at all can be read."""
        yield lines.write_header(lines.CURRENT)
        kept, orphans = _Kept(), 0
        with self.store.reading() as t:
            for table, part in PARTS.items():
                try:
                    with translated(self.store.name):
                        for line in part(t):
                            fitting = kept.fitting(line)
                            orphans += fitting is None
                            if fitting is not None:
                                yield written(fitting)
                                kept.add(fitting)
                except DatabaseError as error:
                    self.lost.append(f"table {table} could not be read to its end: {error}")
        if orphans:
            self.lost.append(f"{orphans} rows that refer to what is lost were left out")


class _Kept:
    """What later lines may refer to."""

    def __init__(self) -> None:
        self.known: set[tuple[str, ...]] = set()

    def add(self, line: lines.Line) -> None:
        match line:
            case lines.EnvironmentLine():
                self.known.add(("environment", line.digest))
            case r.WorkloadRow():
                self.known.add(("workload", line.digest))
            case lines.CandidateLine():
                self.known.add(("candidate", line.workload, line.digest))
            case lines.SessionLine():
                self.known.add(("session", line.uid))
            case lines.MeasurementLine():
                self.known.add(("measurement", line.uid))

    def fitting(self, line: lines.Line) -> lines.Line | None:
        """The line as it can be imported, or None."""
        if isinstance(line, lines.MeasurementLine | lines.KernelLine):
            lost = line.session is not None and ("session", line.session) not in self.known
            line = replace(line, session=None) if lost else line
        return line if self.known.issuperset(_needs(line)) else None


def _needs(line: lines.Line) -> set[tuple[str, ...]]:
    """What a line refers to, its session aside."""
    match line:
        case lines.CandidateLine():
            return {("workload", line.workload)}
        case lines.SessionLine():
            return _session_needs(line)
        case lines.MeasurementLine():
            return {
                ("environment", line.environment),
                ("candidate", line.workload, line.candidate),
            }
        case lines.KernelLine() | lines.CalibrationLine():
            return {("environment", line.environment)}
        case lines.BestLine():
            return {("workload", line.workload), ("measurement", line.measurement)}
        case _:
            return set()


def _session_needs(line: lines.SessionLine) -> set[tuple[str, ...]]:
    digests = {event.candidate_digest for event in line.events}
    if line.result is not None:
        digests |= {line.result.best_digest, *(digest for _, digest in line.result.baselines)}
    candidates = {("candidate", line.workload, digest) for digest in digests if digest}
    return {("environment", line.environment), ("workload", line.workload), *candidates}
