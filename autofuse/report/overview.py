"""What the report says of all workloads together: the headline of each, and summary tables."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.records import Verdict
from autofuse.report import tables
from autofuse.report.envelope import advice, envelope, options
from autofuse.report.model import Contender, SessionReport, WorkloadReport
from autofuse.report.tables import Cell, Row, Table
from autofuse.units import ratio_text, runs_text, time_text

UNFINISHED = "No session has ended: all that is known are samples of a search."


def headline(report: WorkloadReport) -> str:
    """The one sentence about a workload: what the plan that is served is worth against the best
    rules, by interleaved comparison. Samples of searches are in no headline."""
    session, best = report.leading, report.incumbent
    if best is None:
        samples = any(s.best for s in report.sessions)
        return UNFINISHED if samples else "No plan that works is known."
    rival = report.rival
    against = session.against(rival) if session and rival else None
    time_us = against.best_us if against else best.timing.median_us
    told = f"Best plan: {time_text(time_us)} in {_kernels(best.kernels)}"
    if session is None:
        return f"{told}; it was compared with no rules by a session that ended."
    if rival is None:
        return f"{told}, found by {session.strategy}."
    if rival.digest == best.digest:
        return f"{told}; it is the plan of {rival.name}: searching found nothing better."
    return f"{told}{_compared(session, rival, against)}."


def _compared(session: SessionReport, rival: Contender, against: Verdict | None) -> str:
    """What the end of a session says of its best plan and another."""
    if against is None:
        return f"; it was not compared with {rival.name}, the best baseline"
    if against.outcome == "tie":
        return f"; a tie with {rival.name}, the best baseline"
    pays = session.pays(rival)
    assert pays is not None
    when = "never pays" if pays.runs is None else f"pays after {runs_text(pays.runs)} runs"
    times = ratio_text(against.ratio)
    return f", {times} as fast as {rival.name}, the best baseline; {when}"


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def summary(reports: Sequence[WorkloadReport]) -> Table | None:
    """A row per workload and device, in the order of `reports`."""
    heads = ("Workload", "Device", "Best rules", "Their time", "Best plan", "Speed-up", "Interval",
             "Pays after runs", "Gap of the search", "Gap to the bound",
             "Kernels", "Bytes moved", "Peak bytes")  # fmt: skip
    return tables.table("All workloads", heads, [_row(r) for r in reports])


def _row(report: WorkloadReport) -> Row:
    session, best, dash = report.leading, report.incumbent, Cell("–")
    if best is None:
        return (report.name, report.device, *([dash] * 11))
    account = dict(report.accounts).get(best.digest)
    row = [Cell(report.name), Cell(report.device)]
    if session is None or session.rival is None:
        row += [dash, dash, tables.us(best.timing.median_us), dash, dash, dash]
    else:
        row += _against(session, session.rival, best)
    last = session.events[-1] if session and session.events else None
    row += [tables.percent(last.proof.search_gap if last else None)]
    row += [tables.percent(last.bound_gap if last else None), tables.count(best.kernels)]
    row.append(tables.size(account.bytes if account else None))
    row.append(tables.size(account.peak_bytes if account else None))
    return row


def _against(session: SessionReport, rival: Contender, best: Contender) -> list[Cell]:
    """Rival, both times, ratio with its interval, and when it pays."""
    against, pays, dash = session.against(rival), session.pays(rival), Cell("–")
    when = tables.runs(pays.runs) if pays else dash
    if against is None:
        times = [tables.us(rival.timing.median_us), tables.us(best.timing.median_us), dash, dash]
    else:
        between = Cell(tables.interval(against), against.low)
        times = [tables.us(against.other_us), tables.us(against.best_us)]
        times += [tables.ratio(against.ratio), between]
    return [Cell(rival.name), *times, when]


def what_to_use(reports: Sequence[WorkloadReport]) -> Table | None:
    """The envelope of every workload as a sentence."""
    rows = [(r.name, r.device, advice(envelope(options(r))) or "nothing is known") for r in reports]
    return tables.table("What to use, by number of runs", ("Workload", "Device", "Use"), rows)


def all_failures(reports: Sequence[WorkloadReport]) -> Table | None:
    """Failures of all workloads by kind; a row per workload and device that has any."""
    kinds = sorted({f.kind for r in reports for f in r.failures})
    rows: list[Row] = []
    for r in reports:
        told = {f.kind: max(f.attempts, f.candidates) for f in r.failures}
        if told:
            counts = [tables.count(told.get(kind, 0)) for kind in kinds]
            rows.append((r.name, r.device, *counts))
    heads = ("Workload", "Device", *(kind.replace("_", " ") for kind in kinds))
    return tables.table("Failures of all workloads", heads, rows)


def as_of(reports: Sequence[WorkloadReport]) -> str:
    """When the latest session began: the state of knowledge a report is of; "" without one."""
    return max((s.started for r in reports for s in r.sessions), default="")
