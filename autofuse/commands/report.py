"""`autofuse report` tells what tuning bought, as one HTML file, as text or as data."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from autofuse.commands.common import (
    DbOption,
    os_sentence,
    output_path,
    reported,
    write_text,
    write_whole,
)
from autofuse.commands.database import existing_store
from autofuse.commands.output import note, say
from autofuse.commands.report_data import workload_reports
from autofuse.errors import AutofuseError
from autofuse.report.model import WorkloadReport
from autofuse.report.overview import as_of
from autofuse.report.peers import PeersFile, read_peers
from autofuse.units import plural


class ReportFormat(str, Enum):  # noqa: UP042 - as commands.output.Format
    """What the report is written as."""

    html = "html"
    md = "md"
    json = "json"
    csv = "csv"


class FigureFormat(str, Enum):  # noqa: UP042 - as commands.output.Format
    """What pictures are written as."""

    svg = "svg"
    png = "png"


@reported
def report(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The file (default: stdout).")
    ] = None,
    form: Annotated[ReportFormat, typer.Option("--format", help="html needs --out.")] = (
        ReportFormat.html
    ),
    peers: Annotated[
        Path | None,
        typer.Option("--peers", metavar="FILE", help="What scripts/bench_peers wrote."),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option("--figures", metavar="FOLDER", help="Write every picture there too."),
    ] = None,
    figure_format: Annotated[
        FigureFormat, typer.Option("--figure-format", help="png needs the extra 'figures'.")
    ] = FigureFormat.svg,
    db: DbOption = None,
) -> None:
    """Write what tuning bought, as a page or as data.

    It covers every workload of the database and needs no network.
    """
    if out is None and form is ReportFormat.html and figures is None:
        raise typer.BadParameter("a page needs a file: --out FILE.html", param_hint="--out")
    if out is not None:
        output_path(out)
    file = _peers(peers) if peers is not None else None
    with existing_store(db) as store, _no_collection():
        reports = [one for row in store.workloads() for one in workload_reports(store, row, file)]
    if out is not None or form is not ReportFormat.html:
        with _no_collection():
            text = _rendered(form, reports)
        if out is None:
            say(text.removesuffix("\n"))
        else:
            write_text(out, text)
    if figures is not None:
        _draw(figures, figure_format, reports)
    where = f" in {out}" if out is not None else ""
    note(f"{plural(len(reports), 'workload')} reported{where}")


@contextmanager
def _no_collection() -> Iterator[None]:
    """Records are many and stay until the end: looking for garbage among them is a fifth of the
    work."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _peers(path: Path) -> PeersFile:
    try:
        return read_peers(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise AutofuseError(f"{path} is not a text file") from None
    except OSError as error:
        raise AutofuseError(f"cannot read the peers: {os_sentence(error)}") from error


def _rendered(form: ReportFormat, reports: Sequence[WorkloadReport]) -> str:
    """The report as text, the same for equal data: it says when the data is of, not when it is
    read."""
    generated = as_of(reports)
    if form is ReportFormat.html:
        from autofuse.report.html import render_html

        return render_html(reports, generated)
    if form is ReportFormat.md:
        from autofuse.report.markdown import render_markdown

        return render_markdown(reports, generated)
    from autofuse.report import data

    if form is ReportFormat.json:
        return data.render_json(reports, generated)
    return data.render_csv(reports)


def _draw(folder: Path, form: FigureFormat, reports: Sequence[WorkloadReport]) -> None:
    from autofuse.report.figures import figures, png

    made = {
        f"{name}.{form.value}": png(svg) if form is FigureFormat.png else f"{svg}\n".encode()
        for name, svg in figures(reports)
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in made.items():
        write_whole(folder / name, partial(_write_bytes, content))
    note(f"{plural(len(made), 'figure')} drawn in {folder}")


def _write_bytes(content: bytes, path: Path) -> None:
    path.write_bytes(content)
