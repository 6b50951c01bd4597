"""Figures over rows, and a row in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.models.systems import OURS
from benchmarks.table import geomean

Row = Mapping[str, Any]
# What no network may be below, of its best peer: tuned, and untuned.
FLOORS = {"tuned": 0.92, "untuned": 0.85}
# What results must change by with the input, in parts of the largest: else they say nothing of it.
HEARS = 1e-2


def summary(rows: Mapping[str, Row]) -> dict[str, Any]:
    """Of each of ours (`of_ours`): the peer's time over it; networks whose results say nothing of
    the input (`deaf`); wrong and failed cells; all by name."""
    had = {name: row for name, row in rows.items() if "systems" in row}
    cells = _cells(had)
    return {
        "networks": len(rows),
        "of_ours": {ours: of_ours(ours, had) for ours in OURS},
        "deaf": [name for name, row in had.items() if _hears(row) <= HEARS],
        "wrong": [name for name, cell in cells if cell.get("right") is False],
        "failed": _failed(rows) | {n: c["failed"] for n, c in cells if "failed" in c},
    }


def of_ours(ours: str, rows: Mapping[str, Row]) -> dict[str, Any]:
    """Peers' times over one of ours: the geometric mean over the best of all peers of each network
    (`best`), over each peer (`peers`), and networks that are below the floor (`below`)."""
    best = _over_best(ours, rows)
    below = {name: ratio for name, ratio in best.items() if ratio < FLOORS[ours]}
    peers = _over_peers(ours, rows)
    return {"best": geomean([*best.values()]), "peers": peers, "below": below}


def _failed(rows: Mapping[str, Row]) -> dict[str, str]:
    return {name: str(row["error"]) for name, row in rows.items() if "error" in row}


def _cells(rows: Mapping[str, Row]) -> list[tuple[str, Mapping[str, Any]]]:
    """Each cell, by network and system."""
    return [(f"{n} {s}", cell) for n, row in rows.items() for s, cell in row["systems"].items()]


def _over_best(ours: str, rows: Mapping[str, Row]) -> dict[str, float]:
    """The best peer's time over ours, by network."""
    over = {name: row["over"].get(ours, {}) for name, row in rows.items()}
    return {name: min(ratios.values()) for name, ratios in over.items() if ratios}


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
    deaf = f"  DEAF ({_hears(row):.1e})" if _hears(row) <= HEARS else ""
    return f"{name:22} {cells}  {best}{deaf}"


def _hears(row: Row) -> float:
    """Of rows that were made before it was asked nobody knows: they count as deaf."""
    return float(row.get("hears", 0.0))


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
    for ours, of in figures["of_ours"].items():
        if of["best"] is not None:
            peers = ", ".join(f"{ratio:.2f} {peer}" for peer, ratio in of["peers"].items())
            told.append(f"{ours}: {of['best']:.2f} times the best peer of each; {peers}")
            told += [f"  below {FLOORS[ours]}: {n} {ratio:.2f}" for n, ratio in of["below"].items()]
    told += [f"deaf: {name}" for name in figures["deaf"]]
    told += [f"wrong: {name}" for name in figures["wrong"]]
    told += [f"failed: {name}: {why}" for name, why in figures["failed"].items()]
    return "\n".join(told)
