"""`autofuse casestudy` times one simulation, written four ways, under rules, search and peers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from autofuse.commands.common import (
    DbOption,
    DeviceOption,
    FormatOption,
    TargetOption,
    output_path,
    reported,
    write_text,
)
from autofuse.commands.output import Format, emit, note, table


class Name(str, Enum):  # noqa: UP042 - as Format
    """The studies there are."""

    cartpole = "cartpole"


@reported
def casestudy(
    name: Annotated[Name, typer.Argument(metavar="NAME", help="cartpole.")],
    budget: Annotated[
        float, typer.Option(metavar="SECONDS", help="Seconds to spend, on everything together.")
    ] = 120.0,
    device: DeviceOption = "cpu",
    target: TargetOption = "",
    db: DbOption = None,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the page of the study.")
    ] = None,
    form: FormatOption = Format.table,
) -> None:
    """Time one program written several ways, under rules and search.

    One simulation is written four ways, from naive to unrolled by hand; then with a network in its
    loop; then a training step. All results are checked and all programs timed in turns.
    """
    if markdown is not None:
        output_path(markdown)
    from autofuse.casestudy.page import page
    from autofuse.casestudy.study import casestudy as study

    data = study(budget, device=device, target=target, db=db, say=note)
    if markdown is not None:
        write_text(markdown, page(data))
        note(f"written to {markdown}")
    emit(form, data, _lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    from autofuse.casestudy.page import sentences, tables

    for title, head, rows in tables(data):
        yield title
        yield from table([head[0], *(f">{h}" for h in head[1:])], rows)
        yield ""
    yield from sentences(data)
