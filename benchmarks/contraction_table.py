"""The comparison of contractions as figures and as the page that people read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autofuse.units import time_text
from benchmarks.table import geomean

Row = Mapping[str, Any]
OURS, PACKED = "ours_us", "ours_packed_us"
# Products of few rows are bound by memory, and a group of their own.
FEW_ROWS = 16
BEST = "best"


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """For each group of rows: the geometric mean of each peer's time over ours, of the best peer's
    too, in how many cases, and the least of the latter. Peers that packed an operand beforehand
    are compared with ours where we did too, and nowhere else."""
    return {name: _figures(group) for name, group in _groups(rows).items() if group}


def _groups(rows: Sequence[Row]) -> dict[str, list[Row]]:
    kinds = dict.fromkeys(row["kind"] for row in rows)
    found = {kind: [row for row in rows if row["kind"] == kind] for kind in kinds}
    few = [r for r in rows if r["kind"] == "product" and r["shape"]["m"] <= FEW_ROWS]
    # Peers pack a convolution's weights beforehand: what we lose where ours are given in each call.
    given: list[Row] = [{**r, PACKED: r.get(OURS)} for r in found.get("convolution", ())]
    return found | {f"product, m <= {FEW_ROWS}": few, "convolution, weights not packed": given}


def _figures(rows: Sequence[Row]) -> dict[str, Any]:
    ratios = [(ratios_of(row), row["case"]) for row in rows]
    peers = dict.fromkeys(peer for found, _ in ratios for peer in found if peer != BEST)
    every = {peer: [r[peer] for r, _ in ratios if peer in r] for peer in (*peers, BEST)}
    worst = min(((r[BEST], case) for r, case in ratios if BEST in r), default=None)
    return {
        "cases": len(rows),
        "geomean": {peer: geomean(found) for peer, found in every.items() if found},
        "counted": {peer: len(found) for peer, found in every.items() if found},
        "worst": None if worst is None else {"case": worst[1], "ratio": worst[0]},
    }


def ratios_of(row: Row) -> dict[str, float]:
    """Each peer's time over ours, and of the best of them last; empty where there are none."""
    ratios = {
        peer: us / own
        for peer, us in row["peer_us"].items()
        if (own := row.get(PACKED if peer.endswith("_packed") else OURS))
    }
    return ratios | ({BEST: min(ratios.values())} if ratios else {})


def case_line(row: Row) -> str:
    """One case in one line."""
    times = {"ours": row.get(OURS), "ours_packed": row.get(PACKED), **row["peer_us"]}
    told = [f"{name} {time_text(us)}" for name, us in times.items() if us]
    told += [f"{name} FAILED: {why}" for name, why in row["failed"].items()]
    checked = f"{len(row['max_error'])} right to {_error(row)}"
    return f"{row['case']}: " + ", ".join([*told, checked])


def _error(row: Row) -> str:
    """The largest of all errors that were let pass."""
    errors = [error for error in row["max_error"].values() if error is not None]
    return f"{max(errors):.0e}" if errors else "-"


def text_table(rows: Sequence[Row], missing: Mapping[str, str]) -> str:
    """A table for each kind, the figures of each group, and what is missing."""
    blocks = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        blocks.append(_table([row for row in rows if row["kind"] == kind]))
    figures = [_figures_line(name, found) for name, found in summary(rows).items()]
    failed = _failed(rows)
    absent = [f"missing: {name}: {reason}" for name, reason in missing.items()]
    return "\n\n".join("\n".join(block) for block in (*blocks, figures, failed + absent) if block)


def _speeds(row: Row) -> tuple[str, str]:
    best = ratios_of(row).get(BEST)
    speed = f"{row['flops'] / row[OURS] / 1e3:.1f}" if row.get(OURS) else "-"
    return speed, "-" if best is None else f"{best:.2f}"


def _failed(rows: Sequence[Row]) -> list[str]:
    return [
        f"failed: {row['case']} with {name}: {why}"
        for row in rows for name, why in row["failed"].items()
    ]  # fmt: skip


def _table(rows: Sequence[Row]) -> list[str]:
    """Times of one kind, our GFLOP/s, the best peer's time over ours, and the largest error."""
    packed = ["packed"] * any(row.get(PACKED) for row in rows)
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peer_us"]))
    lines = [(rows[0]["kind"], "cache", "ours", *packed, *peers, "GFLOP/s", "best / ours",
              "error")]  # fmt: skip
    for row in rows:
        times = [row.get(OURS), *(row.get(PACKED) for _ in packed)]
        times += [row["peer_us"].get(peer) for peer in peers]
        told = (time_text(us) if us else "-" for us in times)
        lines.append((row["case"], row["cache"], *told, *_speeds(row), _error(row)))
    return list(_aligned(lines))


def _aligned(lines: Sequence[Sequence[str]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for head, *rest in lines:
        cells = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        yield "  ".join((f"{head:{widths[0]}}", *cells))


def _figures_line(name: str, found: Mapping[str, Any]) -> str:
    means = ", ".join(
        f"{peer} {mean:.3f} ({found['counted'][peer]})" for peer, mean in found["geomean"].items()
    )
    worst = found["worst"]
    least = "" if worst is None else f"; worst {worst['ratio']:.3f} ({worst['case']})"
    return f"{name}: geometric mean of peer / ours: {means or 'none'}{least}"
