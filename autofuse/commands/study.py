"""`autofuse study` tells what search, rules and launches are worth on one graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from autofuse.commands.common import (
    DbOption,
    DeviceOption,
    DimOption,
    FormatOption,
    SourceArg,
    load_workload,
    output_path,
    reported,
    write_text,
)
from autofuse.commands.output import Format, emit, note, table


@reported
def study(
    source: SourceArg,
    dim: DimOption = None,
    device: DeviceOption = "auto",
    db: DbOption = None,
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to spend, on everything together.")
    ] = 300.0,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page of the study.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page of the study as HTML.")
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Tell what search, rules and launches are worth on one graph.

    A search comes first. Its plan, the plans of all rules, and planners without one of their rules
    are then timed in turns. What the search finds is kept, as by tune.
    """
    for path in (markdown, html):
        if path is not None:
            output_path(path)
    name, graph = load_workload(source, dim)
    from autofuse.study import page, page_html
    from autofuse.study import study as study_of

    found = study_of(graph, name=name, device=device, db=db, budget_s=budget, say=note)
    data = found.to_json()
    for path, written in ((markdown, page.markdown), (html, page_html.html)):
        if path is not None:
            write_text(path, written(data))
            note(f"written to {path}")
    emit(form, data, _lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    from autofuse.study.page import heading, sections, sentences

    yield heading(data)
    for section in sections(data):
        if section.rows:
            yield from ("", f"{section.title}. {section.said}")
            yield from table(section.head, section.rows)
    yield ""
    yield from sentences(data)
