"""The numbers of the house as a table."""

from __future__ import annotations

from benchmarks.house.rooms import Numbers


def table(found: Numbers) -> str:
    """A row for each room, and one for all."""
    names = list(next(iter(found.values())))
    total = {name: sum(own.get(name, 0) for own in found.values()) for name in names}
    rows = [["room", *names]]
    rows += [[room, *(str(own.get(n, 0)) for n in names)]
             for room, own in [*found.items(), ("all", total)]]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_line(row, widths) for row in rows)


def _line(row: list[str], widths: list[int]) -> str:
    first, *rest = zip(row, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)])
