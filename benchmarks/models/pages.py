"""Figures over rows, and a row in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.models.systems import OURS
from benchmarks.table import geomean

Row = Mapping[str, Any]
# What no network may be below, of its best peer: tuned, and untuned.
FLOORS = {"tuned": 0.92, "untuned": 0.85}


def summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Peers' times over ours: the geometric mean over the best of all peers of each network
    (`best`), over each peer (`peers`), networks below the floor; wrong and failed cells, by
    name."""
    had = {name: row for name, row in rows.items() if "systems" in row}
    best = {ours: {name: min(row["over"][ours].values()) for name, row in had.items()
                   if row["over"].get(ours)} for ours in OURS}  # fmt: skip
    cells = [(f"{n} {c}", cell) for n, row in had.items() for c, cell in row["systems"].items()]
    return {
        "networks": len(rows),
        "best": {ours: geomean([*best[ours].values()]) for ours in OURS},
        "peers": {ours: _over_peers(ours, had) for ours in OURS},
        "below": {o: {n: r for n, r in best[o].items() if r < FLOORS[o]} for o in OURS},
        "wrong": [name for name, cell in cells if cell.get("right") is False],
        "failed": {
            **{name: row["error"] for name, row in rows.items() if "error" in row},
            **{name: cell["failed"] for name, cell in cells if "failed" in cell},
        },
    }


def _over_peers(ours: str, rows: Mapping[str, Row]) -> dict[str, float | None]:
    found: dict[str, list[float]] = {}
    for row in rows.values():
        for peer, ratio in row["over"].get(ours, {}).items():
            found.setdefault(peer, []).append(ratio)
    return {peer: geomean(ratios) for peer, ratios in found.items()}


def line(name: str, row: Row) -> str:
    """One row in a line of text."""
    if "error" in row:
        return f"{name:22} {row['error']}"
    cells = "  ".join(f"{system} {_cell(cell)}" for system, cell in row["systems"].items())
    best = "  ".join(f"{ours} {min(ratios.values()):.2f} x the best peer"
                     for ours, ratios in row["over"].items() if ratios)  # fmt: skip
    return f"{name:22} {cells}  {best}"


def _cell(cell: Mapping[str, Any]) -> str:
    if "failed" in cell:
        return str(cell["failed"])[:60]
    text = f"{cell['us'][1] / 1e3:.1f} ms (first {cell['first_s']:.1f} s)"
    return text if cell["right"] else f"{text} WRONG ({cell['error']:.1e})"


def table_text(rows: Mapping[str, Row]) -> str:
    """A table in Markdown: times of a call in milliseconds, seconds to the first results."""
    had = {name: row for name, row in rows.items() if "systems" in row}
    names = [*dict.fromkeys(system for row in had.values() for system in row["systems"])]
    told = [f"| network | {' | '.join(names)} | tuned over the best peer |",
            "|---" * (len(names) + 2) + "|"]  # fmt: skip
    for name, row in had.items():
        cells = [_short(row["systems"].get(system, {"failed": ""})) for system in names]
        ratios = row["over"].get("tuned") or row["over"].get("untuned") or {}
        least = f"{min(ratios.values()):.2f}" if ratios else ""
        told.append(f"| {name} | {' | '.join(cells)} | {least} |")
    return "\n".join(told)


def _short(cell: Mapping[str, Any]) -> str:
    if "us" not in cell:
        return "-"
    return f"{cell['us'][1] / 1e3:.4g} ({cell['first_s']:.1f} s)"


def summary_text(found: Mapping[str, Any]) -> str:
    """The figures over all rows."""
    figures = found["summary"]
    told = [f"{found['cpu']}, {found['threads']} threads. {found['note']}".strip()]
    for ours in OURS:
        if (best := figures["best"][ours]) is not None:
            peers = ", ".join(f"{r:.2f} {p}" for p, r in figures["peers"][ours].items() if r)
            told.append(f"{ours}: {best:.2f} times the best peer of each; {peers}")
            told += [
                f"  below {FLOORS[ours]}: {n} {r:.2f}" for n, r in figures["below"][ours].items()
            ]
    told += [f"wrong: {name}" for name in figures["wrong"]]
    told += [f"failed: {name}: {why}" for name, why in figures["failed"].items()]
    return "\n".join(told)
