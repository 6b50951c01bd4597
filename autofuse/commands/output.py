"""What commands print: one JSON object, or aligned plain text."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import typer

from autofuse.units import time_text


class Format(str, Enum):  # noqa: UP042 - StrEnum's help text differs between versions of typer
    """How a result is printed."""

    table = "table"
    json = "json"


class StdoutClosed(Exception):  # noqa: N818 - no error: the reader has seen enough
    """Whoever read stdout does so no more."""


def say(text: str) -> None:
    """One line on stdout; raises StdoutClosed."""
    try:
        sys.stdout.write(f"{text}\n")
    except BrokenPipeError:
        raise StdoutClosed from None


def flush() -> None:
    """Hand over what was said; raises StdoutClosed."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise StdoutClosed from None


def emit(form: Format, data: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Print `data` as one JSON object, or `lines`."""
    if form is Format.json:
        say(json.dumps(_finite(data), indent=2, allow_nan=False))
    else:
        for line in lines:
            say(printable(line))


def note(text: str) -> None:
    """One line about what is being done, on stderr."""
    typer.echo(f"autofuse: {printable(text)}", err=True)


def printable(text: str) -> str:
    """`text` in one line that cannot steer a terminal: names come from files."""
    return "".join(c if c.isprintable() else "?" for c in text)


def _finite(value: Any) -> Any:
    """JSON has no infinities and no NaN: they become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns padded to equal width; columns whose head starts with ">" are right-aligned."""
    right = [h.startswith(">") for h in head]
    cells = [[h.removeprefix(">") for h in head], *(list(row) for row in rows)]
    widths = [max(len(row[k]) for row in cells) for k in range(len(head))]
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]


def duration(microseconds: float | None) -> str:
    """As `units.time_text`; "-" where it is not known."""
    if microseconds is None or not math.isfinite(microseconds):
        return "-"
    return time_text(microseconds)


def seconds(value: float | None) -> str:
    """As `duration`, of seconds."""
    return duration(None if value is None else 1e6 * value)
