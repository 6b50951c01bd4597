"""`autofuse report`: what tuning bought, as one HTML file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from autofuse.commands.common import DbOption, output_path, reported, write_whole
from autofuse.commands.database import existing_store
from autofuse.commands.output import note, plural
from autofuse.plan.types import candidate_from_json
from autofuse.records import Measurement, SessionRow, WorkloadRow
from autofuse.report.model import WorkloadReport, by_device, collect
from tuning_db import Store


@reported
def report(
    out: Annotated[Path, typer.Option("--out", metavar="FILE.html", help="The file to write.")],
    db: DbOption = None,
) -> None:
    """Write what tuning bought as one HTML page.

    It covers every workload of the database and needs no network.
    """
    from autofuse.report.html import render_html

    output_path(out)
    with existing_store(db) as store:
        reports = [one for row in store.workloads() for one in workload_reports(store, row)]
    page = render_html(reports, generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"))
    write_whole(out, lambda part: _write(part, page))
    note(f"{plural(len(reports), 'workload')} reported in {out}")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def workload_reports(store: Store, workload: WorkloadRow) -> Iterator[WorkloadReport]:
    """One report per device that the workload was tuned on."""
    for environment, sessions in by_device(store.sessions(workload.digest)):
        measurements = store.measurements(workload.digest, environment)
        events = {session.id: store.events(session.id) for session in sessions}
        yield collect(
            workload,
            sessions,
            events,
            measurements,
            plan_svg=_picture(workload, sessions, measurements),
        )


def _picture(
    workload: WorkloadRow, sessions: tuple[SessionRow, ...], measurements: tuple[Measurement, ...]
) -> str:
    """The best plan of the latest session that has one, drawn; "" if there is none."""
    from autofuse.commands.pictures import text_svg

    plans = {one.candidate_digest: one.candidate for one in measurements}
    bests = [s.result.best_digest for s in sessions if s.result is not None]
    found = next((digest for digest in reversed(bests) if digest in plans), None)
    if found is None:
        return ""
    plan = candidate_from_json(plans[found]).plan
    return text_svg(workload.text, plan, f"The best plan of {workload.name}")
