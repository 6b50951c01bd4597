"""Figures over rows, and a row in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.jax_cpu.row import BY_HAND, CURRENT, OLDER, OURS, PEERS
from benchmarks.table import geomean

Row = Mapping[str, Any]
# What no row may be below: tuned, and untuned.
FLOORS = {"tuned": 0.9, "untuned": 0.7}


def summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Geometric means of peers' times over ours: over all rows (`all`) and over those that were
    reported (`reported`); rows below the floor of either peer; and what is refused or wrong, by
    name."""
    had = {name: row for name, row in rows.items() if "columns" in row}
    reported = {name: row for name, row in had.items() if row["thread"]}
    return {
        "rows": len(rows),
        "all": _means(had),
        "reported": _means(reported),
        "below": {
            ours: {f"{name} {peer}": ratio for name, row in had.items()
                   for peer, ratio in row["over"].get(ours, {}).items()
                   if ratio < FLOORS[ours] and peer != BY_HAND}
            for ours in OURS
        },
        "wrong": [f"{n} {ours}" for n, row in had.items() for ours in OURS
                  if row["columns"].get(ours, {}).get("right") is False],
        "failed": {
            **{name: row["error"] for name, row in rows.items() if "error" in row},
            **{f"{n} {c}": column["failed"] for n, row in had.items()
               for c, column in row["columns"].items() if column["failed"]},
        },
    }  # fmt: skip


def _means(rows: Mapping[str, Row]) -> dict[str, dict[str, float | None]]:
    return {
        ours: {
            peer: geomean([r["over"][ours][peer] for r in rows.values()
                         if peer in r["over"].get(ours, {})])
            for peer in PEERS
        }
        for ours in OURS
    }  # fmt: skip


def line(name: str, row: Row) -> str:
    """One row in a line of text."""
    if "error" in row:
        return f"{name:28} {row['error']}"
    columns = row["columns"]
    told = "  ".join(f"{c} {_column(columns[c])}" for c in (*OURS, *PEERS) if c in columns)
    over = "  ".join(
        f"{ours} {ratio:.2f} x {peer}"
        for ours, ratios in row["over"].items() for peer, ratio in ratios.items()
    )  # fmt: skip
    return f"{name:28} {told}  {over}".rstrip()


def _column(column: Mapping[str, Any]) -> str:
    if column["failed"]:
        return f"[{column['failed']}]"
    us = "not timed" if column["us"] is None else f"{column['us']:.1f} us"
    wrong = "" if column["right"] else f", WRONG by {column['error']:.1e}"
    return f"{us} (first {column['first_s']:.1f} s{wrong})"


def summary_text(found: Mapping[str, Any]) -> str:
    """The figures over all rows."""
    figures = found["summary"]
    told = [f"{found['cpu']}, {found['threads']} threads, jax {found['jax']}. {found['note']}"]
    for which in ("all", "reported"):
        told += [
            f"geometric mean, {which} rows: {ours} {mean:.2f} x {peer}"
            for ours, means in figures[which].items()
            for peer, mean in means.items()
            if mean is not None
        ]
    for ours, below in figures["below"].items():
        told += [f"below {FLOORS[ours]}: {ours} {name} {r:.2f}" for name, r in below.items()]
    told += [f"wrong: {name}" for name in figures["wrong"]]
    told += [f"failed: {name}: {why}" for name, why in figures["failed"].items()]
    told += [f"absent: {name} needs {needs}" for name, needs in found["absent"].items()]
    return "\n".join(told)


# Columns of the table: microseconds of a call, and seconds of the first one.
_TIMES = {"untuned": "untuned", "tuned": "tuned", CURRENT: "jax.jit", OLDER: "jaxlib 0.4.31",
          BY_HAND: "C by hand"}  # fmt: skip


def table_text(found: Mapping[str, Any]) -> str:
    """All rows as a table of Markdown, with the means and the machine below it."""
    names = list(_TIMES)
    head = ["program", *_TIMES.values(), "over jax.jit", "over 0.4.31", "first call: ours, JAX's"]
    lines = [_cells(head), _cells(["---"] * len(head))]
    for name, row in sorted(found["rows"].items()):
        columns = row.get("columns", {})
        over = row.get("over", {}).get("tuned", {})
        first = [_number(columns.get(c, {}).get("first_s")) for c in ("untuned", CURRENT)]
        lines.append(
            _cells([
                f"{name} ({row['thread']})" if row.get("thread") else name,
                *(_microseconds(columns.get(c)) for c in names),
                *(_number(over.get(peer)) for peer in (CURRENT, OLDER)),
                f"{first[0]} s, {first[1]} s",
            ])
        )  # fmt: skip
    means = found["summary"]["all"]
    told = (
        f"{ours}: {_number(means[ours][CURRENT])} times current jax.jit, "
        f"{_number(means[ours][OLDER])} times jaxlib 0.4.31"
        for ours in OURS
    )
    machine = f"{found['cpu']}, {found['threads']} threads, jax {found['jax']}"
    means_text = (
        f"Geometric means, {'; '.join(told)}. Tuned for {found['budget_s']:g} s. {machine}."
    )
    return "\n".join([*lines, "", means_text])


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _microseconds(column: Mapping[str, Any] | None) -> str:
    if column is None or column["us"] is None:
        return "-"
    return f"{column['us']:,.1f} us" + ("" if column["right"] else " (wrong)")


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:.2f}" if number < 10 else f"{number:.1f}"
